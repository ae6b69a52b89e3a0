"""The disruption stamp offline: its table, the patch that it asks for, and what no request can make it do."""

import copy
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Final

import jsonpatch
import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tables import CASES, Case, every_deletion, merged, policy_of, read
from tests.test_engine import JSON
from tests.test_guard import _spoil as spoil
from webhook import observe
from webhook.cli import main
from webhook.core import engine
from webhook.core.policy import Policy
from webhook.core.rule import LONGEST
from webhook.core.stamp import REASON, RULE_ID, condition, patch
from webhook.review import decide

POD: Final = read(CASES / "disruption-stamp.yaml")["bases"]["pod"]
USER: Final = "system:serviceaccount:kube-system:karpenter"
ON: Final = {RULE_ID: {"fix": True}}
POLICY: Final = policy_of(ON)
NOW: Final = datetime(2026, 11, 29, 22, 41, 12, 999_999, UTC)


def deletion(**changes: Any) -> dict[str, Any]:
    """A review of a deletion by Karpenter, as the API server sends it."""
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "sums-x7k2p",
        "namespace": "data",
        "operation": "DELETE",
        "userInfo": {"username": USER},
        "object": None,
        "oldObject": POD,
        "dryRun": False,
        "options": {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            "gracePeriodSeconds": 29,
            "preconditions": {"uid": POD["metadata"]["uid"]},
        },
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return dict(merged(review, {"request": changes}))


def answer(review: Any, policy: Policy = POLICY, deed: Any = "stamp") -> dict[str, Any]:
    response: dict[str, Any] = orjson.loads(decide(orjson.dumps(review), policy, deed)[2])["response"]
    return response


def test_what_an_api_server_really_sends_is_stamped() -> None:
    """Captured from kube-apiserver 1.37.2; a user with Karpenter's name deleted with its options."""
    review = orjson.loads((CASES / "deletion" / "forced.stamped.json").read_bytes())
    request, verdict, _ = decide(orjson.dumps(review), POLICY, "stamp")
    assert answer(review)["auditAnnotations"] == {"mended": RULE_ID}
    scheduled, disrupted = verdict.object["status"]["conditions"]
    assert scheduled == request.old["status"]["conditions"][0]
    assert disrupted == condition(USER)
    assert merged(verdict.object, {"status": {"conditions": [scheduled]}}) == request.old


@pytest.mark.parametrize("case", every_deletion())
def test_a_deletion_makes_of_a_pod_what_its_table_says(case: Case) -> None:
    before = copy.deepcopy(case.given)
    verdict = engine.stamp(case.given, case.policy, case.deleted_by)
    assert verdict.object == case.after
    assert (case.found, verdict.notices, case.record) == ([], (), None)
    assert bool(verdict.steps) is (case.after != case.given) is (verdict.mended == (RULE_ID,))
    assert bool(verdict.left) is not bool(verdict.steps)
    # the laws
    assert case.given == before
    assert jsonpatch.apply_patch(case.given, list(verdict.steps)) == verdict.object
    assert engine.stamp(case.given, case.policy, case.deleted_by) == verdict
    if verdict.steps:
        assert engine.stamp(verdict.object, case.policy, case.deleted_by).left == "disrupted"
        assert combined(case.given, patch(case.given, case.deleted_by, NOW)) == timed(verdict.object)


def combined(pod: Any, change: Any) -> Any:
    """A Pod under a strategic merge patch of its status: conditions are merged by their type."""
    assert change["metadata"] == {"uid": pod["metadata"]["uid"]}
    new = {one["type"]: one for one in change["status"]["conditions"]}
    old = [one for one in (pod.get("status") or {}).get("conditions") or [] if one["type"] not in new]
    return merged(pod, {"status": {"conditions": [*old, *new.values()]}})


def timed(pod: Any) -> Any:
    *others, last = pod["status"]["conditions"]
    return merged(pod, {"status": {"conditions": [*others, {**last, "lastTransitionTime": "2026-11-29T22:41:12Z"}]}})


def test_the_patch_names_one_pod_and_one_condition_and_nothing_else() -> None:
    assert patch(POD, USER, NOW) == {
        "metadata": {"uid": POD["metadata"]["uid"]},
        "status": {
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByKarpenter",
                    "message": f'"{USER}" deletes it by force, without an eviction; that is a disruption, no failure '
                    "of its own (disruption-stamp)",
                    "lastTransitionTime": "2026-11-29T22:41:12Z",
                }
            ]
        },
    }
    assert REASON == "DeletionByKarpenter"


def test_the_time_is_written_in_utc() -> None:
    here = datetime(2026, 11, 30, 0, 41, 12, tzinfo=timezone(timedelta(hours=2)))
    assert patch(POD, USER, here) == patch(POD, USER, NOW)


@given(st.text())
def test_a_message_is_one_short_line_whoever_asks(user: str) -> None:
    message = condition(user)["message"]
    assert message.isprintable()
    assert len(message) <= LONGEST
    assert message.endswith("(disruption-stamp)")


def test_the_answer_allows_the_deletion_says_for_the_audit_log_what_is_done_and_has_no_patch() -> None:
    assert answer(deletion()) == {"uid": "u-1", "allowed": True, "auditAnnotations": {"mended": RULE_ID}}


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"operation": "CREATE"}, "operation"),
        ({"operation": "UPDATE", "object": POD}, "operation"),
        ({"oldObject": None}, "operation"),
        ({"subResource": "status"}, "subresource"),
        ({"options": {"preconditions": {"resourceVersion": "7"}}}, "version"),
        ({"oldObject": {"kind": "Job", "apiVersion": "batch/v1"}}, "kind"),
        ({"oldObject": {"kind": "Unheard-of"}}, "kind"),
        ({"oldObject": {"metadata": {"name": None}}}, "unnamed"),
        ({"oldObject": {"metadata": {"uid": ""}}}, "unnamed"),
        ({"oldObject": {"metadata": {"name": None, "generateName": "sums"}}}, "unnamed"),
        ({"oldObject": {"metadata": {"name": ".."}}}, "unnamed"),
        ({"oldObject": {"metadata": {"name": "a/status"}}}, "unnamed"),
        ({"oldObject": {"metadata": {"namespace": ".."}}}, "unnamed"),
        ({"namespace": "", "oldObject": {"metadata": {"namespace": None}}}, "unnamed"),
        ({"oldObject": {"metadata": {"ownerReferences": []}}}, "owner"),
        ({"oldObject": {"status": {"phase": "Failed"}}}, "finished"),
        ({"oldObject": {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}}}, "disrupted"),
        ({"userInfo": {"username": "jane"}}, "user"),
        ({"userInfo": None}, "user"),
        ({"oldObject": {"metadata": {"annotations": {"drainproof.dev/ignore": "by hand"}}}}, "exempt"),
    ],
)
def test_every_other_request_is_allowed_and_says_why_nothing_is_done(changes: dict[str, Any], left: str) -> None:
    review = deletion(**changes)
    if "oldObject" in changes and changes["oldObject"] and "kind" in changes["oldObject"]:
        review["request"]["oldObject"] = changes["oldObject"]
    verdict = decide(orjson.dumps(review), POLICY, "stamp")[1]
    assert (verdict.left, verdict.steps) == (left, ())
    exempt = {"auditAnnotations": {"exempt": "*: by hand"}} if left == "exempt" else {}
    assert answer(review) == {"uid": "u-1", "allowed": True, **exempt}


def test_nothing_is_done_unless_the_policy_says_so() -> None:
    assert decide(orjson.dumps(deletion()), policy_of(), "stamp")[1].left == "off"
    assert answer(deletion(), policy_of()) == {"uid": "u-1", "allowed": True}


def test_a_policy_that_monitors_only_tells_what_it_would_write() -> None:
    monitoring = policy_of(ON, mode="monitor")
    assert answer(deletion(), monitoring) == {
        "uid": "u-1",
        "allowed": True,
        "auditAnnotations": {"mended": RULE_ID, "mode": "monitor"},
    }
    verdict = decide(orjson.dumps(deletion()), monitoring, "stamp")[1]
    assert observe.outcome("stamp", verdict) == "would-stamp"
    assert observe.outcome("stamp", decide(orjson.dumps(deletion()), POLICY, "stamp")[1]) == "stamped"


def test_the_namespace_of_the_request_counts_where_the_pod_names_none() -> None:
    here = policy_of(overrides=[{"namespaces": ["data"], "rules": ON}])
    review = deletion(oldObject={"metadata": {"namespace": None}})
    assert "auditAnnotations" in answer(review, here)
    assert "auditAnnotations" not in answer(merged(review, {"request": {"namespace": "other"}}), here)


def test_a_pod_that_is_deleted_with_many_others_is_named_by_what_it_was() -> None:
    request, verdict, _ = decide(orjson.dumps(deletion(name="")), POLICY, "stamp")
    assert (request.name, verdict.mended) == ("sums-x7k2p", (RULE_ID,))


@pytest.mark.parametrize("deed", ["mutate", "validate", "guard"])
def test_a_deletion_is_nothing_to_the_other_webhooks(deed: str) -> None:
    assert answer(deletion(), deed=deed) == {"uid": "u-1", "allowed": True}


def test_the_command_review_answers_as_the_controller_would(tmp_path: Any) -> None:
    chosen = tmp_path / "policy.json"
    chosen.write_text(json.dumps({"apiVersion": "drainproof.dev/v1", "kind": "Policy", "rules": ON}))
    arguments = ["review", "-", "--as", "stamp", "--decode"]
    done = CliRunner().invoke(main, [*arguments, "--policy", str(chosen)], input=json.dumps(deletion()))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["response"] == {
        "uid": "u-1",
        "allowed": True,
        "auditAnnotations": {"mended": RULE_ID},
    }
    without = CliRunner().invoke(main, arguments, input=json.dumps(deletion()))
    assert json.loads(without.stdout)["response"] == {"uid": "u-1", "allowed": True}


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_garbage_in_a_pod_makes_the_stamp_raise(data: st.DataObject) -> None:
    document = copy.deepcopy(POD)
    for _ in range(data.draw(st.integers(0, 3))):
        spoil(document, data)
    before = copy.deepcopy(document)
    once = engine.stamp(document, POLICY, USER)
    assert document == before
    assert jsonpatch.apply_patch(document, list(once.steps)) == once.object
    if once.steps:
        assert engine.stamp(once.object, POLICY, USER).left == "disrupted"
        json.dumps(patch(document, USER, NOW))


@given(document=JSON)
def test_no_json_makes_the_stamp_raise(document: Any) -> None:
    assert engine.stamp(document, POLICY, USER).steps == ()
