"""The completion guard in a real control plane: Pods are bound, evicted and reported on as a kubelet would do it."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import deployment, process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment
from tests.cluster.test_calls import FAILED_OPEN, NOT_EVALUATED, counted
from tests.tables import merged
from webhook.core.guard import REASON

NAMESPACE: Final = "guarded"
NODE: Final = "guarded-node"
SECONDS: Final = (
    60.0  # a new Pod comes after a back-off of 10 s (Kubernetes 1.37.2 pkg/controller/job backoff_utils.go)
)
MARK: Final = "drainproof.dev/completion-guard"
CONTRACT: Final = "drainproof.dev/exit-contract"
IGNORES: Final = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}
JOB: Final[dict[str, Any]] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": NAMESPACE},
    "spec": {
        "backoffLimit": 1,
        "template": {
            "metadata": {"annotations": {}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "worker", "image": "example.test/worker:1"}],
                "initContainers": [{"name": "mesh", "image": "example.test/mesh:1", "restartPolicy": "Always"}],
            },
        },
    },
}


def job(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"template": {"metadata": {"annotations": annotations or {}}}}
    made: dict[str, Any] = merged(JOB, {"metadata": {"name": name}, "spec": {**template, **spec}})
    return made


def until(holds: Callable[[], bool], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"it did not hold within {seconds:g} s"
        time.sleep(0.2)


@dataclass(frozen=True)
class Kubelet:
    """The only Pod of a Job, and what a kubelet does with it."""

    plane: ControlPlane
    job: str
    pod: str

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{NAMESPACE}/pods/{self.pod}"

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.get("pod", self.pod, "-n", NAMESPACE)["status"]
        return found

    def job_status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.plane.get("job", self.job, "-n", NAMESPACE)["status"]
        return found

    def runs(self) -> None:
        """The Pod is bound to our Node, and its containers run."""
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": self.pod}}
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": NODE}}
        self._post("binding", {**binding, **target})
        running = _container(state={"running": {"startedAt": "2026-01-01T00:00:00Z"}})
        self.reports({"phase": "Running", "containerStatuses": [running]})

    def is_evicted(self) -> None:
        """The Eviction API asks the Pod to go, as a drain does."""
        self._post("eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.pod}})
        assert self.plane.get("pod", self.pod, "-n", NAMESPACE)["metadata"]["deletionTimestamp"]

    def succeeds(self, word: str = "", **status: Any) -> None:
        """Its program ends with exit code 0, and a sidecar with 137, which does not count."""
        ended = {"exitCode": 0, "reason": "Completed", **({"message": word} if word else {})}
        sidecar = _container("mesh", state={"terminated": {"exitCode": 137, "reason": "Error"}})
        containers = [_container(state={"terminated": ended})]
        self.reports(
            {"phase": "Succeeded", "containerStatuses": containers, "initContainerStatuses": [sidecar], **status}
        )

    def reports(self, status: dict[str, Any]) -> None:
        words = ("patch", "pod", self.pod, "-n", NAMESPACE, "--subresource=status", "--type=strategic", "-p")
        self.plane.kubectl(*words, json.dumps({"status": status}))

    def goes(self) -> None:
        """The kubelet lets go of the Pod, so that only what the Job controller knows of it is left."""
        self.plane.kubectl("delete", "pod", self.pod, "-n", NAMESPACE, "--grace-period=0", "--force", "--wait=false")

    def _post(self, subresource: str, document: dict[str, Any]) -> None:
        self.plane.kubectl("create", "--raw", f"{self.path}/{subresource}", "-f", "-", input=json.dumps(document))


def _container(name: str = "worker", **status: Any) -> dict[str, Any]:
    """The status of a container, with what the API server asks for."""
    image = {"image": f"example.test/{name}:1", "imageID": "sha256:0"}
    return {"name": name, "ready": False, "restartCount": 0, **image, **status}


def pods(plane: ControlPlane, job: str) -> list[str]:
    found = plane.get("pods", "-n", NAMESPACE, "-l", f"batch.kubernetes.io/job-name={job}")["items"]
    return [str(pod["metadata"]["name"]) for pod in found]


def started(plane: ControlPlane, document: dict[str, Any]) -> Kubelet:
    """A Job whose Pod runs."""
    name = document["metadata"]["name"]
    plane.create(document)
    until(lambda: bool(pods(plane, name)))
    kubelet = Kubelet(plane, name, pods(plane, name)[0])
    kubelet.runs()
    return kubelet


def is_complete(kubelet: Kubelet) -> bool:
    conditions = kubelet.job_status().get("conditions", [])
    return any((one["type"], one["status"]) == ("Complete", "True") for one in conditions)


def calls(webhook: Deployment, pod: str = "") -> list[str]:
    """What came of each report that reached the guard, oldest first."""
    lines = [line for line in webhook.decided() if line["deed"] == "guard" and pod in ("", line["name"])]
    return [str(line["outcome"]) for line in lines]


@pytest.fixture(scope="module")
def trouble(control_plane: ControlPlane) -> tuple[float, float]:
    """How often a condition could not be evaluated, and a call failed, before there was our webhook."""
    return counted(control_plane, NOT_EVALUATED), counted(control_plane, FAILED_OPEN)


@pytest.fixture(scope="module")
def place(control_plane: ControlPlane) -> None:
    """A namespace for the Jobs, and a Node for their Pods: the Pod GC removes Pods of Nodes that are not there."""
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("wait", "serviceaccount/default", "-n", NAMESPACE, "--for=create", "--timeout=20s")
    control_plane.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})


@pytest.fixture(scope="module")
def webhook(
    trouble: tuple[float, float],  # noqa: ARG001 - counted before
    place: None,  # noqa: ARG001
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    with deployment.serving(tmp_path_factory.mktemp("webhook")) as webhook:
        documents = deployment.configurations(webhook)
        with deployment.registered(control_plane, documents, deployment.mends_and_judges):
            yield webhook


def test_a_drained_job_that_exits_0_goes_on(control_plane: ControlPlane, webhook: Deployment) -> None:
    kubelet = started(control_plane, job("goes-on"))
    kubelet.is_evicted()
    assert calls(webhook, kubelet.pod) == []
    kubelet.succeeds()
    for _ in range(2):
        status = kubelet.status()
        assert (status["phase"], status["reason"]) == ("Failed", REASON)
        assert status["message"] == (
            "It was stopped (EvictionByEvictionAPI) and exited 0, so its work may be unfinished and it counts as "
            'failed; a finished program writes completed to /dev/termination-log of container "worker" '
            "(completion-guard)"
        )
        kubelet.succeeds(reason=None)  # the kubelet's repeat over what is stored
    assert calls(webhook, kubelet.pod) == ["guarded"] * 3
    kubelet.goes()
    until(lambda: len(set(pods(control_plane, "goes-on")) - {kubelet.pod}) == 1)
    found = kubelet.job_status()
    assert not is_complete(kubelet)
    assert (found.get("failed", 0), found.get("succeeded", 0)) == (0, 0)
    second = Kubelet(control_plane, "goes-on", pods(control_plane, "goes-on")[-1])
    second.runs()
    second.succeeds()
    until(lambda: is_complete(second))
    assert calls(webhook, second.pod) == []
    assert second.job_status()["succeeded"] == 1


def test_a_pod_that_its_kubelet_stopped_counts_as_failed(control_plane: ControlPlane, webhook: Deployment) -> None:
    kubelet = started(control_plane, job("by-kubelet", {CONTRACT: "guard"}, podFailurePolicy=IGNORES))
    stopped = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    kubelet.succeeds(conditions=[stopped])
    assert kubelet.status()["reason"] == REASON
    assert calls(webhook, kubelet.pod) == ["guarded"]
    until(lambda: len(pods(control_plane, "by-kubelet")) == 2)
    assert kubelet.job_status().get("failed", 0) == 0


def test_an_index_that_was_stopped_runs_again(control_plane: ControlPlane, webhook: Deployment) -> None:
    kubelet = started(control_plane, job("indexed", completionMode="Indexed", completions=1, backoffLimitPerIndex=1))
    kubelet.is_evicted()
    kubelet.succeeds()
    assert calls(webhook, kubelet.pod) == ["guarded"]
    kubelet.goes()
    until(lambda: len(set(pods(control_plane, "indexed")) - {kubelet.pod}) == 1)
    assert kubelet.job_status().get("completedIndexes", "") == ""
    assert kubelet.job_status().get("failedIndexes", "") == ""


def test_a_program_that_says_completed_completes_its_job(control_plane: ControlPlane, webhook: Deployment) -> None:
    kubelet = started(control_plane, job("says-so"))
    kubelet.is_evicted()
    kubelet.succeeds("completed\n")
    assert kubelet.status()["phase"] == "Succeeded"
    assert calls(webhook, kubelet.pod) == ["left"]
    until(lambda: is_complete(kubelet))


@pytest.mark.parametrize(
    ("name", "annotations"),
    [
        ("switched-off", {MARK: "off"}),
        ("switched-off-and-declared", {MARK: "off", CONTRACT: "guard"}),
        ("trusted", {CONTRACT: "nonzero-when-stopped"}),
        ("trusted-and-marked", {CONTRACT: "nonzero-when-stopped", MARK: "on"}),
    ],
)
def test_a_pod_that_is_not_guarded_completes_its_job_without_a_call(
    name: str, annotations: dict[str, str], control_plane: ControlPlane, webhook: Deployment
) -> None:
    kubelet = started(control_plane, job(name, annotations))
    kubelet.is_evicted()
    kubelet.succeeds()
    assert kubelet.status()["phase"] == "Succeeded"
    assert calls(webhook, kubelet.pod) == []
    until(lambda: is_complete(kubelet))


def test_an_exempt_pod_completes_its_job(control_plane: ControlPlane, webhook: Deployment) -> None:
    kubelet = started(control_plane, job("exempt", {MARK: "on", "drainproof.dev/ignore": "started anew by hand"}))
    kubelet.is_evicted()
    kubelet.succeeds()
    assert kubelet.status()["phase"] == "Succeeded"
    assert calls(webhook, kubelet.pod) == ["left"]


def test_200_ordinary_reports_cause_no_call(control_plane: ControlPlane, webhook: Deployment) -> None:
    """Of a guarded Pod that runs, of one that ends undisturbed, and of one that is stopped and fails by itself."""
    before = calls(webhook)
    kubelets = [started(control_plane, job(f"ordinary-{number}")) for number in range(4)]
    for number in range(200 - 3 * len(kubelets)):
        ready = "True" if number % 2 else "False"
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": f"2026-01-01T00:{number % 60:02}:00Z"}
        kubelets[number % len(kubelets)].reports({"conditions": [condition]})
    for kubelet in kubelets:
        kubelet.reports({"message": "still there"})
    kubelets[0].succeeds()
    kubelets[1].reports({"phase": "Failed"})
    kubelets[2].is_evicted()
    kubelets[2].reports({"phase": "Failed", "containerStatuses": [_container(state={"terminated": {"exitCode": 143}})]})
    kubelets[3].is_evicted()
    kubelets[3].reports({"message": "on its way"})
    assert [kubelet.status()["phase"] for kubelet in kubelets] == ["Succeeded", "Failed", "Failed", "Running"]
    assert calls(webhook) == before


def test_no_condition_failed_to_be_evaluated_and_no_call_failed(
    trouble: tuple[float, float], control_plane: ControlPlane, webhook: Deployment
) -> None:
    """With failurePolicy Ignore either would show as nothing but silence. It looks back at what came before."""
    assert calls(webhook)
    assert (counted(control_plane, NOT_EVALUATED), counted(control_plane, FAILED_OPEN)) == trouble


@pytest.mark.usefixtures("webhook")
def test_a_status_that_is_cleared_or_half_written_is_no_error(
    trouble: tuple[float, float], control_plane: ControlPlane
) -> None:
    kubelet = started(control_plane, job("half-written"))
    words = ("patch", "pod", kubelet.pod, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p")
    for conditions in (None, [], [{"type": "DisruptionTarget"}]):
        control_plane.kubectl(*words, json.dumps({"status": {"phase": "Succeeded", "conditions": conditions}}))
    control_plane.kubectl(*words, json.dumps({"status": None}))
    assert counted(control_plane, NOT_EVALUATED) == trouble[0]


def test_with_the_webhook_down_a_report_is_stored_as_it_comes(control_plane: ControlPlane, webhook: Deployment) -> None:
    """The last test with this webhook: it ends it."""
    kubelet = started(control_plane, job("down", {MARK: "on"}))
    kubelet.is_evicted()
    before = counted(control_plane, FAILED_OPEN)
    process.stop(webhook.process)
    begun = time.monotonic()
    kubelet.succeeds()
    assert time.monotonic() - begun < 3
    assert kubelet.status()["phase"] == "Succeeded"
    assert counted(control_plane, FAILED_OPEN) == before + 1
    until(lambda: is_complete(kubelet))


def test_the_guard_in_mode_monitor_only_says_what_it_would_do(
    control_plane: ControlPlane,
    place: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"apiVersion": "drainproof.dev/v1", "kind": "Policy", "mode": "monitor"}))
    with deployment.serving(tmp_path, "--policy", str(policy)) as monitoring:
        documents = [
            merged(document, {"metadata": {"name": "drainproof-monitor"}})
            for document in deployment.configurations(monitoring)
        ]

        def is_called(plane: ControlPlane) -> bool:
            plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(job("monitor-canary")))
            return bool(monitoring.decided())

        with deployment.registered(control_plane, documents, is_called):
            kubelet = started(control_plane, job("monitored", {MARK: "on"}))
            kubelet.is_evicted()
            kubelet.succeeds()
            assert kubelet.status()["phase"] == "Succeeded"
            assert calls(monitoring, kubelet.pod) == ["would-guard"]
