"""Who Karpenter, KWOK and the scheduler are to the API server, and what each of them may do."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests.cluster.controlplane import ControlPlane

NAMESPACE: Final = "kube-system"
KARPENTER: Final = "karpenter"
KWOK: Final = "kwok-controller"  # as in KWOK's own manifests
SECONDS: Final = 24 * 3600  # of a token
READ: Final = ("get", "list", "watch")
# As the chart of the simulated cloud grants it, Karpenter v1.15.0 kwok/charts/templates/clusterrole.yaml and
# clusterrole-kwok.yaml; v1.11.2 asks for a part of it.
RIGHTS: Final[Mapping[str, tuple[tuple[str, str, tuple[str, ...]], ...]]] = {
    "karpenter.sh": (
        ("nodepools nodeclaims nodeoverlays", "/status", READ),
        ("nodeclaims", "/status /finalizers", ("create", "delete", "update", "patch")),
        ("nodepools", "/status /finalizers", ("update", "patch")),
        ("nodeoverlays/status", "", ("update", "patch")),
    ),
    "karpenter.kwok.sh": (("kwoknodeclasses", "/status", (*READ, "update", "patch")),),
    "autoscaling.x-k8s.io": (("capacitybuffers", "/status", (*READ, "update", "patch")),),
    "": (
        ("pods nodes persistentvolumes persistentvolumeclaims", "", READ),
        ("replicationcontrollers namespaces podtemplates services", "", READ),
        ("events", "", ("create", "patch")),
        ("nodes", "", ("create", "patch", "delete", "update")),
        ("nodes/status", "", ("patch",)),
        ("pods/eviction", "", ("create",)),
        ("pods", "", ("delete", "patch", "update")),
    ),
    "events.k8s.io": (("events", "", ("create", "patch")),),
    "storage.k8s.io": (("storageclasses csinodes volumeattachments", "", READ),),
    "apps": (("daemonsets deployments replicasets statefulsets", "", READ),),
    "autoscaling.k8s.io": (("verticalpodautoscalers", "", READ),),
    "apiextensions.k8s.io": (("customresourcedefinitions", "", ("list", "watch")),),
    "policy": (("poddisruptionbudgets", "", READ),),
    # The chart grants it in the namespace of the nodes' leases only.
    "coordination.k8s.io": (("leases", "", (*READ, "delete")),),
}


def documents(rights: Path) -> list[dict[str, Any]]:
    """Accounts, roles and bindings of Karpenter and KWOK; `rights` is the folder with KWOK's role."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    made = [{**role, "metadata": {"name": KARPENTER}, "rules": list(_rules())}]
    yaml = YAML(typ="safe", pure=True)
    made += [document for file in sorted(rights.glob("*.yaml")) for document in yaml.load_all(file)]
    for name in (KARPENTER, KWOK):
        made += [*_account(name)]
    return made


def _rules() -> Iterator[dict[str, Any]]:
    for group, rights in RIGHTS.items():
        for resources, parts, verbs in rights:
            named = [f"{resource}{part}" for resource in resources.split() for part in ("", *parts.split())]
            yield {"apiGroups": [group], "resources": named, "verbs": list(verbs)}


def _account(name: str) -> Iterator[dict[str, Any]]:
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
    yield {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }


def with_token(plane: ControlPlane, name: str, path: Path) -> None:
    """Write a kubeconfig of ServiceAccount kube-system/`name`, with a token of its."""
    token = plane.kubectl("create", "token", name, "-n", NAMESPACE, f"--duration={SECONDS}s").stdout.strip()
    _write(path, {"server": plane.server, "certificate-authority": str(plane.ca)}, {"token": token})


def acting_as(plane: ControlPlane, user: str, path: Path) -> None:
    """Write a kubeconfig of the administrator, who acts as `user`."""
    given = json.loads(plane.kubeconfig.read_text(encoding="utf-8"))
    _write(path, given["clusters"][0]["cluster"], {**given["users"][0]["user"], "as": user})


def _write(path: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "ring",
        "clusters": [{"name": "ring", "cluster": cluster}],
        "users": [{"name": "ring", "user": user}],
        "contexts": [{"name": "ring", "context": {"cluster": "ring", "user": "ring"}}],
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(document), encoding="utf-8")
