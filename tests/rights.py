"""What the controller's account may do, right by right, and what it may not; asked of an API server."""

import json
from collections.abc import Iterable
from typing import Any, Final

from tests.cluster.controlplane import ControlPlane

# A right is a verb and what it is for: resource.group/subresource:name.
Right = tuple[str, str]

NAMESPACE: Final = "drainproof"
ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:drainproof-controller"
CONFIGURATIONS: Final = tuple(
    f"{kind}webhookconfigurations.admissionregistration.k8s.io" for kind in ("mutating", "validating")
)
LEASES: Final = "leases.coordination.k8s.io"
SLICES: Final = "endpointslices.discovery.k8s.io"
EVERYWHERE: Final[list[Right]] = [
    ("list", "pods"),
    ("watch", "pods"),
    ("get", "jobs.batch"),
    ("create", "events"),
    ("list", "nodepools.karpenter.sh"),
    ("get", "deployments.apps:karpenter"),
]
CONFIGURING: Final[list[Right]] = [(verb, f"{kind}:drainproof") for verb in ("get", "patch") for kind in CONFIGURATIONS]
CERTIFICATES: Final[list[Right]] = [
    *((verb, f"secrets:{name}") for verb in ("get", "create", "patch") for name in ("drainproof-tls", "drainproof-ca")),
    ("list", SLICES),
    *CONFIGURING,
]
MAY: Final[list[Right]] = [
    *EVERYWHERE,
    *CERTIFICATES,
    *((verb, f"{LEASES}:drainproof-controller") for verb in ("get", "create", "update")),
    *((verb, "configmaps:drainproof-facts") for verb in ("get", "create", "patch")),
]
STAMP: Final[list[Right]] = [("patch", "pods/status")]
MAY_NOT: Final[list[Right]] = [
    *((verb, "secrets") for verb in ("get", "list", "watch", "create", "patch", "update", "delete")),
    *((verb, "secrets:drainproof-tls") for verb in ("list", "watch", "update", "delete")),
    *((verb, "secrets:another") for verb in ("get", "create", "patch")),
    *((verb, LEASES) for verb in ("get", "list", "create", "update", "delete")),
    *((verb, f"{LEASES}:drainproof-controller") for verb in ("patch", "delete")),
    *((verb, SLICES) for verb in ("get", "watch", "create", "update", "patch", "delete")),
    *((verb, kind) for verb in ("list", "create", "patch", "update", "delete") for kind in CONFIGURATIONS),
    *((verb, f"{kind}:drainproof") for verb in ("update", "delete") for kind in CONFIGURATIONS),
    *((verb, f"{kind}:another") for verb in ("get", "patch") for kind in CONFIGURATIONS),
    *((verb, "configmaps") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "configmaps:drainproof-facts") for verb in ("update", "delete")),
    *((verb, "configmaps:drainproof-policy") for verb in ("get", "patch", "update")),
    *((verb, "pods") for verb in ("get", "create", "patch", "update", "delete", "deletecollection")),
    *((verb, "pods/status") for verb in ("get", "update")),
    *(("create", f"pods/{subresource}") for subresource in ("exec", "attach", "eviction", "binding")),
    ("get", "pods/log"),
    *((verb, "jobs.batch") for verb in ("list", "watch", "create", "patch", "update", "delete")),
    ("patch", "jobs.batch/status"),
    *((verb, "events") for verb in ("get", "list", "patch", "update", "delete")),
    *((verb, "nodepools.karpenter.sh") for verb in ("get", "watch", "create", "patch", "update", "delete")),
    *((verb, "nodeclaims.karpenter.sh") for verb in ("get", "list", "delete")),
    *((verb, "deployments.apps") for verb in ("get", "list", "watch", "patch")),
    *((verb, "deployments.apps:karpenter") for verb in ("patch", "update", "delete")),
    *((verb, "nodes") for verb in ("get", "list", "patch", "delete")),
    *(
        (verb, f"{kind}.rbac.authorization.k8s.io")
        for verb in ("create", "bind", "escalate")
        for kind in ("clusterroles", "roles")
    ),
    ("create", "serviceaccounts/token"),
    ("impersonate", "users"),
]


def allowed(plane: ControlPlane, asked: Iterable[Right], namespace: str = NAMESPACE) -> set[Right]:
    """Those of the rights that the controller's account has in a namespace.

    It is what `kubectl auth can-i` asks, but for resources too that the API server does not serve, such as Karpenter's.
    """
    rights = list(asked)
    reviews = {"apiVersion": "v1", "kind": "List", "items": [_review(right, namespace) for right in rights]}
    words = ("create", "-f", "-", "-o", 'jsonpath={.status.allowed}{"\\n"}')
    told = plane.kubectl(*words, input=json.dumps(reviews)).stdout.split()
    return {right for right, answer in zip(rights, told, strict=True) if answer == "true"}


def _review(right: Right, namespace: str) -> dict[str, Any]:
    verb, (what, _, name) = right[0], right[1].partition(":")
    whole, _, subresource = what.partition("/")
    resource, _, group = whole.partition(".")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
    spec = {"user": ACCOUNT, "resourceAttributes": {**attributes, "namespace": namespace}}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
