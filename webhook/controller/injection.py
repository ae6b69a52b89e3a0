"""Keeps our CAs in the caBundle of our webhooks, and touches nothing else."""

import base64
import binascii
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.x509 import Certificate

from webhook.certificate import pem
from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.metrics import Complaints, Metrics
from webhook.controller.secret import readable
from webhook.observe import said

NAME: Final = "injection"
_PREFIX: Final = "/apis/admissionregistration.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Service:
    """A Service that webhooks of ours are called by."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One webhook of a configuration: where it stands in the list, its name, and its caBundle as bytes."""

    index: int
    name: str
    bundle: bytes


@dataclass(frozen=True, slots=True)
class Injection:
    """Fills caBundle where it is not what it should be."""

    api: Api
    configurations: tuple[Thing, ...]
    services: tuple[Service, ...]
    trusted: Callable[[tuple[Certificate, ...]], tuple[Certificate, ...]]
    leads: Callable[[], bool]
    metrics: Metrics
    complaints: Complaints

    def once(self) -> bool:
        """Looks at every configuration; one that cannot be read or changed does not keep it from the others.

        Raises the last ApiError once all have been looked at.
        """
        failed: list[ApiError] = []
        for thing in self.configurations:
            try:
                self.reconcile(thing)
            except ApiError as error:
                self.metrics.injections.labels(thing.resource, "failed").inc()
                failed.append(error)
        self.complaints.raise_last(NAME, failed)
        return False

    def reconcile(self, thing: Thing) -> None:
        """Puts our CAs into the entries of one configuration that lack them. Raises ApiError.

        The configuration is read first: had newer CAs been published since, the resource version would not fit.
        """
        found = self.api.get(thing)
        ours = list(entries(found or {}, self.services))
        trusted = self.trusted(readable(entry.bundle for entry in ours)) if ours else ()
        bundle = pem(trusted)
        wrong = [entry for entry in ours if entry.bundle != bundle]
        if found is None or not trusted or not wrong or not self.leads():
            return
        self.api.patch(thing, steps(found, wrong, bundle))
        self.metrics.injections.labels(thing.resource, "done").inc()
        said(
            "caBundle set",
            logging.WARNING if any(not entry.bundle for entry in wrong) else logging.INFO,
            resource=thing.resource,
            name=thing.name,
            webhooks=[entry.name for entry in wrong],
            reason="it was empty" if all(not entry.bundle for entry in wrong) else "it was another one",
            certificates=len(trusted),
        )


def configurations(mutating: Iterable[str], validating: Iterable[str]) -> tuple[Thing, ...]:
    """The places of webhook configurations in the API."""
    return (
        *(Thing(_PREFIX, "mutatingwebhookconfigurations", name) for name in mutating),
        *(Thing(_PREFIX, "validatingwebhookconfigurations", name) for name in validating),
    )


def entries(configuration: Mapping[str, Any], services: Iterable[Service]) -> Iterator[Entry]:
    """The webhooks of a configuration that are called by our Services; those of others, or by URL, are not ours."""
    ours = {(one.namespace, one.name) for one in services}
    for index, webhook in enumerate(configuration.get("webhooks") or []):
        client = webhook.get("clientConfig") or {}
        called = client.get("service") or {}
        if (called.get("namespace"), called.get("name")) in ours:
            yield Entry(index, str(webhook.get("name")), _decoded(client.get("caBundle")))


def steps(configuration: Mapping[str, Any], wrong: Iterable[Entry], bundle: bytes) -> list[dict[str, Any]]:
    """The patch that sets `bundle`. It fails with 409 where the configuration has changed since it was read."""
    text = base64.b64encode(bundle).decode()
    version = {
        "op": "replace",
        "path": "/metadata/resourceVersion",
        "value": configuration["metadata"]["resourceVersion"],
    }
    paths = (f"/webhooks/{entry.index}/clientConfig/caBundle" for entry in wrong)
    return [version, *({"op": "add", "path": path, "value": text} for path in paths)]


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text or "")
    except (binascii.Error, ValueError, TypeError):
        return b"?"
