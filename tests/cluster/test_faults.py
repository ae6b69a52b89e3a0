"""The guard and the stamp gone, slow or talking nonsense: reports of kubelets and deletions go on, and are counted.

What a real API server makes of each answer; the answers are those of a responder, for our own code gives none of them.
"""

import base64
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import deployment, jobpods, responder
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Endpoint
from tests.cluster.jobpods import condition, pod
from tests.cluster.responder import ALLOWING, Reply, Responder, review
from tests.cluster.test_calls import FAILED_OPEN, counted
from tests.cluster.test_outage import free_port
from tests.cluster.test_stamp_calls import KARPENTER, configuration
from webhook import tls

NAMESPACE: Final = "faulty"
SECONDS: Final = 3  # timeoutSeconds of the shipped configurations
PATIENT: Final = 60  # seconds that nobody waits for
GUARD: Final = "completions.guard.drainproof.dev"
STAMP: Final = "pods.stamp.drainproof.dev"


def encoded(patch: object) -> str:
    return base64.b64encode(json.dumps(patch).encode()).decode()


def patching(patch: str, kind: str = "JSONPatch") -> Reply:
    return Reply(lambda uid: review(uid, patchType=kind, patch=patch))


def saying(text: bytes, **more: Any) -> Reply:
    return Reply(lambda _: text, **more)


FAILED: Final = [{"op": "replace", "path": "/status/phase", "value": "Failed"}]

# Each is no answer to the API server, so that failurePolicy decides.
FAULTS: Final[dict[str, Reply]] = {
    "slow": replace(ALLOWING, seconds=PATIENT),
    "nothing": saying(b""),
    "a page": saying(b"<html>It works!</html>", media_type="text/html"),
    "a page called JSON": saying(b"<html>It works!</html>"),
    "another JSON": saying(b'{"kind": "Status", "apiVersion": "v1"}'),
    "no response": saying(b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}'),
    "the uid of another": Reply(lambda _: review("another")),
    "status 500": replace(ALLOWING, status=500),
    "come again later": replace(ALLOWING, status=503, headers={"Retry-After": "1"}),
    "a patch that is no JSON": patching(base64.b64encode(b"phase: Failed").decode()),
    "a patch that is no list": patching(encoded({"phase": "Failed"})),
    "a patch of another type": patching(encoded(FAILED), "Merge"),
    "a patch without a type": Reply(lambda uid: review(uid, patch=encoded(FAILED))),
}
# What the API server takes for an answer, and then cannot use: failurePolicy Ignore does not help (Kubernetes 1.37.2
# apiserver pkg/admission/plugin/webhook/mutating/dispatcher.go). It is why test_guard.py holds our patches to so much.
HARMFUL: Final[dict[str, tuple[Reply, str]]] = {
    "a step that does not apply": (patching(encoded([{"op": "remove", "path": "/status/none"}])), "InternalError"),
    "a test that fails": (patching(encoded([{"op": "test", "path": "/status/phase", "value": "x"}])), "InternalError"),
    "a value of another type": (patching(encoded([{**FAILED[0], "value": {}}])), "InternalError"),
    "a refusal": (Reply(lambda uid: review(uid, allowed=False)), "denied the request"),
}


@dataclass(frozen=True)
class Case:
    """A webhook, what it is asked about, and what must have come of it."""

    name: str
    acts: Callable[..., str]
    done: Callable[[ControlPlane, str], bool]


def reports(plane: ControlPlane, name: str, *flags: str) -> str:
    """A kubelet reports that a guarded Pod which it stopped has succeeded; what the API server says to it."""
    status = {"phase": "Succeeded", "conditions": [condition("TerminationByKubelet")]}
    words = ("patch", "pod", name, "-n", NAMESPACE, "--subresource=status", "--type=merge", *flags, "-p")
    return plane.kubectl(*words, json.dumps({"status": status}), check=False).stderr


def has_succeeded(plane: ControlPlane, name: str) -> bool:
    return bool(plane.get("pod", name, "-n", NAMESPACE)["status"]["phase"] == "Succeeded")


def deletes(plane: ControlPlane, name: str, *flags: str) -> str:
    """Karpenter deletes a Pod by force; what the API server says to it."""
    words = ("delete", "pod", name, "-n", NAMESPACE, "--grace-period=29", "--wait=false", *flags)
    return plane.kubectl(*words, f"--as={KARPENTER}", "--as-group=system:masters", check=False).stderr


def is_going(plane: ControlPlane, name: str) -> bool:
    return "deletionTimestamp" in plane.get("pod", name, "-n", NAMESPACE)["metadata"]


CASES: Final = (Case(GUARD, reports, has_succeeded), Case(STAMP, deletes, is_going))
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.split(".")[1])


@pytest.fixture(scope="module")
def owner(control_plane: ControlPlane) -> Iterator[dict[str, Any]]:
    jobpods.namespace(control_plane, NAMESPACE)
    made = jobpods.owner(control_plane, NAMESPACE)
    control_plane.create(pod(NAMESPACE, "canary", made, bound=True))
    yield made
    words = ("-n", NAMESPACE, "--all", "--grace-period=0", "--force", "--wait=false")
    control_plane.kubectl("delete", "pods", *words)


def both(folder: Path, endpoint: Endpoint) -> list[dict[str, Any]]:
    """The configurations as they are shipped, with only the guard and the stamp in them."""
    mutating = deployment.configurations(endpoint)[0]
    mutating["webhooks"] = [webhook for webhook in mutating["webhooks"] if webhook["name"] == GUARD]
    return [mutating, configuration(folder, endpoint)]


def tried(plane: ControlPlane) -> None:
    """Both are asked about a dry run."""
    for case in CASES:
        case.acts(plane, "canary", "--dry-run=server")


def failed_open(plane: ControlPlane, name: str) -> float:
    """How often the API server went on without an answer of a webhook."""
    return counted(plane, FAILED_OPEN, name)


@dataclass(frozen=True)
class Outcome:
    """What was said to whoever acted, how often the API server went on without an answer, and the seconds it took."""

    said: str
    counted: float
    seconds: float


def acted(plane: ControlPlane, case: Case, name: str, owner: dict[str, Any]) -> Outcome:
    """What comes of acting on a new Pod."""
    plane.create(pod(NAMESPACE, name, owner, bound=True))
    before, begun = failed_open(plane, case.name), time.monotonic()
    said = case.acts(plane, name)
    seconds = time.monotonic() - begun
    return Outcome(said, failed_open(plane, case.name) - before, seconds)


def assert_it_went_on(plane: ControlPlane, case: Case, name: str, outcome: Outcome) -> None:
    assert outcome.said == ""
    assert case.done(plane, name)
    assert outcome.counted == 1


def told(tell: Callable[[str], None], case: Case, fault: str, outcome: Outcome) -> None:
    """Prints a row of the table."""
    goes = "is refused" if outcome.said else "goes on"
    tell(f"{case.name:33} {fault:28} {goes} after {outcome.seconds:.1f} s, failed open {outcome.counted:.0f}")


# First, for the next ones leave their webhooks registered.
def test_with_nobody_there_it_goes_on_and_is_counted(
    control_plane: ControlPlane, owner: dict[str, Any], tmp_path: Path, tell: Callable[[str], None]
) -> None:
    ca = tls.throw_away(tmp_path).ca
    assert ca is not None
    before = {case: failed_open(control_plane, case.name) for case in CASES}

    def failing(plane: ControlPlane) -> bool:
        tried(plane)
        return all(failed_open(plane, case.name) > before[case] for case in CASES)

    nowhere = Endpoint(f"https://localhost:{free_port()}", ca)
    with deployment.registered(control_plane, both(tmp_path, nowhere), failing):
        for case in CASES:
            name = f"{case.acts.__name__}-gone"
            outcome = acted(control_plane, case, name, owner)
            told(tell, case, "nobody there", outcome)
            assert_it_went_on(control_plane, case, name, outcome)


@pytest.fixture(scope="module")
def webhooks(
    control_plane: ControlPlane, owner: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Responder]:
    """A responder in the place of the guard and of the stamp."""
    del owner
    folder = tmp_path_factory.mktemp("faults")

    def called(plane: ControlPlane) -> bool:
        tried(plane)
        return {one["operation"] for one in there.heard} == {"UPDATE", "DELETE"}

    with (
        responder.responding(folder) as there,
        deployment.registered(control_plane, both(folder, there.endpoint), called),
    ):
        yield there


@contextmanager
def answering(there: Responder, reply: Reply) -> Iterator[None]:
    there.heard.clear()
    there.reply = reply
    try:
        yield
    finally:
        there.reply = ALLOWING


@every_case
@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_answer_is_counted_and_it_goes_on(
    control_plane: ControlPlane,
    webhooks: Responder,
    owner: dict[str, Any],
    fault: str,
    case: Case,
    tell: Callable[[str], None],
) -> None:
    name = f"{case.acts.__name__}-{'-'.join(fault.lower().split())}"
    with answering(webhooks, FAULTS[fault]):
        outcome = acted(control_plane, case, name, owner)
    told(tell, case, fault, outcome)
    assert set(webhooks.names()) == {name}
    assert_it_went_on(control_plane, case, name, outcome)
    if fault == "slow":
        assert SECONDS <= outcome.seconds < PATIENT


@pytest.mark.parametrize("answer", HARMFUL)
def test_what_is_an_answer_and_cannot_be_used_stops_a_report_whatever_failure_policy_says(
    control_plane: ControlPlane,
    webhooks: Responder,
    owner: dict[str, Any],
    answer: str,
    tell: Callable[[str], None],
) -> None:
    reply, says = HARMFUL[answer]
    name = "-".join(answer.split())
    with answering(webhooks, reply):
        outcome = acted(control_plane, CASES[0], name, owner)
    told(tell, CASES[0], answer, outcome)
    assert says in outcome.said
    assert not has_succeeded(control_plane, name)
    assert outcome.counted == 0
    # The kubelet reports again; with a webhook that is well, it is heard.
    assert reports(control_plane, name) == ""
    assert has_succeeded(control_plane, name)


def test_a_patch_on_a_deletion_is_no_answer(
    control_plane: ControlPlane, webhooks: Responder, owner: dict[str, Any]
) -> None:
    with answering(webhooks, patching(encoded(FAILED))):
        outcome = acted(control_plane, CASES[1], "patched", owner)
    assert_it_went_on(control_plane, CASES[1], "patched", outcome)


def test_a_refusal_of_the_stamp_would_be_obeyed(
    control_plane: ControlPlane, webhooks: Responder, owner: dict[str, Any]
) -> None:
    """Nothing but our own code keeps it from being one: failurePolicy is for what is no answer."""
    with answering(webhooks, HARMFUL["a refusal"][0]):
        outcome = acted(control_plane, CASES[1], "refused", owner)
    assert "denied the request" in outcome.said
    assert not is_going(control_plane, "refused")
    assert deletes(control_plane, "refused") == ""
