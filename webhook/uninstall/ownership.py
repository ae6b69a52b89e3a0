"""What tells our objects from those of others, and by whom ours were installed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

LABEL: Final = "app.kubernetes.io/name"
NAME: Final = "drainproof"
SELECTOR: Final = f"{LABEL}={NAME}"
CONTROLLER: Final = f"{NAME}-controller"
CONTROLLERS: Final = f"{SELECTOR},app.kubernetes.io/component=controller"
_NAMES: Final = frozenset({NAME, CONTROLLER})  # of Services, ServiceAccounts and Deployments
# cert-manager 1.21 writes it on the Secrets that it makes, without the labels of the Certificate, and leaves them when
# that is gone (pkg/controller/certificates/issuing/internal/secret.go).
_CERTIFICATE: Final = "cert-manager.io/certificate-name"
_CERTIFICATES: Final = frozenset({NAME, f"{NAME}-ca"})


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Helm."""

    namespace: str
    name: str

    @property
    def uninstall(self) -> str:
        """The command that removes it."""
        return f"helm --namespace {self.namespace} uninstall {self.name}"


def stranger(resource: str, body: Mapping[str, Any]) -> str:
    """Why an object that has a name of ours is not ours; empty where it is."""
    if is_labelled(body):
        return ""
    if resource.endswith("webhookconfigurations") and not set(_called(body)):
        return f"it does not carry the label {SELECTOR}, and does not call our Service"
    if resource == "secrets" and _annotations(body).get(_CERTIFICATE) not in _CERTIFICATES:
        return f"it does not carry the label {SELECTOR}, so that neither the controller nor cert-manager made it for us"
    return ""


def namespaces(body: Mapping[str, Any]) -> set[str]:
    """The namespaces for which a webhook configuration or a binding of ours stands."""
    subjects = body.get("subjects") or []
    return {*_called(body), *(one.get("namespace", "") for one in subjects if one.get("name") in _NAMES)} - {""}


def release(body: Mapping[str, Any]) -> Release | None:
    """The release that an object belongs to.

    Helm 3 writes these annotations on all that a release holds (pkg/action/validate.go), though not on its hooks.
    """
    annotations = _annotations(body)
    name = annotations.get("meta.helm.sh/release-name")
    return Release(str(annotations.get("meta.helm.sh/release-namespace", NAME)), str(name)) if name else None


def is_labelled(body: Mapping[str, Any]) -> bool:
    """Whether an object carries our label."""
    return bool((_metadata(body).get("labels") or {}).get(LABEL) == NAME)


def _called(body: Mapping[str, Any]) -> Iterator[str]:
    """The namespaces in which a webhook configuration calls a Service with a name of ours."""
    for webhook in body.get("webhooks") or []:
        service = (webhook.get("clientConfig") or {}).get("service") or {}
        if service.get("name") in _NAMES:
            yield str(service.get("namespace", ""))


def _annotations(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return _metadata(body).get("annotations") or {}


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return body.get("metadata") or {}
