"""The kinds of what drainproof has in a cluster, in the order in which they are removed."""

from dataclasses import dataclass
from typing import Final

from webhook.controller.api import Thing
from webhook.controller.settings import Settings

_KEPT: Final = Settings()  # the names of what the controller makes
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
_CERT_MANAGER: Final = "/apis/cert-manager.io/v1"
_PROMETHEUS: Final = "/apis/monitoring.coreos.com/v1"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind. `names` are looked for beside what carries our label; `whole` where more than metadata is looked at."""

    prefix: str
    resource: str
    names: tuple[str, ...] = ()
    namespaced: bool = True
    whole: bool = False

    def place(self, namespace: str, name: str = "") -> Thing:
        """An object of this kind, or all of them that are looked at."""
        return Thing(self.prefix, self.resource, name, namespace if self.namespaced else "")


NAMESPACES: Final = Kind("/api/v1", "namespaces", namespaced=False)
CONFIGURATIONS: Final = tuple(
    Kind(_ADMISSION, resource, names, namespaced=False, whole=True)
    for resource, names in (
        ("mutatingwebhookconfigurations", _KEPT.mutating),
        ("validatingwebhookconfigurations", _KEPT.validating),
    )
)
DEPLOYMENTS: Final = Kind("/apis/apps/v1", "deployments")
BINDINGS: Final = Kind(_RBAC, "clusterrolebindings", namespaced=False, whole=True)
# Rights go first: what may still run of the controller can then make nothing again.
_RIGHTS: Final = (
    Kind(_RBAC, "rolebindings"),
    BINDINGS,
    Kind(_RBAC, "roles"),
    Kind(_RBAC, "clusterroles", namespaced=False),
)
_CERTIFICATES: Final = (Kind(_CERT_MANAGER, "certificates"), Kind(_CERT_MANAGER, "issuers"))  # before their Secrets
_MONITORS: Final = tuple(Kind(_PROMETHEUS, name) for name in ("servicemonitors", "podmonitors", "prometheusrules"))
_OTHERS: Final = (
    *_MONITORS,
    Kind("/apis/batch/v1", "jobs"),  # of a Helm hook that failed
    Kind("/apis/autoscaling/v2", "horizontalpodautoscalers"),
    Kind("/apis/policy/v1", "poddisruptionbudgets"),
    Kind("/api/v1", "services"),
    Kind("/apis/networking.k8s.io/v1", "networkpolicies"),
    Kind("/api/v1", "serviceaccounts"),
    Kind("/apis/scheduling.k8s.io/v1", "priorityclasses", namespaced=False),
)


def kept(secret: str = _KEPT.secret) -> tuple[Kind, ...]:
    """What the controller makes while it runs; `secret` is the name of the one with the serving certificate."""
    return (
        Kind("/api/v1", "secrets", (secret, _KEPT.ca_secret)),
        Kind("/apis/coordination.k8s.io/v1", "leases", (_KEPT.lease,)),
        Kind("/api/v1", "configmaps", (_KEPT.facts,)),
    )


def rest(secret: str = _KEPT.secret) -> tuple[Kind, ...]:
    """What goes after the configurations and the Deployments, but for the namespace."""
    return (*_RIGHTS, *_CERTIFICATES, *kept(secret), *_OTHERS)
