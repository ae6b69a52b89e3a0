"""Our webhook in one namespace of a ring, with a policy of its own."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cluster import deployment
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment
from tests.tables import merged


@contextmanager
def working(plane: ControlPlane, directory: Path, namespace: str, policy: Mapping[str, Any]) -> Iterator[Deployment]:
    """Our webhook at work on the objects of a namespace, which is there already, until leaving.

    `policy` is a policy document without its head. Raises ProcessError.
    """
    written = directory / "policy.yaml"
    written.write_text(json.dumps({"apiVersion": "drainproof.dev/v1", "kind": "Policy", **policy}), encoding="utf-8")
    canary = json.dumps(merged(deployment.CANARY, {"metadata": {"namespace": namespace}}))

    def in_force(plane: ControlPlane) -> bool:
        done = plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=canary, check=False)
        return "podFailurePolicy" in done.stdout and "do-not-disrupt" in done.stderr

    with deployment.serving(directory, f"--policy={written}") as serving:
        ours = [_only_in(namespace, document) for document in deployment.configurations(serving)]
        with deployment.registered(plane, ours, in_force):
            yield serving


def _only_in(namespace: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """A webhook configuration that holds in one namespace only."""
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [namespace]}
    narrowed = []
    for webhook in configuration["webhooks"]:
        selector = webhook.get("namespaceSelector") or {}
        expressions = [*selector.get("matchExpressions", ()), expression]
        narrowed.append({**webhook, "namespaceSelector": {**selector, "matchExpressions": expressions}})
    return {**configuration, "webhooks": narrowed}
