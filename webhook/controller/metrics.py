"""The metrics of the controller, and one log line for each call to the API server that was not done."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Final

from cryptography.x509 import Certificate
from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

from webhook.controller.api import ApiError
from webhook.controller.authority import KINDS
from webhook.controller.state import State
from webhook.core.undone import GUARDS
from webhook.observe import said

QUIET_SECONDS: Final = 60.0  # how long the same error of the same part is only counted
OUTCOMES: Final = ("stamped", "dry-run", "left", "failed")  # of the deletion of a Pod
_PASSING: Final = frozenset({0, 404, 409, 410, 429})  # what a later try may find otherwise; 5xx too


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one controller, in a registry of their own."""

    registry: CollectorRegistry
    leader: Gauge
    expiry: Gauge
    rotations: Counter
    injections: Counter
    false_completions: Counter
    facts: Gauge
    node_pools: Gauge
    errors: Counter
    stamps: Counter
    stamp_errors: Counter


def metrics() -> Metrics:
    """Metrics that stand at zero."""
    ProcessCollector(registry=(registry := CollectorRegistry()))
    counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
    made = Metrics(
        registry,
        leader=gauge("drainproof_controller_leader", "1 where this replica leads, else 0."),
        expiry=gauge(
            "drainproof_controller_certificate_expiry_timestamp_seconds",
            "When a stored certificate expires, in seconds since 1970; only where this replica leads.",
            ("certificate",),
        ),
        rotations=counter(
            "drainproof_controller_rotations", "Steps of making and replacing certificates.", ("step", "outcome")
        ),
        injections=counter(
            "drainproof_controller_injections",
            "Webhook configurations whose caBundle was set.",
            ("resource", "outcome"),
        ),
        false_completions=counter(
            "drainproof_controller_false_completions",
            "Pods that count as successes although they were stopped with nobody vouching for their work.",
            ("guard",),
        ),
        facts=gauge(
            "drainproof_controller_facts_timestamp_seconds",
            "When a source of facts could last be read, in seconds since 1970; only where this replica leads.",
            ("source",),
        ),
        node_pools=gauge(
            "drainproof_controller_facts_nodepools",
            "NodePools with and without a terminationGracePeriod; only where this replica leads.",
            ("limit",),
        ),
        errors=counter(
            "drainproof_controller_api_errors",
            "Calls to the API server that were not done; status 0 is no answer.",
            ("verb", "resource", "status"),
        ),
        stamps=counter(
            "drainproof_controller_stamps",
            "Deletions of Pods reviewed: stamped, dry-run (only asked about), left (none to be stamped), or failed.",
            ("outcome",),
        ),
        stamp_errors=counter("drainproof_controller_stamp_errors", "Calls of /stamp that were no review.", ("reason",)),
    )
    for outcome in OUTCOMES:
        made.stamps.labels(outcome)
    for kind, outcome in product(KINDS, ("done", "failed")):  # a counter that is there has a rate when it first rises
        made.rotations.labels(kind, outcome)
    for guard in GUARDS:
        made.false_completions.labels(guard)
    return made


def led_no_more(metrics: Metrics) -> None:
    """Takes away what only a leader shows."""
    for gauge in (metrics.expiry, metrics.facts, metrics.node_pools):
        gauge.clear()


def expiries(metrics: Metrics, state: State) -> None:
    """Shows when the certificates of `state` expire; what is not there is not shown."""
    stored: dict[str, Certificate | None] = {
        "ca": state.authority.certificate if state.authority else None,
        "leaf": state.leaf.certificate if state.leaf else None,
    }
    metrics.expiry.clear()
    for name, certificate in stored.items():
        if certificate:
            metrics.expiry.labels(name).set(certificate.not_valid_after_utc.timestamp())


@dataclass(slots=True)
class Complaints:
    """Counts every call that was not done, and logs it; one that goes on failing the same way, once a minute.

    Whoever calls, it is the same trouble: the line names the part that met it first.
    """

    metrics: Metrics
    clock: Callable[[], float] = time.monotonic
    _quiet_until: dict[tuple[object, ...], float] = field(default_factory=dict)

    def about(self, part: str, error: ApiError, *, apart: bool = True) -> None:
        """Counts and logs one call of a part; unless objects are told `apart`, one line stands for all of a kind."""
        thing = error.thing
        self.metrics.errors.labels(error.verb, thing.kind, str(error.status)).inc()
        key = (error.verb, thing.kind, thing.name if apart else "", error.status)
        if self.clock() < self._quiet_until.get(key, 0):
            return
        self._quiet_until[key] = self.clock() + QUIET_SECONDS
        passing = error.status in _PASSING or error.status >= 500
        said(
            "call to the API server failed",
            logging.WARNING if passing else logging.ERROR,
            part=part,
            verb=error.verb,
            resource=thing.kind,
            name=thing.name,
            namespace=thing.namespace,
            status=error.status,
            reason=str(error),
        )

    def raise_last(self, part: str, errors: Sequence[ApiError]) -> None:
        """Ends a round that went on after errors: raises the last, for whoever runs it to tell; tells the others."""
        for earlier in errors[:-1]:
            self.about(part, earlier)
        if errors:
            raise errors[-1]
