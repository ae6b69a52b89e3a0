"""Pods of a Job that no controller runs, so that a test alone decides what becomes of them."""

from datetime import UTC, datetime
from typing import Any, Final

from tests.cluster.controlplane import ControlPlane
from webhook.core.guard import MARK, ON

# Kubernetes leaves it to a controller of this name (1.37.2 pkg/controller/job/job_controller.go).
MANAGED_BY: Final = "example.test/nobody"
CONTAINERS: Final = {"restartPolicy": "Never", "containers": [{"name": "worker", "image": "example.test/worker:1"}]}


def namespace(plane: ControlPlane, name: str, **labels: str) -> None:
    """Makes a namespace in which Pods are accepted, and a Node of its name, without which bound Pods are collected."""
    metadata = {"name": name, "labels": labels}
    plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    plane.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    plane.kubectl("wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=20s")


def owner(plane: ControlPlane, namespace: str, name: str = "owner") -> dict[str, Any]:
    """Makes the Job; the reference that its Pods have to it."""
    metadata = {"name": name, "namespace": namespace}
    spec = {"managedBy": MANAGED_BY, "template": {"spec": CONTAINERS}}
    made = plane.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"], "controller": True}


def pod(namespace: str, name: str, *owners: dict[str, Any], bound: bool = False) -> dict[str, Any]:
    """A guarded Pod with these owners; one that is bound to a Node does not go before its time."""
    spec = {**CONTAINERS, **({"nodeName": namespace} if bound else {})}
    metadata = {"name": name, "namespace": namespace, "annotations": {MARK: ON}, "ownerReferences": [*owners]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def condition(reason: str, status: str = "True") -> dict[str, str]:
    """The condition of a Pod that is disrupted, as of now: an old one is reset where the Pod does not go."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "DisruptionTarget", "status": status, "reason": reason, "lastTransitionTime": now}
