"""What Prometheus is told of one server."""

from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

Fault = Literal["not-a-review", "too-large", "slow-body", "disconnected", "unknown-client", "rule", "exception"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
REASONS: Final = 100  # different reasons of exemptions that are told apart
BUCKETS: Final = (
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reloads:
    """The metrics of one file that is taken over when it changes."""

    total: Counter
    generation: Gauge
    loaded: Gauge


@dataclass(frozen=True, slots=True)
class Metrics:
    """The metrics of one server, in a registry of their own."""

    registry: CollectorRegistry
    reviews: Counter
    findings: Counter
    mended: Counter
    exempt: Counter
    seconds: Histogram
    errors: Counter
    expiry: Gauge
    reload_failures: Counter
    policy: Reloads
    facts: Reloads
    reasons: set[str] = field(default_factory=set)

    def reason(self, text: str) -> str:
        """The label value for a reason: itself for the first REASONS different ones, then `other`."""
        if text in self.reasons or len(self.reasons) < REASONS:
            self.reasons.add(text)
            return text
        return "other"


def metrics() -> Metrics:
    """Metrics that stand at zero. Label values come from the code, but for reasons: these are bounded."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
    made = Metrics(
        registry,
        reviews=counter(
            "drainproof_reviews",
            "Reviews decided; outcome is denied, mended, guarded, left (no rule looked), warned or clean, and where "
            "the policy only monitors would-deny, would-mend, would-guard or would-warn.",
            ("deed", "kind", "operation", "outcome"),
        ),
        findings=counter(
            "drainproof_findings", "Findings of validation, by the policy's mode.", ("rule", "level", "mode")
        ),
        mended=counter(
            "drainproof_mended", "Objects that a rule changed, or in mode monitor would have.", ("rule", "mode")
        ),
        exempt=counter("drainproof_exempt", "Objects validated that are exempt from a rule.", ("rule", "reason")),
        seconds=Histogram(
            "drainproof_review_seconds",
            "Seconds from the whole body to the whole answer.",
            ("deed",),
            buckets=BUCKETS,
            registry=registry,
        ),
        errors=counter("drainproof_errors", "Requests that could not be decided.", ("reason",)),
        expiry=gauge(
            "drainproof_certificate_expiry_timestamp_seconds",
            "When the certificate served expires, in seconds since 1970.",
        ),
        reload_failures=counter(
            "drainproof_certificate_reload_failures",
            "Looks at certificate files that cannot be used; it rises, every few seconds, for as long as they stay so.",
        ),
        policy=_reloads("policy", registry),
        facts=_reloads("facts", registry),
    )
    for fault in FAULTS:  # a counter that is there from the start has a rate when it first rises
        made.errors.labels(fault)
    return made


def _reloads(name: str, registry: CollectorRegistry) -> Reloads:
    made = Reloads(
        Counter(
            f"drainproof_{name}_reloads",
            f"Changes to the {name} file: loaded, or refused, once for each content; what was loaded last stays.",
            ("outcome",),
            registry=registry,
        ),
        Gauge(
            f"drainproof_{name}_generation",
            f"Number of the {name} in force: it rises with each one loaded.",
            registry=registry,
        ),
        Gauge(
            f"drainproof_{name}_loaded_timestamp_seconds",
            f"When what is in force of the {name} was loaded, in seconds since 1970.",
            registry=registry,
        ),
    )
    for outcome in ("loaded", "refused"):
        made.total.labels(outcome)
    return made
