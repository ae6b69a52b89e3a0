"""The completion guard over what a real kubelet and API server (v1.37.2) sent, over its table, and over garbage."""

import base64
import copy
import json
from pathlib import Path
from typing import Any, Final

import jsonpatch
import orjson
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from tests.tables import CASES, Case, every_report, merged, policy_of, read
from tests.test_engine import JSON
from webhook import observe
from webhook.cli import main
from webhook.core import engine
from webhook.core.guard import REASON
from webhook.core.policy import Policy
from webhook.core.rule import LONGEST
from webhook.review import decide

STATUS: Final = CASES / "status"
FILES: Final = {path.stem: path for path in sorted(STATUS.glob("*.json"))}
GUARDED: Final = "exit0.guarded"
POLICY: Final = policy_of()
POD: Final = read(CASES / "completion-guard.yaml")["bases"]["pod"]
every_file = pytest.mark.parametrize("name", FILES)


def captured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILES[name].read_text())
    return found


def answer(review: Any, policy: Policy = POLICY, deed: Any = "guard") -> dict[str, Any]:
    response: dict[str, Any] = orjson.loads(decide(orjson.dumps(review), policy, deed)[2])["response"]
    return response


def patched(review: dict[str, Any], response: dict[str, Any]) -> Any:
    steps = json.loads(base64.b64decode(response["patch"]))
    return jsonpatch.apply_patch(review["request"]["object"], steps)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["review", *arguments])


def test_there_are_reports_of_every_sort() -> None:
    assert [name for name in FILES if name.endswith(".guarded")] == [GUARDED]
    assert len([name for name in FILES if name.endswith(".left")]) == 4


def test_a_drained_pod_that_exits_0_becomes_failed_and_nothing_else_of_it_changes() -> None:
    review = captured(GUARDED)
    response = answer(review)
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    assert response["auditAnnotations"] == {"mended": "completion-guard"}
    assert "warnings" not in response
    after = patched(review, response)
    message = (
        "It was stopped (EvictionByEvictionAPI) and exited 0, so its work may be unfinished and it counts as failed; "
        'a finished program writes completed to /dev/termination-log of container "w" (completion-guard)'
    )
    status = {"phase": "Failed", "reason": REASON, "message": message}
    assert after == merged(review["request"]["object"], {"status": status})


@every_file
def test_every_other_report_is_allowed_and_left_as_it_is(name: str) -> None:
    if name != GUARDED:
        review = captured(name)
        assert answer(review) == {"uid": review["request"]["uid"], "allowed": True}


def test_the_repeat_of_the_kubelet_over_the_stored_failure_gets_the_same_answer() -> None:
    review = captured(GUARDED)
    first = answer(review)
    stored = patched(review, first)
    repeat = merged(review, {"request": {"oldObject": stored}})
    assert answer(repeat) == first
    for old in (None, {}, {"status": 7}):
        review["request"]["oldObject"] = old
        assert answer(review) == first


def test_a_failure_that_comes_back_is_left_as_it_is() -> None:
    review = captured(GUARDED)
    review["request"]["object"] = patched(review, answer(review))
    assert "patch" not in answer(review)


@every_file
def test_the_command_review_answers_as_the_guard_does(name: str) -> None:
    done = run(str(FILES[name]), "--as", "guard", "--decode")
    response = json.loads(done.stdout)["response"]
    assert done.exit_code == 0
    phases = [step["value"] for step in response.get("patch", []) if step["path"] == "/status/phase"]
    assert phases == (["Failed"] if name == GUARDED else [])


@every_file
@pytest.mark.parametrize("deed", ["mutate", "validate"])
def test_a_status_is_nothing_to_the_other_webhooks(name: str, deed: str) -> None:
    review = captured(name)
    review["request"]["object"] = review["request"]["object"] or {}
    assert answer(review, deed=deed) == {"uid": review["request"]["uid"], "allowed": True}


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"operation": "CREATE"}, "operation"),
        ({"operation": "DELETE"}, "operation"),
        ({"object": None}, "operation"),
        ({"subResource": None}, "subresource"),
        ({"subResource": "resize"}, "subresource"),
        ({"object": {"kind": "Job", "apiVersion": "batch/v1"}}, "kind"),
        ({"object": {"kind": "Unheard-of"}}, "kind"),
    ],
)
def test_only_an_update_of_a_pods_status_is_looked_at(changes: dict[str, Any], left: str) -> None:
    review = merged(captured(GUARDED), {"request": changes})
    assert "patch" not in answer(review)
    assert decide(orjson.dumps(review), POLICY, "guard")[1].left == left


def test_a_policy_that_monitors_only_tells_what_it_would_write() -> None:
    review = captured(GUARDED)
    assert answer(review, policy_of(mode="monitor")) == {
        "uid": review["request"]["uid"],
        "allowed": True,
        "auditAnnotations": {"mended": "completion-guard", "mode": "monitor"},
    }


@pytest.mark.parametrize(("mode", "outcome"), [("enforce", "guarded"), ("monitor", "would-guard")])
def test_a_guarded_pod_is_counted_and_logged(mode: str, outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "drainproof")
    metrics = observe.metrics()
    request, verdict, _ = decide(FILES[GUARDED].read_bytes(), policy_of(mode=mode), "guard")
    observe.reviewed(metrics, "guard", request, verdict, 0)
    counted = generate_latest(metrics.registry).decode()
    labels = f'deed="guard",kind="Pod",operation="UPDATE",outcome="{outcome}"'
    assert f"drainproof_reviews_total{{{labels}}} 1.0" in counted
    assert f'drainproof_mended_total{{mode="{mode}",rule="completion-guard"}} 1.0' in counted
    line = orjson.loads(observe.JsonLines().format(caplog.records[0]))
    told = {key: line[key] for key in ("deed", "kind", "name", "user", "mode", "allowed", "outcome", "mended", "left")}
    assert told == {
        "deed": "guard",
        "kind": "Pod",
        "name": "exit0-b4fxw",
        "user": "system:node:node1",
        "mode": mode,
        "allowed": True,
        "outcome": outcome,
        "mended": ["completion-guard"],
        "left": "",
    }


@pytest.mark.parametrize(
    ("document", "sections", "rule", "reason"),
    [
        (merged(POD, {"metadata": {"annotations": {"drainproof.dev/ignore": "by hand"}}}), {}, "*", "by hand"),
        (
            merged(POD, {"metadata": {"annotations": {"drainproof.dev/ignore.completion-guard": "by hand"}}}),
            {},
            "completion-guard",
            "by hand",
        ),
        (POD, {"exempt": [{"names": ["sums"], "reason": "moved"}]}, "*", "moved"),
        (POD, {"exempt": [{"owners": ["Job"], "namespaces": ["data"]}]}, "*", "policy"),
    ],
)
def test_an_exemption_that_takes_effect_is_counted_with_its_reason(
    document: Any, sections: dict[str, Any], rule: str, reason: str
) -> None:
    verdict = engine.guard(document, policy_of(**sections))
    assert (verdict.steps, verdict.left) == ((), "exempt")
    assert [(one.rule, one.reason) for one in verdict.exempt] == [(rule, reason)]
    metrics = observe.metrics()
    request = decide(FILES[GUARDED].read_bytes(), POLICY, "guard")[0]
    observe.reviewed(metrics, "guard", request, verdict, 0)
    assert (
        f'drainproof_exempt_total{{reason="{reason}",rule="{rule}"}} 1.0' in generate_latest(metrics.registry).decode()
    )


def test_the_namespace_of_the_request_counts_where_the_pod_names_none() -> None:
    review = merged(captured(GUARDED), {"request": {"namespace": "data", "object": {"metadata": {"namespace": None}}}})
    off = policy_of(overrides=[{"namespaces": ["data"], "rules": {"completion-guard": {"fix": False}}}])
    assert "patch" not in answer(review, off)
    assert "patch" in answer(merged(review, {"request": {"namespace": "other"}}), off)


@pytest.mark.parametrize("case", every_report())
def test_a_report_becomes_what_its_table_says(case: Case) -> None:
    before = copy.deepcopy(case.given)
    verdict = engine.guard(case.given, case.policy)
    assert verdict.object == case.after
    assert (case.found, verdict.notices, case.record) == ([], (), None)
    assert bool(verdict.steps) is (case.after != case.given) is (verdict.mended == ("completion-guard",))
    assert bool(verdict.left) is not bool(verdict.steps)
    # the laws
    assert case.given == before
    assert jsonpatch.apply_patch(case.given, list(verdict.steps)) == verdict.object
    assert engine.guard(verdict.object, case.policy).steps == ()
    assert engine.guard(case.given, case.policy) == verdict
    message = verdict.object["status"].get("message", "")
    assert len(message) <= LONGEST
    assert "\n" not in message


WILD: Final = st.dictionaries(
    st.sampled_from(["name", "state", "terminated", "message", "type", "status", "reason", "kind", "apiVersion"]), JSON
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_garbage_in_a_pod_makes_the_guard_raise(data: st.DataObject) -> None:
    document = copy.deepcopy(POD)
    for _ in range(data.draw(st.integers(0, 3))):
        _spoil(document, data)
    before = copy.deepcopy(document)
    once = engine.guard(document, POLICY)
    assert document == before
    assert jsonpatch.apply_patch(document, list(once.steps)) == once.object
    assert engine.guard(once.object, POLICY).steps == ()
    # A step that does not apply, or a value of another type, would stop the report, whatever failurePolicy says: only
    # strings, added to a map that is there. Nor is a report ever refused.
    assert once.notices == ()
    assert {(step["op"], type(step["value"])) for step in once.steps} <= {("add", str)}
    assert {step["path"] for step in once.steps} <= {f"/status/{name}" for name in ("phase", "reason", "message")}
    if once.steps:
        message = once.object["status"]["message"]
        assert len(message) <= LONGEST
        assert message.isprintable()


def _spoil(value: Any, data: st.DataObject) -> None:
    """Replaces something in a document, at any depth, by anything."""
    while isinstance(value, dict | list) and value:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = data.draw(st.sampled_from(keys))
        inside = value[key]
        if not isinstance(inside, dict | list) or not inside or data.draw(st.booleans()):
            value[key] = data.draw(JSON | WILD | st.lists(WILD | JSON, max_size=3))
            return
        value = inside


@given(document=JSON)
def test_no_json_makes_the_guard_raise(document: Any) -> None:
    assert engine.guard(document, POLICY).steps == ()


def test_a_pod_without_containers_is_guarded_all_the_same() -> None:
    verdict = engine.guard(merged(POD, {"spec": {"containers": []}}), POLICY)
    assert verdict.object["status"]["message"].endswith("it counts as failed (completion-guard)")


def test_the_captured_reviews_are_named_by_what_becomes_of_them() -> None:
    assert all(Path(name).suffix in (".guarded", ".left") for name in FILES if name != "eviction-request")
