"""AdmissionReview (admission.k8s.io/v1), the envelope: bytes in, a request and the bytes of its answer out."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from webhook.annotation import annotations
from webhook.core import engine
from webhook.core.engine import RuleError, Verdict
from webhook.core.patch import at
from webhook.core.policy import Policy
from webhook.core.rule import quoted
from webhook.core.workload import named

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
ROOM: Final = 4096  # characters of all warnings together (Kubernetes 1.37.2 apiserver endpoints/filters/warning.go)

Deed = Literal["mutate", "validate", "guard", "stamp"]


class ReviewError(ValueError):
    """Bytes that are no AdmissionReview; the message says why in one sentence."""


class UndecidedError(Exception):
    """A review that could not be decided through a fault of ours. `rule` is empty where no rule is to blame."""

    def __init__(self, request: "Request", rule: str) -> None:
        self.request = request
        self.rule = rule
        super().__init__(f"the rule {rule} raised" if rule else "the decision raised")


@dataclass(frozen=True, slots=True)
class Request:
    """What the API server asks. Texts that it did not send are empty; `name` is generateName while there is no name."""

    uid: str
    kind: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    operation: str
    dry_run: bool
    user: str
    object: Any
    old: Any
    options: Any = None


def decide(body: bytes, policy: Policy, deed: Deed) -> tuple[Request, Verdict, bytes]:
    """What is asked in `body`, what comes of it, and the answer to send.

    Raises ReviewError where the body is no review, UndecidedError where deciding it raised.
    """
    request = parse(body)
    try:
        verdict = judge(request, policy, deed)
        return request, verdict, respond(request, verdict, deed)
    except Exception as error:
        raise UndecidedError(request, error.rule if isinstance(error, RuleError) else "") from error


def parse(body: bytes) -> Request:
    """The request in the bytes of an AdmissionReview. Raises ReviewError."""
    request = at(_document(body), ("request",))
    if not isinstance(request, dict):
        raise ReviewError("The review has no request.")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise ReviewError("The request has no uid." if not uid else "The uid of the request is not a string.")
    operation = request.get("operation")
    if operation not in OPERATIONS:
        raise ReviewError(f"The operation {quoted(operation)} is not one of {', '.join(OPERATIONS)}.")
    for name in ("object", "oldObject"):
        if not isinstance(request.get(name), dict | None):
            raise ReviewError(f"The {name} of the request is neither a map nor null.")
    return Request(
        uid=uid,
        kind=_text(request, "kind", "kind"),
        group=_text(request, "kind", "group"),
        resource=_text(request, "resource", "resource"),
        subresource=_text(request, "subResource"),
        namespace=_text(request, "namespace"),
        # Of each object of a deletecollection only the old object says which one it is.
        name=_text(request, "name") or named(request.get("object") or request.get("oldObject")),
        operation=operation,
        dry_run=request.get("dryRun") is True,
        user=_text(request, "userInfo", "username"),
        object=request.get("object"),
        old=request.get("oldObject"),
        options=request.get("options"),
    )


def judge(request: Request, policy: Policy, deed: Deed) -> Verdict:
    """What comes of a request: nothing where it is not one of the deed's. Raises RuleError."""
    if deed == "guard":
        return _guarded(request, policy)
    if deed == "stamp":
        return _stamped(request, policy)
    if request.operation not in ("CREATE", "UPDATE") or request.object is None:
        return Verdict(request.object, left="operation")
    if request.subresource:  # a status or a scale: not the object that its author wrote
        return Verdict(request.object, left="subresource")
    # An update is never taken for a creation, even where the API server should send no old object.
    old = (request.old or {}) if request.operation == "UPDATE" else None
    look = engine.mutate if deed == "mutate" else engine.validate
    return look(request.object, policy, old, namespace=request.namespace)


def _guarded(request: Request, policy: Policy) -> Verdict:
    """What comes of a report of a Pod's status, and nothing of any other request."""
    if request.operation != "UPDATE" or request.object is None:
        return Verdict(request.object, left="operation")
    if request.subresource != "status":
        return Verdict(request.object, left="subresource")
    return engine.guard(request.object, policy, namespace=request.namespace)


def _stamped(request: Request, policy: Policy) -> Verdict:
    """What comes of the deletion of a Pod, and nothing of any other request.

    A deletion that is tied to a resourceVersion fails once anything has changed the Pod (Kubernetes 1.37.2 apiserver
    pkg/registry/generic/registry/store.go: admission is asked inside the loop that checks the preconditions).
    """
    if request.operation != "DELETE" or request.old is None:
        return Verdict(request.object, left="operation")
    if request.subresource:
        return Verdict(request.object, left="subresource")
    if at(request.options, ("preconditions", "resourceVersion")):
        return Verdict(request.object, left="version")
    return engine.stamp(request.old, policy, request.user, namespace=request.namespace)


def respond(request: Request, verdict: Verdict, deed: Deed) -> bytes:
    """The AdmissionReview that answers `request`. Where nothing is mended there is no patch, and none beside a denial.

    A verdict that is monitored changes, refuses and warns of nothing; the audit log has what would have been done.
    """
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if not verdict.monitored:
        response |= _effect(verdict, deed)
    audited = annotations(verdict, mended(verdict, deed))
    if audited:
        response["auditAnnotations"] = audited
    return orjson.dumps({"apiVersion": API_VERSION, "kind": KIND, "response": response})


def mended(verdict: Verdict, deed: Deed) -> tuple[str, ...]:
    """The rules that changed the object; what validation foresees of later objects is not counted."""
    return () if deed == "validate" else verdict.mended


def _effect(verdict: Verdict, deed: Deed) -> dict[str, Any]:
    """What an answer says of an object but for the audit log."""
    effect: dict[str, Any] = {}
    if verdict.denied:
        message = "; ".join(_within((notice.message for notice in verdict.denied), "; ", "reasons"))
        effect = {"allowed": False, "status": {"code": 403, "reason": "Forbidden", "message": message}}
    elif verdict.steps and deed in ("mutate", "guard"):  # a patch in any other answer is an error
        effect = {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(verdict.steps)).decode()}
    warnings = _within((notice.message for notice in verdict.warned), "", "warnings")
    return {**effect, "warnings": warnings} if warnings else effect


def _document(body: bytes) -> Any:
    if not body.strip():
        raise ReviewError("The body is empty; an AdmissionReview was expected.")
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ReviewError(f"The body is not JSON: {error}.") from error
    if not isinstance(document, dict):
        raise ReviewError("The body is JSON but not a map; an AdmissionReview was expected.")
    for name, right in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(name) != right:
            raise ReviewError(f"The {name} {quoted(document.get(name))} is not known; {right} was expected.")
    return document


def _text(request: Any, *path: str) -> str:
    found = at(request, path)
    return found if isinstance(found, str) else ""


def _within(texts: Iterable[str], separator: str, what: str) -> list[str]:
    """The texts, each once, as far as ROOM goes; past it, a last one says how many `what` are left out.

    Past its room the API server would cut every warning short, not only the last ones.
    """
    given = list(dict.fromkeys(texts))
    if sum(map(len, given)) + len(separator) * len(given) <= ROOM:
        return given
    rest = f"{len(given)} more {what} are left out"
    kept, room = 0, ROOM - len(rest) - len(separator)
    while (room := room - len(given[kept]) - len(separator)) >= 0:
        kept += 1
    return [*given[:kept], f"{len(given) - kept} more {what} are left out"]
