"""The disruption stamp against a real API server and Job controller: Pods deleted as Karpenter deletes them."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests import manifests
from tests.cluster import deployment, process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import ROOT, Endpoint
from tests.cluster.test_calls import FAILED_OPEN, NOT_EVALUATED, REQUESTS, counted, listed
from tests.cluster.test_controller import COMMAND, QUICK, Controller, Site, documents, site, synced, waited
from tests.cluster.test_controller import meta as named
from tests.tables import merged, policy_of
from webhook import tls
from webhook.controller.api import ApiError, Thing, connect
from webhook.core import engine
from webhook.core.defaults import defaulted
from webhook.core.stamp import REASON

__all__ = ["site"]

NAMESPACE: Final = "by-force"
NODE: Final = "by-force-node"
KARPENTER: Final = "system:serviceaccount:kube-system:karpenter"
HOLD: Final = "example.test/hold"  # a finalizer, so that a Pod is still there to be looked at
POLICY: Final = {
    "apiVersion": "drainproof.dev/v1",
    "kind": "Policy",
    "rules": {"disruption-stamp": {"fix": True}},
}
ENTRY: Final = manifests.stamp()


def configuration(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "drainproof-stamp"},
        "webhooks": [{**ENTRY, "clientConfig": endpoint.client_config("/stamp")}],
    }


@dataclass(frozen=True)
class Pod:
    """The only Pod of a Job, and what becomes of it."""

    plane: ControlPlane
    job: str
    name: str
    namespace: str = NAMESPACE

    def found(self) -> dict[str, Any]:
        return self.plane.get("pod", self.name, "-n", self.namespace)

    def disruption(self) -> dict[str, Any] | None:
        """Its condition DisruptionTarget."""
        conditions = self.found()["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "DisruptionTarget"), None)

    def is_going(self) -> bool:
        return "deletionTimestamp" in self.found()["metadata"]

    def failures(self) -> int:
        """How many failed Pods its Job counts, once the Job has a new one in its place."""
        waited("a new Pod", lambda: set(pods(self.plane, self.job, self.namespace)) - {self.name}, 90)
        return int(self.plane.get("job", self.job, "-n", self.namespace)["status"].get("failed", 0))

    def is_held(self) -> None:
        """It stays after its end, until `goes`."""
        self._patched("json", [{"op": "add", "path": "/metadata/finalizers/-", "value": HOLD}])

    def runs(self) -> None:
        """It is bound to our Node, and its container runs."""
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.name}}
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": NODE}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/binding"
        self.plane.kubectl("create", "--raw", path, "-f", "-", input=json.dumps({**binding, **target}))
        self._reported("Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}})

    def is_stopped(self) -> None:
        """Its kubelet has stopped it, says so, and lets go of it."""
        self._reported("Failed", {"terminated": {"exitCode": 143, "reason": "Error"}})
        words = ("delete", "pod", self.name, "-n", self.namespace, "--grace-period=0", "--force", "--wait=false")
        self.plane.kubectl(*words)

    def _reported(self, phase: str, state: dict[str, Any]) -> None:
        image = {"image": "example.test/worker:1", "imageID": "sha256:0"}
        status = {"name": "worker", "ready": False, "restartCount": 0, "state": state, **image}
        self._patched("strategic", {"status": {"phase": phase, "containerStatuses": [status]}}, "--subresource=status")

    def _patched(self, kind: str, patch: Any, *words: str) -> None:
        where = ("patch", "pod", self.name, "-n", self.namespace, f"--type={kind}")
        self.plane.kubectl(*where, *words, "-p", json.dumps(patch))


def job(name: str, namespace: str = NAMESPACE, **more: Any) -> dict[str, Any]:
    """A Job as it is stored behind our webhook: a policy that ignores disruptions is injected."""
    container = {"name": "worker", "image": "example.test/worker:1"}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "namespace": namespace}
    written = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    injected: dict[str, Any] = engine.mutate(defaulted(merged(written, more)), policy_of()).object
    assert injected["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    return injected


def pods(plane: ControlPlane, job: str, namespace: str = NAMESPACE) -> list[str]:
    found = plane.get("pods", "-n", namespace, "-l", f"batch.kubernetes.io/job-name={job}")["items"]
    return [str(one["metadata"]["name"]) for one in found]


def started(plane: ControlPlane, name: str, namespace: str = NAMESPACE, **more: Any) -> Pod:
    """A Job and its Pod, which is on no node."""
    plane.create(job(name, namespace, **more))
    waited("a Pod", lambda: pods(plane, name, namespace))
    return Pod(plane, name, pods(plane, name, namespace)[0], namespace)


def delete(plane: ControlPlane, *words: str, user: str = KARPENTER, namespace: str = NAMESPACE, **more: Any) -> None:
    """Deletes Pods as somebody who may do anything, without waiting for their end."""
    given = ("-n", namespace, "--wait=false", f"--as={user}", "--as-group=system:masters")
    plane.kubectl("delete", *words, *given, timeout=300, **more)


@dataclass
class Stamp(Controller):
    """A controller with /stamp, and where that is."""

    endpoint: Endpoint

    def reviewed(self, name: str = "") -> list[str]:
        """What came of each deletion that it was asked about, oldest first, and why nothing else did."""
        lines = [one for one in self.lines("deletion reviewed") if name in ("", one["name"])]
        return [" ".join(filter(None, (one["outcome"], one["reason"]))) for one in lines]


def account(plane: ControlPlane, folder: Path, name: str, *rules: dict[str, Any]) -> Path:
    """A kubeconfig of a ServiceAccount that may keep a Lease, and do what `rules` say."""
    plane.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named(name, NAMESPACE)})
    group, kind = "rbac.authorization.k8s.io", "ClusterRole"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    plane.create({**head, "kind": kind, "rules": [lease, *rules]})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    reference = {"apiGroup": group, "kind": kind, "name": name}
    plane.create({**head, "kind": f"{kind}Binding", "roleRef": reference, "subjects": [subject]})
    settings = json.loads(plane.kubeconfig.read_text())
    token = plane.kubectl("-n", NAMESPACE, "create", "token", name).stdout.strip()
    settings["users"] = [{"name": "test", "user": {"token": token}}]
    path = folder / "kubeconfig"
    path.write_text(json.dumps(settings))
    return path


@contextmanager
def serving(plane: ControlPlane, folder: Path, *rules: dict[str, Any]) -> Iterator[Stamp]:
    """`drainproof controller` with a throw-away certificate, as an account with these rights."""
    name = f"account-{time.monotonic_ns()}"
    kubeconfig = account(plane, folder, name, *rules)
    (folder / "policy.json").write_text(json.dumps(POLICY))
    pair = tls.throw_away(folder)
    assert pair.ca is not None
    words = [
        "--kubeconfig",
        kubeconfig,
        "--namespace",
        NAMESPACE,
        "--certificates",
        "external",
        "--no-watch",
        "--no-discovery",
    ]
    words += ["--lease", name, "--host", "127.0.0.1", "--port", "0", "--stamp-port", "0"]
    words += ["--certificate", pair.certificate, "--key", pair.key, "--policy", folder / "policy.json", *QUICK]
    command = [sys.executable, "-W", "error", "-c", COMMAND, *map(str, words)]
    child = process.start("controller", command, folder / "controller.log", {**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        port = Controller(child).waited("stamp served")["port"]
        yield Stamp(child, Endpoint(f"https://localhost:{port}", pair.ca))
    finally:
        process.stop(child, 20)
        plane.kubectl("delete", "clusterrole,clusterrolebinding", name)


def failed_open(plane: ControlPlane) -> float:
    """How often a deletion went on because the stamp could not be asked, as the API server counts it."""
    text = plane.kubectl("get", "--raw", "/metrics").stdout
    lines = [one for one in text.splitlines() if one.startswith(f"{FAILED_OPEN}{{") and f'"{ENTRY["name"]}"' in one]
    return sum(float(line.split()[-1]) for line in lines)


STATUS: Final = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}


@pytest.fixture(scope="module")
def trouble(control_plane: ControlPlane) -> tuple[float, float]:
    """How often a condition could not be evaluated, and a call failed, before there was the stamp."""
    return counted(control_plane, NOT_EVALUATED), failed_open(control_plane)


@pytest.fixture(scope="module")
def canary(control_plane: ControlPlane, trouble: tuple[float, float]) -> Pod:  # noqa: ARG001 - counted before
    """A namespace for the Jobs, a Node for their Pods, and a Pod to be asked about and never deleted."""
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("wait", "serviceaccount/default", "-n", NAMESPACE, "--for=create", "--timeout=20s")
    control_plane.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    return started(control_plane, "canary")


def registered(plane: ControlPlane, canary: Pod, endpoint: Endpoint, is_asked: Callable[[], bool]) -> Any:
    """The webhook in the control plane, once it is called."""

    def in_force(_: ControlPlane) -> bool:
        delete(plane, "pod", canary.name, "--dry-run=server")
        return is_asked()

    return deployment.registered(plane, [configuration(endpoint)], in_force)


@pytest.fixture(scope="module")
def stamp(canary: Pod, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stamp]:
    with (
        serving(control_plane, tmp_path_factory.mktemp("stamp"), STATUS) as one,
        registered(control_plane, canary, one.endpoint, lambda: bool(one.reviewed(canary.name))),
    ):
        yield one


def test_a_running_pod_that_karpenter_deletes_is_not_counted_and_one_that_a_person_deletes_is(
    control_plane: ControlPlane, stamp: Stamp
) -> None:
    forced, meant = started(control_plane, "forced"), started(control_plane, "meant")
    for one, user in ((forced, KARPENTER), (meant, "jane@example.test")):
        one.runs()
        delete(control_plane, "pod", one.name, "--grace-period=29", user=user)
        assert one.is_going()
    condition = forced.disruption()
    assert condition is not None
    assert condition["lastTransitionTime"]
    told = {key: text for key, text in condition.items() if not key.startswith("last")}
    assert told == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": REASON,
        "message": f'"{KARPENTER}" deletes it by force, without an eviction; that is a disruption, no failure of its '
        "own (disruption-stamp)",
    }
    assert forced.found()["metadata"]["deletionGracePeriodSeconds"] == 29
    assert meant.disruption() is None
    assert (stamp.reviewed(forced.name), stamp.reviewed(meant.name)) == (["stamped"], [])
    for one in (forced, meant):
        one.is_stopped()
    assert (forced.failures(), meant.failures()) == (0, 1)


def test_a_pod_that_is_on_no_node_is_stamped_before_it_goes(control_plane: ControlPlane, stamp: Stamp) -> None:
    pod = started(control_plane, "pending")
    pod.is_held()
    delete(control_plane, "pod", pod.name)
    assert pod.is_going()
    condition = pod.disruption()
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", REASON)
    assert stamp.reviewed(pod.name) == ["stamped"]
    assert pod.failures() == 0
    pod._patched("merge", {"metadata": {"finalizers": None}})


def test_a_dry_run_writes_nothing(control_plane: ControlPlane, stamp: Stamp) -> None:
    pod = started(control_plane, "dry-run")
    before = pod.found()
    delete(control_plane, "pod", pod.name, "--dry-run=server")
    assert pod.found() == before
    assert stamp.reviewed(pod.name) == ["dry-run"]


def test_a_deletion_of_many_at_once_stamps_each_of_them(control_plane: ControlPlane, stamp: Stamp) -> None:
    template = {"template": {"metadata": {"labels": {"many": "yes"}}}}
    found = [started(control_plane, f"many-{number}", spec=template) for number in range(3)]
    for pod in found:
        pod.runs()
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=many=yes"
    control_plane.kubectl("delete", "--raw", path, f"--as={KARPENTER}", "--as-group=system:masters")
    for pod in found:
        assert pod.is_going()
        assert pod.disruption() is not None
        assert stamp.reviewed(pod.name) == ["stamped"]


def test_a_deletion_tied_to_a_resource_version_is_not_spoiled(control_plane: ControlPlane, stamp: Stamp) -> None:
    pod = started(control_plane, "tied")
    pod.runs()
    tied = {"preconditions": {"resourceVersion": pod.found()["metadata"]["resourceVersion"]}}
    options = {"apiVersion": "v1", "kind": "DeleteOptions", **tied}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod.name}"
    user = (f"--as={KARPENTER}", "--as-group=system:masters")
    control_plane.kubectl("delete", "--raw", path, "-f", "-", *user, input=json.dumps(options))
    assert pod.is_going()
    assert pod.disruption() is None
    assert stamp.reviewed(pod.name) == ["left version"]


def test_a_pod_that_is_exempt_goes_as_it_is(control_plane: ControlPlane, stamp: Stamp) -> None:
    reason = {"drainproof.dev/ignore.disruption-stamp": "a failure is to count"}
    pod = started(control_plane, "exempt", spec={"template": {"metadata": {"annotations": reason}}})
    pod.runs()
    delete(control_plane, "pod", pod.name)
    assert pod.disruption() is None
    assert stamp.reviewed(pod.name) == ["left exempt"]


def test_a_stamp_for_another_pod_of_the_same_name_is_refused(control_plane: ControlPlane) -> None:
    pod = started(control_plane, "another")
    status = Thing("/api/v1", "pods", pod.name, NAMESPACE, "status")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": REASON}
    change = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"conditions": [condition]}}
    with pytest.raises(ApiError) as caught:
        connect(control_plane.kubeconfig).strategic(status, change, 10)
    assert caught.value.status in (409, 422), str(caught.value)
    assert pod.disruption() is None


def test_1000_ordinary_deletions_and_updates_cause_no_call(control_plane: ControlPlane, stamp: Stamp) -> None:
    """By others, of Pods that belong to a Job; and Karpenter's, of Pods that belong to none."""
    before, asked = counted(control_plane, REQUESTS), stamp.reviewed()
    uid = control_plane.get("job", "canary", "-n", NAMESPACE)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "canary", "uid": uid, "controller": False}
    reports = [_bare(f"ordinary-{number}", controller={**owner, "controller": number < 100}) for number in range(400)]
    control_plane.kubectl("create", "-f", "-", "-o", "name", input=listed(reports), timeout=300)
    words = ("patch", "-f", "-", "--subresource=status", "--type=merge", "-o", "name")
    status = json.dumps({"status": {"message": "still there"}})
    patched = control_plane.kubectl(*words, "-p", status, input=listed(reports), timeout=300).stdout
    labelled = control_plane.kubectl("label", "-f", "-", "seen=yes", input=listed(reports[:200]), timeout=300).stdout
    assert (len(patched.splitlines()), len(labelled.splitlines())) == (400, 200)
    delete(control_plane, "-f", "-", user="jane", input=listed(reports[:200]))
    delete(control_plane, "-f", "-", input=listed(reports[200:]))  # no controller: not the Pods of a Job
    names = {one["metadata"]["name"] for one in control_plane.get("pods", "-n", NAMESPACE)["items"]}
    assert not names & {one["metadata"]["name"] for one in reports[200:]}
    assert stamp.reviewed() == asked
    assert counted(control_plane, REQUESTS) == before


def _bare(name: str, controller: dict[str, Any]) -> dict[str, Any]:
    containers = [{"name": "worker", "image": "example.test/worker:1"}]
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": [controller]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}


def test_no_condition_failed_to_be_evaluated_no_call_failed_and_each_outcome_is_counted(
    trouble: tuple[float, float], control_plane: ControlPlane, stamp: Stamp
) -> None:
    """With failurePolicy Ignore trouble would show as nothing but silence. It looks back at what came before."""
    assert (counted(control_plane, NOT_EVALUATED), failed_open(control_plane)) == trouble
    text = stamp.got("/metrics")[1]
    seen = [line.partition(" ")[0] for line in stamp.reviewed()]
    for outcome in ("stamped", "dry-run", "left", "failed"):
        assert f'drainproof_controller_stamps_total{{outcome="{outcome}"}} {float(seen.count(outcome))}\n' in text
    assert seen.count("failed") == 0
    assert stamp.got("/readyz") == (200, "ok\n")
    assert not [one for one in stamp.lines() if "trace" in one or one.get("logger")]


def test_a_controller_that_hangs_holds_a_deletion_up_for_the_timeout_of_the_webhook(
    control_plane: ControlPlane, stamp: Stamp
) -> None:
    pod = started(control_plane, "hangs")
    pod.runs()
    before = failed_open(control_plane)
    stamp.process.popen.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        delete(control_plane, "pod", pod.name)
        seconds = time.monotonic() - began
    finally:
        stamp.process.popen.send_signal(signal.SIGCONT)
    assert seconds >= ENTRY["timeoutSeconds"] - 0.5
    assert pod.is_going()
    assert failed_open(control_plane) == before + 1


def test_a_controller_that_ends_stamps_what_comes_meanwhile(control_plane: ControlPlane, stamp: Stamp) -> None:
    """The last but one with this controller: SIGTERM begins its drain."""
    pod = started(control_plane, "drain")
    pod.runs()
    before = failed_open(control_plane)
    stamp.process.popen.send_signal(signal.SIGTERM)
    stamp.waited("stopping")
    delete(control_plane, "pod", pod.name)
    assert stamp.reviewed(pod.name) == ["stamped"]
    assert pod.disruption() is not None
    assert failed_open(control_plane) == before
    assert stamp.process.popen.wait(30) == 0


def test_a_controller_that_is_gone_holds_nothing_up(control_plane: ControlPlane, stamp: Stamp) -> None:
    """The last with this controller, which has ended."""
    assert stamp.process.popen.poll() is not None
    pod = started(control_plane, "gone")
    pod.runs()
    before = failed_open(control_plane)
    delete(control_plane, "pod", pod.name)
    assert pod.is_going()
    assert pod.disruption() is None
    assert failed_open(control_plane) == before + 1
    pod.is_stopped()
    assert pod.failures() == 1


def answering(status: int, body: bytes, media: str) -> ASGIApp:
    """An application that answers anything with the same."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await Request(scope, receive).body()
        await Response(body, status, media_type=media)(scope, receive, send)

    return application


def no_review(**response: Any) -> bytes:
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    return json.dumps(review).encode()


NONSENSE: Final = {
    "no JSON": answering(200, b"hello", "application/json"),
    "another uid": answering(200, no_review(uid="u", allowed=False), "application/json"),
    "an error": answering(500, b"sorry", "text/plain"),
    "nothing": answering(200, b"", "application/json"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_whatever_nonsense_answers_in_its_place_a_deletion_goes_on(
    what: str, canary: Pod, control_plane: ControlPlane, tmp_path: Path
) -> None:
    pod = started(control_plane, f"nonsense-{list(NONSENSE).index(what)}")
    pod.runs()
    start = failed_open(control_plane)
    with (
        deployment.in_thread(NONSENSE[what], tmp_path) as endpoint,
        registered(control_plane, canary, endpoint, lambda: failed_open(control_plane) > start),
    ):
        before = failed_open(control_plane)
        delete(control_plane, "pod", pod.name)
        assert pod.is_going()
        assert failed_open(control_plane) == before + 1


def test_without_the_right_to_write_a_status_deletions_go_on_with_one_clear_error(
    canary: Pod, control_plane: ControlPlane, tmp_path: Path
) -> None:
    found = [started(control_plane, f"without-{number}") for number in range(3)]
    with (
        serving(control_plane, tmp_path) as stamp,
        registered(control_plane, canary, stamp.endpoint, lambda: bool(stamp.reviewed(canary.name))),
    ):
        before = failed_open(control_plane)
        for pod in found:
            pod.runs()
            delete(control_plane, "pod", pod.name)
            assert pod.is_going()
            assert pod.disruption() is None
            assert stamp.reviewed(pod.name)[0].startswith(f"failed patch pods/status {NAMESPACE}/{pod.name}: 403: ")
        assert failed_open(control_plane) == before, "the controller answered"
        (line,) = stamp.lines("call to the API server failed")
        assert (line["level"], line["resource"], line["status"]) == ("error", "pods/status", 403)
        assert 'cannot patch resource "pods/status"' in line["reason"]
        assert 'drainproof_controller_stamps_total{outcome="failed"} 3.0' in stamp.got("/metrics")[1]
        assert stamp.got("/readyz") == (200, "ok\n")
        assert not [one for one in stamp.lines() if "trace" in one]


def test_from_nothing_the_controller_makes_its_own_certificate_serves_it_and_is_called_by_its_service(
    site: Site,
) -> None:
    """As in a cluster: the Secret that its Pod mounts is made by it, and the caBundle of the entry is filled by it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    plane, folder = site.plane, site.folder / "controller-mount"
    external = {"type": "ExternalName", "externalName": "localhost"}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": named("drainproof-controller", site.namespace)}
    plane.create({**service, "spec": external})
    called = {**named("drainproof-controller", site.namespace), "path": "/stamp", "port": port}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}
    entry = {**ENTRY, "clientConfig": {"service": called}, "namespaceSelector": selector}
    (validating,) = (one for one in documents(site) if one["kind"].startswith("Validating"))
    validating["webhooks"].append(entry)
    for webhook in validating["webhooks"]:  # there is no webhook server here
        webhook["failurePolicy"] = "Ignore"
    site.kubectl("replace", "-f", "-", input=json.dumps(validating))
    mutating = {"webhooks": [{**one, "failurePolicy": "Ignore"} for one in site.configuration()["webhooks"]]}
    site.kubectl("patch", "mutatingwebhookconfiguration", site.namespace, "--type=merge", "-p", json.dumps(mutating))
    policy = site.folder / "policy.json"
    policy.write_text(json.dumps(POLICY))
    files = ("--certificate", str(folder / "tls.crt"), "--key", str(folder / "tls.key"))
    controller = site.controller(*files, "--policy", str(policy), "--stamp-port", str(port))
    controller.waited("stamp waits for its certificate")
    assert controller.got("/readyz") == (503, "stamp: it waits for its certificate\n")
    waited("a certificate that is trusted", site.trusted)
    assert [line["reason"] for line in controller.lines("stamp waits for its certificate")] == [
        f"{folder / 'tls.crt'} cannot be read: No such file or directory"
    ]
    synced(site, folder)  # as the kubelet does, later
    controller.waited("stamp served")
    waited("readiness", lambda: controller.got("/readyz")[0] == 200)
    plane.kubectl("wait", "serviceaccount/default", "-n", site.namespace, "--for=create", "--timeout=20s")
    canary = started(plane, "canary", site.namespace)

    def is_asked() -> bool:
        delete(plane, "pod", canary.name, "--dry-run=server", namespace=site.namespace)
        return bool(controller.lines("deletion reviewed", name=canary.name))

    waited("a call by the Service", is_asked)
    pod = started(plane, "forced", site.namespace)
    pod.is_held()
    before = failed_open(plane)
    delete(plane, "pod", pod.name, namespace=site.namespace)
    condition = pod.disruption()
    assert condition is not None
    assert condition["reason"] == REASON
    assert failed_open(plane) == before
    pod._patched("merge", {"metadata": {"finalizers": None}})
    for line in ("trace", "logger"):
        assert not [one for one in controller.lines() if one.get(line)]
