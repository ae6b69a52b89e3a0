"""For which deletions the API server asks the stamp: Karpenter's own, of a Pod of a Job that nothing has marked."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests import manifests
from tests.cluster import deployment, jobpods, responder
from tests.cluster.controlplane import ControlPlane
from tests.cluster.jobpods import condition, pod
from tests.cluster.responder import Responder
from tests.cluster.test_calls import FAILED_OPEN, NOT_EVALUATED, REQUESTS, counted, listed

NAMESPACE: Final = "stamped"
OPTED_OUT: Final = "stamped-not"
KIND: Final = "ValidatingWebhookConfiguration"
KARPENTER: Final = "system:serviceaccount:kube-system:karpenter"
OTHERS: Final = (
    "system:serviceaccount:kube-system:job-controller",
    "system:serviceaccount:kube-system:karpenter-core",
    "system:node:karpenter",
    "karpenter",
)


def configuration(folder: Path, endpoint: deployment.Endpoint) -> dict[str, Any]:
    """The webhook that the component adds, as it is rendered, called at an address of this machine."""
    found = manifests.objects(manifests.composed(folder, "disruption-stamp"))[KIND, "drainproof"]
    (webhook,) = (one for one in found["webhooks"] if one["clientConfig"]["service"]["path"] == "/stamp")
    webhook["clientConfig"] = endpoint.client_config("/stamp")
    return {**found, "webhooks": [webhook]}


def delete(plane: ControlPlane, *words: str, user: str = KARPENTER, namespace: str = NAMESPACE, **more: Any) -> None:
    """Deletes Pods as somebody who may do anything; without waiting for their end."""
    given = ("-n", namespace, "--wait=false", f"--as={user}", "--as-group=system:masters")
    plane.kubectl("delete", *words, *given, timeout=120, **more)


def reported(plane: ControlPlane, name: str, namespace: str = NAMESPACE, **status: Any) -> None:
    """Writes the status of a Pod as its kubelet does."""
    words = ("patch", "pod", name, "-n", namespace, "--subresource=status", "--type=merge", "-p")
    plane.kubectl(*words, json.dumps({"status": status}))


@pytest.fixture(scope="module")
def owner(control_plane: ControlPlane) -> dict[str, Any]:
    jobpods.namespace(control_plane, NAMESPACE)
    jobpods.namespace(control_plane, OPTED_OUT, **{"drainproof.dev/inject": "disabled"})
    return jobpods.owner(control_plane, NAMESPACE)


@pytest.fixture(scope="module")
def trouble(control_plane: ControlPlane) -> tuple[float, float]:
    """How often a condition could not be evaluated, and a call failed, before there was the stamp."""
    return counted(control_plane, NOT_EVALUATED), counted(control_plane, FAILED_OPEN)


@pytest.fixture(scope="module")
def stamp(
    trouble: tuple[float, float],  # noqa: ARG001 - counted before
    control_plane: ControlPlane,
    owner: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Responder]:
    """Somebody who answers in the place of the stamp."""
    folder = tmp_path_factory.mktemp("stamp")
    control_plane.create(pod(NAMESPACE, "canary", owner))

    def asked(plane: ControlPlane) -> bool:
        delete(plane, "pod", "canary", "--dry-run=server")
        return bool(there.heard)

    with responder.responding(folder) as there:
        documents = [configuration(folder, there.endpoint)]
        with deployment.registered(control_plane, documents, asked):
            there.heard.clear()
            yield there


def test_a_running_pod_of_a_job_that_karpenter_deletes_is_asked_about_each_time(
    control_plane: ControlPlane, stamp: Responder, owner: dict[str, Any]
) -> None:
    control_plane.create(pod(NAMESPACE, "forced", owner, bound=True))
    reported(control_plane, "forced", phase="Running")
    delete(control_plane, "pod", "forced", "--grace-period=29")
    (asked,) = stamp.heard
    assert (asked["operation"], asked["name"], asked["namespace"]) == ("DELETE", "forced", NAMESPACE)
    assert (asked["resource"]["resource"], asked.get("subResource", "")) == ("pods", "")
    assert (asked["object"], asked["dryRun"]) == (None, False)
    assert asked["oldObject"]["metadata"]["ownerReferences"] == [owner]
    assert asked["oldObject"]["status"]["phase"] == "Running"
    assert asked["userInfo"]["username"] == KARPENTER
    assert asked["options"]["gracePeriodSeconds"] == 29
    # Nobody has marked it: where that failed, the next try is asked about again. Its kubelet is not, when it is over.
    delete(control_plane, "pod", "forced", "--grace-period=10", user="system:serviceaccount:karpenter:karpenter")
    assert stamp.names() == ["forced"] * 2
    delete(control_plane, "pod", "forced", "--grace-period=0", "--force", user=f"system:node:{NAMESPACE}")
    assert stamp.names() == ["forced"] * 2


def test_a_pod_that_has_not_begun_and_one_that_is_disrupted_no_more_are_asked_about(
    control_plane: ControlPlane, stamp: Responder, owner: dict[str, Any]
) -> None:
    control_plane.create(pod(NAMESPACE, "pending", owner))
    control_plane.create(pod(NAMESPACE, "reset", owner))
    reported(control_plane, "reset", conditions=[condition("EvictionByEvictionAPI", "False")])
    stamp.heard.clear()
    delete(control_plane, "pod", "pending", "reset")
    # On no node they go at once, and each step of that asks: a stamp is not the only one of its deletion.
    assert set(stamp.names()) == {"pending", "reset"}


def test_a_dry_run_is_asked_about_as_one(control_plane: ControlPlane, stamp: Responder) -> None:
    stamp.heard.clear()
    delete(control_plane, "pod", "canary", "--dry-run=server")
    assert {(one["name"], one["dryRun"], *one["options"]["dryRun"]) for one in stamp.heard} == {("canary", True, "All")}


@pytest.mark.parametrize("user", OTHERS)
def test_nobody_else_is_asked_about(
    control_plane: ControlPlane, stamp: Responder, owner: dict[str, Any], user: str
) -> None:
    name = user.rpartition(":")[2]
    control_plane.create(pod(NAMESPACE, name, owner))
    stamp.heard.clear()
    delete(control_plane, "pod", name, user=user)
    assert stamp.heard == []


STATUSES: Final = ("succeeded", "failed", "marked")
OWNERS: Final[dict[str, list[dict[str, Any]]]] = {
    "bare": [],
    "of-a-workflow": [{"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}],
    "of-another-job": [{"apiVersion": "example.test/v1", "kind": "Job"}],
    "not-controlled": [{"controller": None}],
}


def status(name: str) -> dict[str, Any]:
    """The status of a Pod that is over, or marked."""
    if name == "marked":
        return {"phase": "Running", "conditions": [condition("EvictionByEvictionAPI")]}
    return {"phase": name.capitalize()}


@pytest.mark.parametrize("name", [*STATUSES, *OWNERS])
def test_what_has_nothing_to_gain_is_not_asked_about(
    control_plane: ControlPlane, stamp: Responder, owner: dict[str, Any], name: str
) -> None:
    control_plane.create(pod(NAMESPACE, name, *({**owner, **one} for one in OWNERS.get(name, [{}]))))
    if name in STATUSES:
        reported(control_plane, name, **status(name))
    stamp.heard.clear()
    delete(control_plane, "pod", name)
    assert stamp.heard == []


@pytest.mark.parametrize("namespace", ["kube-system", OPTED_OUT])
def test_a_namespace_that_is_left_out_is_left_out_here_too(
    control_plane: ControlPlane, stamp: Responder, namespace: str
) -> None:
    control_plane.kubectl("wait", "serviceaccount/default", "-n", namespace, "--for=create", "--timeout=20s")
    control_plane.create(pod(namespace, "elsewhere", jobpods.owner(control_plane, namespace, "elsewhere")))
    stamp.heard.clear()
    delete(control_plane, "pod", "elsewhere", namespace=namespace)
    delete(control_plane, "job", "elsewhere", namespace=namespace)
    assert stamp.heard == []


def test_an_eviction_by_karpenter_is_no_deletion(
    control_plane: ControlPlane, stamp: Responder, owner: dict[str, Any]
) -> None:
    control_plane.create(pod(NAMESPACE, "evicted", owner, bound=True))
    stamp.heard.clear()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/evicted/eviction"
    impersonating = (f"--as={KARPENTER}", "--as-group=system:masters")
    control_plane.kubectl("create", "--raw", path, "-f", "-", *impersonating, input=json.dumps(eviction))
    found = control_plane.get("pod", "evicted", "-n", NAMESPACE)
    assert found["metadata"]["deletionTimestamp"]
    assert [one["reason"] for one in found["status"]["conditions"] if one["type"] == "DisruptionTarget"]
    delete(
        control_plane, "pod", "evicted", "--grace-period=1"
    )  # Karpenter's, when the time is over: it is marked already
    assert stamp.heard == []
    delete(control_plane, "pod", "evicted", "--grace-period=0", "--force", user=f"system:node:{NAMESPACE}")


def test_500_other_deletions_and_reports_cause_no_call(
    control_plane: ControlPlane, stamp: Responder, owner: dict[str, Any]
) -> None:
    """By a person, by the garbage collector, and by Karpenter of Pods that are of no Job, are over, or are marked."""
    collected = jobpods.owner(control_plane, NAMESPACE, "collected")
    made = {
        "person": [pod(NAMESPACE, f"person-{number}", owner) for number in range(250)],
        "collector": [pod(NAMESPACE, f"collector-{number}", collected) for number in range(100)],
        "bare": [pod(NAMESPACE, f"bare-{number}") for number in range(50)],
        **{name: [pod(NAMESPACE, f"{name}-{number}", owner) for number in range(34)] for name in STATUSES},
    }
    total = sum(map(len, made.values()))
    assert total >= 500
    stamp.heard.clear()
    before = counted(control_plane, REQUESTS)
    for pods in made.values():
        control_plane.kubectl("create", "-f", "-", input=listed(pods), timeout=120)
    delete(control_plane, "job", "collected", "--cascade=background")
    delete(control_plane, "-f", "-", user="somebody", input=listed(made["person"]))
    delete(control_plane, "-f", "-", input=listed(made["bare"]))
    for name in STATUSES:
        words = ("patch", "-f", "-", "--subresource=status", "--type=merge", "-p", json.dumps({"status": status(name)}))
        control_plane.kubectl(*words, input=listed(made[name]), timeout=120)
        delete(control_plane, "-f", "-", input=listed(made[name]))
    control_plane.kubectl("wait", "--for=delete", "-f", "-", "--timeout=60s", input=listed(made["collector"]))
    left = {one["metadata"]["name"].rpartition("-")[0] for one in control_plane.get("pods", "-n", NAMESPACE)["items"]}
    assert not left & set(made)
    assert stamp.heard == []
    assert counted(control_plane, REQUESTS) == before


def test_no_condition_failed_to_be_evaluated_and_no_call_failed(
    trouble: tuple[float, float], control_plane: ControlPlane, stamp: Responder
) -> None:
    """With failurePolicy Ignore either would show as nothing but silence. It looks back at what came before."""
    assert (counted(control_plane, NOT_EVALUATED), counted(control_plane, FAILED_OPEN)) == trouble
    delete(control_plane, "pod", "canary")
    assert set(stamp.names()) == {"canary"}
