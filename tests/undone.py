"""Pods of Jobs, and Jobs, as an API server stores them, for tests of what is found undone."""

from typing import Any

from tests.tables import merged
from webhook.core.undone import TRACKED

Json = dict[str, Any]
EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
BY_KUBELET = {**EVICTED, "reason": "TerminationByKubelet"}


def pod(name: str = "p", job: str = "j", namespace: str = "n", **change: Any) -> Json:
    """A Pod of a Job that runs; `change` is a JSON Merge Patch."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": f"uid-{job}", "controller": True}
    labels = {"batch.kubernetes.io/job-name": job, "batch.kubernetes.io/controller-uid": f"uid-{job}"}
    base = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": labels,
            "finalizers": [TRACKED],
            "ownerReferences": [owner],
        },
        "spec": {"containers": [{"name": "worker", "image": "example.test/worker:1"}]},
        "status": {"phase": "Running"},
    }
    found: Json = merged(base, change)
    return found


def stopping(name: str = "p", job: str = "j", **change: Any) -> Json:
    """The Pod once it was evicted."""
    going = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": [EVICTED]}}
    found: Json = merged(merged(pod(name, job), going), change)
    return found


def undone(name: str = "p", job: str = "j", **change: Any) -> Json:
    """The Pod once it was evicted and has exited 0."""
    ended = {"name": "worker", "state": {"terminated": {"exitCode": 0}}}
    found: Json = merged(
        merged(stopping(name, job), {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}), change
    )
    return found


def job(name: str = "j", succeeded: int = 0, **change: Any) -> Json:
    """A Job that counts so many successes."""
    base = {
        "metadata": {"name": name, "namespace": "n", "uid": f"uid-{name}"},
        "spec": {"podReplacementPolicy": "Failed", "completionMode": "NonIndexed"},
        "status": {"succeeded": succeeded},
    }
    found: Json = merged(base, change)
    return found


def path(thing: Json, resource: str = "pods") -> str:
    """Where an object is in the API."""
    prefix = "/apis/batch/v1" if resource == "jobs" else "/api/v1"
    return f"{prefix}/namespaces/{thing['metadata']['namespace']}/{resource}/{thing['metadata']['name']}"
