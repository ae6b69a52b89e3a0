"""Finds out about the cluster what a policy that says `auto` goes by, and keeps it in the ConfigMap of the webhook.

What cannot be read leaves what was known of it: a wrong answer for a while would take protection away.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.metrics import Complaints, Metrics
from webhook.controller.secret import LABELS
from webhook.controller.settings import Settings
from webhook.core import karpenter
from webhook.core.karpenter import Known, Version
from webhook.observe import said

NAME: Final = "discovery"
KEY: Final = "facts.json"
MANAGER: Final = "drainproof-controller"
NODE_POOLS: Final = Thing("/apis/karpenter.sh/v1", "nodepools")


@dataclass(slots=True)
class Discovery:
    """Looks at Karpenter's Deployments and its NodePools, and writes down what has changed."""

    api: Api
    place: Thing
    deployments: tuple[Thing, ...]
    leads: Callable[[], bool]
    metrics: Metrics
    complaints: Complaints
    _known: Known | None = None
    _versions: tuple[Version, ...] = ()

    def forget(self) -> None:
        """Forgets what was found, for another replica leads now; what that finds is in the ConfigMap."""
        self._known = None

    def once(self) -> bool:
        """One look. Raises the last ApiError once everything has been looked at, and what could be read is written."""
        failed: list[ApiError] = []
        stored = self.api.get(self.place)
        text = ((stored or {}).get("data") or {}).get(KEY)
        before = self._known or _read(text) or Known()
        self._write(text, Known(self._version(before, failed), self._limits(before, failed)))
        self.complaints.raise_last(NAME, failed)
        return False

    def _version(self, before: Known, failed: list[ApiError]) -> Version | None:
        """The lowest version that is found; where a Deployment cannot be read, the one known before counts as well."""
        versions: set[Version] = set()
        for thing in self.deployments:
            try:
                found = karpenter.version(self.api.get(thing))
            except ApiError as error:
                failed.append(error)
                found = before.version
            versions |= {found} if found else set()
        if not failed:
            self.metrics.facts.labels("karpenter").set(time.time())
        ordered = tuple(sorted(versions))
        if len(ordered) > 1 and ordered != self._versions:
            texts = [karpenter.written(one) for one in ordered]
            said("several versions of Karpenter", logging.WARNING, versions=texts, counts=texts[0])
        self._versions = ordered
        return ordered[0] if ordered else None

    def _limits(self, before: Known, failed: list[ApiError]) -> Mapping[str, Any]:
        try:
            pools = [one for _, page in self.api.pages(NODE_POOLS) for one in page]
        except ApiError as error:
            if error.status != 404:
                failed.append(error)
                return before.limits
            pools = []  # no Karpenter has ever been here, or its CRDs are gone
        limits = karpenter.limits(pools)
        self.metrics.facts.labels("nodepools").set(time.time())
        self.metrics.node_pools.labels("set").set(len(limits))
        self.metrics.node_pools.labels("none").set(len(pools) - len(limits))
        return limits

    def _write(self, stored: Any, found: Known) -> None:
        """Puts the document into the ConfigMap, unless it is there."""
        text = json.dumps(found.document, indent=2) + "\n"
        if stored != text and self.leads():
            metadata = {"name": self.place.name, "namespace": self.place.namespace, "labels": LABELS}
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}
            self.api.apply(self.place, document, MANAGER)
            is_new = found != (self._known or _read(stored))
            said(
                "facts changed" if is_new else "facts put back",
                logging.INFO if is_new else logging.WARNING,
                config_map=str(self.place),
                karpenter=karpenter.written(found.version) if found.version else None,
                nodepools=len(found.limits),
            )
        self._known = found


def discovery(
    settings: Settings, api: Api, leads: Callable[[], bool], metrics: Metrics, complaints: Complaints
) -> Discovery:
    """Discovery as the settings want it."""
    place = config_map(settings.namespace, settings.facts)
    return Discovery(api, place, deployments(settings.karpenter), leads, metrics, complaints)


def config_map(namespace: str, name: str) -> Thing:
    """A ConfigMap's place in the API."""
    return Thing("/api/v1", "configmaps", name, namespace)


def deployments(names: Iterable[str]) -> tuple[Thing, ...]:
    """The places of Deployments that are given as namespace/name."""
    parts = (name.partition("/") for name in names)
    return tuple(Thing("/apis/apps/v1", "deployments", name, namespace) for namespace, _, name in parts)


def _read(text: Any) -> Known | None:
    try:
        return karpenter.known(json.loads(text)) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
