"""Each case of each table, and the laws that hold for all of them."""

import copy
import json
from typing import Any

import jsonpatch
import pytest

from tests.kubernetes import refusals
from tests.tables import Case, applied_on, every_case, policy_of, reviews, without_record
from webhook.core import engine
from webhook.core.engine import Notice, Verdict
from webhook.core.patch import dotted
from webhook.core.rule import LONGEST

CASES = every_case()
OBJECTS = [
    *(pytest.param(p.values[0].given, p.values[0].policy, id=p.id) for p in CASES),
    *(pytest.param(p.values[0]["request"]["object"], policy_of(), id=p.id) for p in reviews()),
]
every_object = pytest.mark.parametrize(("given", "policy"), OBJECTS)


def both_webhooks(case: Case) -> tuple[Verdict, Verdict]:
    """What mutation makes of a case's object, and what validation says of the result."""
    mutated = engine.mutate(case.given, case.policy, case.old)
    return mutated, engine.validate(mutated.object, case.policy, case.old)


@pytest.mark.parametrize("case", CASES)
def test_a_case_is_found_and_mended_as_its_table_says(case: Case) -> None:
    mutated, validated = both_webhooks(case)
    after, record = without_record(mutated.object)
    assert [brief(notice) for notice in mutated.notices + validated.notices] == [
        (f["rule"], f.get("level", "warn"), f["path"]) for f in with_defaults(case)
    ]
    for notice, found in zip(mutated.notices + validated.notices, case.found, strict=True):
        assert found["says"] in notice.message
    assert after == case.after
    assert record == case.record


def with_defaults(case: Case) -> list[dict[str, str]]:
    return [{"rule": case.table, **found} for found in case.found]


def brief(notice: Notice) -> tuple[str, str, str]:
    return notice.rule, str(notice.level), dotted(notice.path)


@pytest.mark.parametrize("case", [case for case in CASES if case.values[0].old is None])  # an update is never offline
def test_offline_says_what_both_webhooks_say(case: Case) -> None:
    mutated, validated = both_webhooks(case)
    foreseen = engine.foresee(case.given, case.policy)
    assert foreseen.notices == mutated.notices + validated.notices
    if case.given["kind"] != "CronJob":
        assert foreseen.object == mutated.object


@every_object
def test_the_object_given_is_not_changed(given: Any, policy: Any) -> None:
    before = copy.deepcopy(given)
    engine.foresee(given, policy)
    assert given == before


@every_object
def test_a_second_pass_changes_nothing_and_says_nothing_new(given: Any, policy: Any) -> None:
    once = engine.mutate(given, policy)
    again = engine.mutate(once.object, policy)
    assert again.steps == ()
    assert again.notices == ()


@every_object
def test_every_step_applies_to_the_document_received(given: Any, policy: Any) -> None:
    verdict = engine.mutate(given, policy)
    assert jsonpatch.apply_patch(given, list(verdict.steps)) == verdict.object
    assert json.loads(json.dumps(verdict.steps)) == list(verdict.steps)


@every_object
def test_what_kubernetes_accepts_before_it_accepts_after(given: Any, policy: Any) -> None:
    if not refusals(given):
        assert refusals(engine.mutate(given, policy).object) == []


@every_object
def test_a_message_is_one_short_line_with_the_field_first_and_the_rule_last(given: Any, policy: Any) -> None:
    for notice in engine.foresee(given, policy).notices:
        assert len(notice.message) <= LONGEST
        assert notice.message.isprintable()
        assert notice.message.startswith(f"{dotted(notice.path)}: ")
        assert notice.message.endswith(f" ({notice.rule})")
        assert "…" not in notice.message


@every_object
def test_a_failure_policy_comes_with_failed_and_never(given: Any, policy: Any) -> None:
    after = engine.mutate(given, policy).object
    spec = after.get("spec") or {}
    if given["kind"] == "Job" and (spec.get("podFailurePolicy") or {}).get("rules") and not refusals(after):
        assert spec["podReplacementPolicy"] == "Failed"
        assert spec["template"]["spec"]["restartPolicy"] == "Never"


@every_object
def test_applying_the_manifest_again_is_accepted_and_changes_nothing(given: Any, policy: Any) -> None:
    stored = engine.mutate(given, policy).object
    applied = applied_on(stored, given)
    again = engine.mutate(applied, policy, stored)
    assert again.object == stored
    assert engine.validate(again.object, policy, stored).notices == ()
