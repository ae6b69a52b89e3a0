"""Which replica of the controller leads: the one that holds a Lease.

The client library has an election too (kubernetes 37, kubernetes/leaderelection): it can neither be stopped nor give
the Lease up, and goes by the wall clock.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Any, Final

from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.metrics import Complaints
from webhook.observe import said

_MICRO_TIME: Final = "%Y-%m-%dT%H:%M:%S.%fZ"


@dataclass(slots=True)
class Lease:
    """A Lease, held or striven for.

    As in client-go (tools/leaderelection), no time of another machine is believed: the holder leads for two thirds of
    `seconds` after it last asked for a renewal that was granted, and another takes the Lease once it has seen no change
    of it for the seconds written in it.
    """

    api: Api
    thing: Thing
    identity: str
    seconds: int
    complaints: Complaints
    on_lost: Callable[[], None] = lambda: None
    clock: Callable[[], float] = time.monotonic
    name: str = "lease"
    notes: Callable[[], Mapping[str, str]] = dict  # annotations for whoever leads next, written while this one leads
    _leads_until: float = 0.0
    _led: bool = False
    _seen: dict[str, Any] | None = None
    _annotations: dict[str, str] | None = None
    _seen_at: float = 0.0
    _answered_at: float = field(default_factory=time.monotonic)
    _began: float = field(default_factory=time.monotonic)

    def leads(self) -> bool:
        """Whether this replica leads at this moment."""
        return self.clock() < self._leads_until

    def annotations(self) -> Mapping[str, str] | None:
        """The annotations of the Lease when it was last read or written; None while it was not."""
        return self._annotations

    def problem(self) -> str:
        """That the API server has been silent or unwilling for so long that nobody can lead."""
        silent = self.clock() - self._answered_at > self.seconds
        return "the Lease can neither be read nor written" if silent else ""

    def alive(self) -> bool:
        """Whether it still comes round."""
        return self.clock() - self._began < 60

    def run(self, stop: Event) -> None:
        """Strives for the Lease until `stop` is set, then gives it up."""
        self._began = self._answered_at = self.clock()
        while not stop.is_set():
            self.round()
            stop.wait(self.seconds * 2 / 15 * random.uniform(1.0, 1.2))
        self.release()

    def round(self) -> None:
        """Asks for the Lease once."""
        self._began = self.clock()
        try:
            self._ask(self._began)
            self._answered_at = self.clock()
        except ApiError as error:
            self.complaints.about(self.name, error)
        if self._led and not self.leads():
            self._lost()

    def release(self) -> None:
        """Gives the Lease up, so that another replica need not wait for it to run out."""
        if not self.leads():
            return
        self._leads_until = 0.0
        try:
            found = self.api.get(self.thing)
            spec = (found or {}).get("spec") or {}
            if found and spec.get("holderIdentity") == self.identity:
                given_up = {**spec, "holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": _now()}
                self._put(found, given_up)
                said("lease given up", lease=str(self.thing), identity=self.identity)
        except ApiError as error:
            self.complaints.about(self.name, error)
        self._led = False
        self.on_lost()

    def _ask(self, now: float) -> None:
        found = self.api.get(self.thing)
        spec = dict((found or {}).get("spec") or {})
        if found is None or spec != self._seen:
            self._seen, self._seen_at = spec, now
        self._annotations = _annotations(found)
        if found and not self._free(spec, now):
            self._leads_until = 0.0
            return
        body = found or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": _metadata(self.thing)}
        # A PUT makes a Lease that is not there, and fails with 409 where somebody else wrote it first.
        stored = self._put(body, self._claim(spec))
        self._seen, self._seen_at = dict(stored.get("spec") or {}), now
        self._leads_until = now + self.seconds * 2 / 3
        if not self._led:
            self._led = True
            said("leading", lease=str(self.thing), identity=self.identity, before=spec.get("holderIdentity"))

    def _put(self, body: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
        annotations = {**_annotations(body), **self.notes()}
        metadata = {**(body.get("metadata") or {}), **({"annotations": annotations} if annotations else {})}
        stored = self.api.put(self.thing, {**body, "metadata": metadata, "spec": spec})
        self._annotations = _annotations(stored)
        return stored

    def _free(self, spec: Mapping[str, Any], now: float) -> bool:
        """Whether the Lease is ours, nobody's, or has not changed for as long as it lasts."""
        holder, lasts = spec.get("holderIdentity"), spec.get("leaseDurationSeconds") or self.seconds
        return holder in (None, "", self.identity) or now >= self._seen_at + lasts

    def _claim(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        ours = spec.get("holderIdentity") == self.identity
        now = _now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.seconds,
            "acquireTime": spec.get("acquireTime") if ours else now,
            "renewTime": now,
            "leaseTransitions": (spec.get("leaseTransitions") or 0) + (not ours),
        }

    def _lost(self) -> None:
        self._led = False
        said("leading no more", lease=str(self.thing), identity=self.identity)
        self.on_lost()


def lease(namespace: str, name: str) -> Thing:
    """A Lease's place in the API."""
    return Thing("/apis/coordination.k8s.io/v1", "leases", name, namespace)


def _annotations(found: Mapping[str, Any] | None) -> dict[str, str]:
    return dict(((found or {}).get("metadata") or {}).get("annotations") or {})


def _metadata(thing: Thing) -> dict[str, Any]:
    return {"name": thing.name, "namespace": thing.namespace, "labels": {"app.kubernetes.io/name": "drainproof"}}


def _now() -> str:
    return datetime.now(UTC).strftime(_MICRO_TIME)
