"""What was rewritten is remembered, and put back when an unchanged manifest is applied again."""

import copy
import json
from typing import Any

import pytest

from tests.tables import CASES, policy_of, read
from webhook.core import engine, record
from webhook.core.patch import at

POLICY = policy_of()
DISRUPT = ("spec", "template", "metadata", "annotations", "karpenter.sh/do-not-disrupt")


@pytest.fixture
def manifest() -> dict[str, Any]:
    """A Job of which four values are rewritten."""
    job: dict[str, Any] = copy.deepcopy(read(CASES / "restart-policy.yaml")["bases"]["job"])
    job["spec"]["template"]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    job["spec"]["podFailurePolicy"] = {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [3]}}]}
    return job


def stored_and_applied(manifest: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    stored = engine.mutate(manifest, POLICY).object
    applied = copy.deepcopy(stored)
    applied["spec"] = {**stored["spec"], **copy.deepcopy(manifest["spec"])}
    return stored, applied


def test_every_value_that_was_rewritten_is_recorded_and_put_back(manifest: dict[str, Any]) -> None:
    stored, applied = stored_and_applied(manifest)
    assert set(record.read(stored)) == {
        "/spec/podFailurePolicy/rules",
        "/spec/podReplacementPolicy",
        "/spec/template/metadata/annotations/karpenter.sh~1do-not-disrupt",
        "/spec/template/spec/restartPolicy",
    }
    again = engine.mutate(applied, POLICY, stored)
    applied["spec"]["template"]["metadata"] = again.object["spec"]["template"]["metadata"]
    assert again.object["spec"]["podFailurePolicy"] == stored["spec"]["podFailurePolicy"]
    assert again.object["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert at(again.object, DISRUPT) == "24h"
    assert again.notices == ()


def test_a_value_that_the_author_changes_is_not_put_back(manifest: dict[str, Any]) -> None:
    stored, applied = stored_and_applied(manifest)
    applied["spec"]["template"]["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "2h"
    again = engine.mutate(applied, POLICY, stored)
    assert at(again.object, DISRUPT) == "2h"


def test_an_update_without_a_record_changes_nothing(manifest: dict[str, Any]) -> None:
    changed = copy.deepcopy(manifest)
    changed["metadata"]["labels"] = {"a": "b"}
    assert engine.mutate(changed, POLICY, manifest).steps == ()


def test_an_update_of_what_is_stored_changes_nothing(manifest: dict[str, Any]) -> None:
    stored, _ = stored_and_applied(manifest)
    assert engine.mutate(copy.deepcopy(stored), POLICY, stored).steps == ()


def test_an_update_never_adds(manifest: dict[str, Any]) -> None:
    stored, applied = stored_and_applied(manifest)
    del applied["spec"]["podFailurePolicy"]
    again = engine.mutate(applied, POLICY, stored)
    assert "podFailurePolicy" not in again.object["spec"]


def test_an_object_that_is_being_deleted_is_left_alone(manifest: dict[str, Any]) -> None:
    stored, applied = stored_and_applied(manifest)
    applied["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert engine.mutate(applied, POLICY, stored).steps == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "7",
        "null",
        "[" * 60_000,
        '{"/spec/template/spec/restartPolicy":' + "[" * 500 + "]" * 500 + "}",
        '{"/spec/template/spec/containers":[]}',
        '{"spec.template.spec.restartPolicy":"OnFailure"}',
        '{"":{}}',
        "{" + " " * record.LARGEST + "}",
        7,
        None,
        {},
    ],
    ids=lambda text: str(text)[:30],
)
def test_a_forged_or_unreadable_record_changes_nothing(manifest: dict[str, Any], text: Any) -> None:
    stored, applied = stored_and_applied(manifest)
    stored["metadata"]["annotations"][record.KEY] = text
    assert engine.mutate(applied, POLICY, stored).steps == ()


def test_a_record_may_not_reach_what_no_rule_rewrites(manifest: dict[str, Any]) -> None:
    stored, applied = stored_and_applied(manifest)
    forged = {
        "/spec/template/spec/containers": applied["spec"]["template"]["spec"]["containers"],
        "/spec/suspend": True,
    }
    stored["metadata"]["annotations"][record.KEY] = json.dumps(forged)
    stored["spec"]["template"]["spec"]["containers"] = []
    assert engine.mutate(applied, POLICY, stored).steps == ()


def test_true_and_1_are_not_the_same_value(manifest: dict[str, Any]) -> None:
    stored, applied = stored_and_applied(manifest)
    stored["metadata"]["annotations"][record.KEY] = '{"/spec/template/spec/terminationGracePeriodSeconds":true}'
    applied["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    again = engine.mutate(applied, POLICY, stored).object
    assert again["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 1


def test_values_too_deep_to_compare_are_not_the_same() -> None:
    one: list[Any] = []
    other: list[Any] = []
    for _ in range(100_000):
        one, other = [one], [other]
    assert not record._same(one, other)


def test_a_record_that_came_with_the_manifest_is_kept_beside_the_new_one(manifest: dict[str, Any]) -> None:
    manifest["metadata"]["annotations"] = {record.KEY: '{"/spec/x":1,"/spec/podReplacementPolicy":"old"}'}
    entries = record.read(engine.mutate(manifest, POLICY).object)
    assert entries["/spec/x"] == 1
    assert entries["/spec/podReplacementPolicy"] == "TerminatingOrFailed"


@pytest.mark.parametrize("where", ["object", "template"])
def test_a_job_whose_annotations_are_full_is_left_as_it_is(manifest: dict[str, Any], where: str) -> None:
    metadata = manifest["metadata"] if where == "object" else manifest["spec"]["template"]["metadata"]
    metadata.setdefault("annotations", {})["filled"] = "x" * (record.ANNOTATIONS_LARGEST - 50)
    verdict = engine.mutate(manifest, POLICY)
    assert verdict.steps == ()
    assert verdict.object == manifest
    assert verdict.left == "no room for the record"


def test_a_policy_too_large_to_be_recorded_is_left_as_it_is(manifest: dict[str, Any]) -> None:
    manifest["spec"]["podFailurePolicy"]["rules"] = [
        {
            "action": "Count",
            "onPodConditions": [
                {"type": f"{'x' * 60}.{'y' * 60}.{'z' * 60}.com/c{i}", "status": "True"} for i in range(20)
            ],
        }
        for _ in range(19)
    ]
    assert engine.mutate(manifest, POLICY).left == "no room for the record"


def test_annotations_that_are_no_map_leave_the_job_as_it_is(manifest: dict[str, Any]) -> None:
    manifest["metadata"]["annotations"] = ["a list"]
    assert engine.mutate(manifest, POLICY).steps == ()
