"""The envelope: what is taken as a review, and what an answer looks like."""

import base64
import re
from dataclasses import replace
from typing import Any

import jsonpatch
import orjson
import pytest

from tests.tables import Case, every_case, policy_of
from webhook.annotation import ids
from webhook.core import engine, policy, ruleset
from webhook.core.engine import Exempted, Notice, RuleError, Verdict
from webhook.core.policy import Policy
from webhook.core.rule import Level
from webhook.core.ruleset import Mode
from webhook.review import Request, ReviewError, UndecidedError, decide, parse, respond
from webhook.rules import RULES

POLICY = policy.default(RULES)
KEY = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")  # the name part of a qualified name
STEP = {"op": "add", "path": "/a", "value": 1}
JOB: Any = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "nightly-", "namespace": "reports"},
    "spec": {"template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "x"}]}}},
}


def review(**changes: Any) -> dict[str, Any]:
    request = {
        "uid": "u-1",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "name": "",
        "namespace": "reports",
        "operation": "CREATE",
        "userInfo": {"username": "jane"},
        "object": JOB,
        "oldObject": None,
        "dryRun": True,
    }
    request = {key: value for key, value in (request | changes).items() if value is not ...}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answer(document: Any, deed: Any = "mutate", by: Policy = POLICY) -> dict[str, Any]:
    found = orjson.loads(decide(orjson.dumps(document), by, deed)[2])
    assert found["apiVersion"] == "admission.k8s.io/v1"
    assert found["kind"] == "AdmissionReview"
    response: dict[str, Any] = found["response"]
    assert ("patch" in response) == ("patchType" in response)
    return response


def notices(count: int, level: Level = Level.WARN, length: int = 200) -> tuple[Notice, ...]:
    return tuple(Notice("rule", level, (), f"{index} ".ljust(length, "x")) for index in range(count))


def answered(verdict: Verdict, deed: Any = "validate") -> dict[str, Any]:
    response: dict[str, Any] = orjson.loads(respond(parse(orjson.dumps(review())), verdict, deed))["response"]
    return response


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "The body is empty"),
        (b" \n", "The body is empty"),
        (b"hello", "not JSON"),
        (b'{"apiVersion": "admission.k8s.io/v1"', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a map"),
        (b"null", "not a map"),
        (orjson.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}), 'apiVersion "admission.k8s.io/v1beta1"'),
        (orjson.dumps(review() | {"kind": "Review"}), 'The kind "Review" is not known'),
        (orjson.dumps(review() | {"kind": ["x"]}), "The kind a list is not known"),
        (orjson.dumps(review() | {"request": None}), "has no request"),
        (orjson.dumps(review() | {"request": []}), "has no request"),
        (orjson.dumps(review(uid=...)), "has no uid"),
        (orjson.dumps(review(uid="")), "has no uid"),
        (orjson.dumps(review(uid=7)), "uid of the request is not a string"),
        (orjson.dumps(review(operation="PATCH")), 'The operation "PATCH" is not one of'),
        (orjson.dumps(review(operation=["CREATE"])), "The operation a list is not one of"),
        (orjson.dumps(review(operation=...)), "The operation null is not one of"),
        (orjson.dumps(review(object=[1])), "The object of the request is neither a map nor null"),
        (orjson.dumps(review(oldObject="x")), "The oldObject of the request is neither a map nor null"),
    ],
)
def test_what_is_no_review_is_refused_with_one_plain_sentence(body: bytes, text: str) -> None:
    with pytest.raises(ReviewError) as error:
        decide(body, POLICY, "mutate")
    assert text in str(error.value)
    assert str(error.value).endswith(".")
    assert "\n" not in str(error.value)


def test_a_request_is_read_with_the_generated_name_while_there_is_no_other() -> None:
    request = parse(orjson.dumps(review()))
    assert request == Request(
        uid="u-1",
        kind="Job",
        group="batch",
        resource="jobs",
        subresource="",
        namespace="reports",
        name="nightly-",
        operation="CREATE",
        dry_run=True,
        user="jane",
        object=JOB,
        old=None,
    )
    assert parse(orjson.dumps(review(name="given"))).name == "given"


def test_parts_of_the_request_that_are_missing_or_of_another_type_read_as_empty() -> None:
    request = parse(orjson.dumps(review(kind=3, resource=..., userInfo=[], name=None, object=None, dryRun="true")))
    assert (request.kind, request.resource, request.user, request.name, request.dry_run) == ("", "", "", "", False)


def test_the_patch_leads_from_the_object_received_to_the_one_mended() -> None:
    response = answer(review())
    assert response["uid"] == "u-1"
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    steps = orjson.loads(base64.b64decode(response["patch"]))
    assert isinstance(steps, list)
    assert jsonpatch.apply_patch(JOB, steps) == decide(orjson.dumps(review()), POLICY, "mutate")[1].object


@pytest.mark.parametrize("deed", ["mutate", "validate"])
@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"operation": "DELETE", "object": None, "oldObject": JOB}, "operation"),
        ({"operation": "DELETE", "object": JOB}, "operation"),
        ({"operation": "CONNECT", "object": {"kind": "PodExecOptions"}}, "operation"),
        ({"object": None}, "operation"),
        ({"subResource": "status", "operation": "UPDATE", "oldObject": JOB}, "subresource"),
        ({"object": {}}, "kind"),
        ({"object": {"apiVersion": "v1", "kind": "ConfigMap"}}, "kind"),
    ],
)
def test_what_is_not_ours_is_allowed_and_left_as_it_is(changes: dict[str, Any], left: str, deed: Any) -> None:
    assert answer(review(**changes), deed) == {"uid": "u-1", "allowed": True}
    assert decide(orjson.dumps(review(**changes)), POLICY, deed)[1].left == left


def test_validation_never_patches_and_denies_with_403_forbidden() -> None:
    strict = policy.load(
        {"apiVersion": ruleset.API_VERSION, "kind": "Policy", "rules": {"restart-policy": {"level": "deny"}}}, RULES
    )
    response = answer(review(), "validate", strict)
    assert response["allowed"] is False
    assert "patch" not in response
    assert response["status"]["code"] == 403
    assert response["status"]["reason"] == "Forbidden"
    assert "(restart-policy)" in response["status"]["message"]


def test_an_update_is_mutated_as_an_update_even_without_an_old_object() -> None:
    for old in (JOB, None):
        verdict = decide(orjson.dumps(review(operation="UPDATE", oldObject=old)), POLICY, "mutate")[1]
        assert verdict.left == "update"


def test_an_update_is_not_told_again_what_the_old_object_already_had() -> None:
    assert answer(review(), "validate")["warnings"]
    assert answer(review(operation="UPDATE", oldObject=JOB), "validate") == {"uid": "u-1", "allowed": True}


def test_steps_foreseen_for_later_objects_are_no_patch_of_validation() -> None:
    response = answered(Verdict({}, steps=(STEP,), mended=("rule",)), "validate")
    assert response == {"uid": "u-1", "allowed": True}


def test_denials_are_joined_and_come_with_the_warnings() -> None:
    verdict = Verdict({}, notices=notices(2, Level.DENY, 3) + notices(1, Level.WARN, 4))
    response = answered(verdict)
    assert response["status"]["message"] == "0 x; 1 x"
    assert response["warnings"] == ["0 xx"]


def test_the_same_warning_is_given_once() -> None:
    assert answered(Verdict({}, notices=notices(1) * 3))["warnings"] == [notices(1)[0].message]


def test_warnings_that_fill_their_room_exactly_are_all_given() -> None:
    assert len(answered(Verdict({}, notices=notices(16, length=256)))["warnings"]) == 16


@pytest.mark.parametrize("count", [17, 100, 5000])
def test_warnings_past_their_room_are_counted_in_a_last_one(count: int) -> None:
    warnings = answered(Verdict({}, notices=notices(count, length=256)))["warnings"]
    assert sum(map(len, warnings)) <= 4096
    assert warnings[-1] == f"{count - len(warnings) + 1} more warnings are left out"
    assert len(warnings) == 16


def test_denials_past_the_room_are_counted_too() -> None:
    message = answered(Verdict({}, notices=notices(100, Level.DENY)))["status"]["message"]
    assert len(message) <= 4096
    assert message.endswith("more reasons are left out")


EVERYTHING = Verdict(
    {},
    steps=(STEP,),
    mended=("first", "second"),
    notices=notices(2, Level.DENY) + notices(2),
    exempt=(Exempted("third", "a\nreason " + "x" * 100_000), Exempted("fourth", "another")),
)


def test_the_audit_log_is_told_what_became_of_the_object_in_mode_enforce_too() -> None:
    assert answered(EVERYTHING, "mutate")["auditAnnotations"] == {
        "mended": "first,second",
        "denied": "rule",
        "warned": "rule",
        "exempt": "third: a reason " + "x" * 50 + "…; fourth: another",
    }
    assert answer(review())["auditAnnotations"] == {
        "mended": "restart-policy,pod-failure-policy",
        "warned": "restart-policy",
    }


def test_what_is_empty_is_no_audit_annotation_and_what_is_only_foreseen_was_not_mended() -> None:
    assert answered(Verdict({}, notices=notices(1)))["auditAnnotations"] == {"warned": "rule"}
    for monitored in (False, True):
        assert "auditAnnotations" not in answered(Verdict({}, monitored=monitored))
        assert "mended" not in answered(replace(EVERYTHING, monitored=monitored), "validate")["auditAnnotations"]


@pytest.mark.parametrize("deed", ["mutate", "validate"])
def test_the_api_server_can_store_every_audit_annotation(deed: Any) -> None:
    found = answered(replace(EVERYTHING, monitored=True), deed)["auditAnnotations"]
    assert len(found) == 5 if deed == "mutate" else 4
    for key, text in found.items():
        assert KEY.fullmatch(key)
        assert text.isprintable()


def test_a_monitoring_policy_only_tells_the_audit_log_what_it_would_do() -> None:
    assert answered(replace(EVERYTHING, monitored=True), "mutate") == {
        "uid": "u-1",
        "allowed": True,
        "auditAnnotations": {**answered(EVERYTHING, "mutate")["auditAnnotations"], "mode": "monitor"},
    }


@pytest.mark.parametrize("case", every_case())
def test_under_a_monitoring_policy_every_case_is_allowed_as_it_is_without_a_warning(case: Case) -> None:
    monitoring = replace(case.policy, mode=Mode.MONITOR)
    update = {} if case.old is None else {"operation": "UPDATE", "oldObject": case.old}
    for deed in ("mutate", "validate"):
        response = answer(review(object=case.given, **update), deed, monitoring)
        audited = response.pop("auditAnnotations", {"mode": "monitor"})
        assert response == {"uid": "u-1", "allowed": True}
        assert audited["mode"] == "monitor"
        enforced = answer(review(object=case.given, **update), deed, case.policy)
        told = enforced.get("auditAnnotations", {})
        assert [audited.get(key) for key in ("mended", "exempt")] == [told.get(key) for key in ("mended", "exempt")]
        if case.old is None and deed == "validate":  # what both webhooks together would have come to
            foreseen = ids(engine.foresee(case.given, case.policy, "reports").denied)
            assert audited.get("denied", "") == ",".join(foreseen)


def test_an_object_that_does_not_name_its_namespace_is_judged_by_that_of_the_request() -> None:
    quiet = {rule.id: {"level": "ignore", **({"fix": False} if rule.fix is not None else {})} for rule in RULES}
    there = policy_of(overrides=[{"namespaces": ["reports"], "rules": quiet}])
    document = {**JOB, "metadata": {"name": "nightly"}}
    for deed in ("mutate", "validate"):
        assert answer(review(object=document), deed, there) == {"uid": "u-1", "allowed": True}
        assert answer(review(object=document, namespace="others"), deed, there)["warnings"]


def test_a_fault_of_ours_names_the_request_and_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> None:
        raise RuleError("some-rule")

    monkeypatch.setattr("webhook.review.engine.mutate", raises)
    with pytest.raises(UndecidedError, match="the rule some-rule raised") as error:
        decide(orjson.dumps(review()), POLICY, "mutate")
    assert (error.value.request.uid, error.value.rule) == ("u-1", "some-rule")
