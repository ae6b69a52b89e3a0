"""One log line and the metrics of each decided request; every other log line has the same JSON shape."""

import logging
import logging.config
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal, get_args

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from webhook.core.engine import Verdict
from webhook.core.rule import Level
from webhook.core.workload import KINDS
from webhook.review import Deed, Request

LOG: Final = logging.getLogger("drainproof")

Fault = Literal["not-a-review", "too-large", "slow-body", "disconnected", "unknown-client", "rule", "exception"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
BUCKETS: Final = (
    50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 100e-3, 500e-3, 1.0,
)  # fmt: skip


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


def metrics() -> Metrics:
    """Metrics that stand at zero. Label values come from the code, never from a request."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    counter = partial(Counter, registry=registry)
    made = Metrics(
        registry,
        reviews=counter(
            "drainproof_reviews",
            "Reviews decided; outcome is denied, mended, left (no rule looked), warned or clean.",
            ("deed", "kind", "operation", "outcome"),
        ),
        findings=counter("drainproof_findings", "Findings of validation.", ("rule", "level")),
        mended=counter("drainproof_mended", "Objects that a rule changed.", ("rule",)),
        exempt=counter("drainproof_exempt", "Objects validated that are exempt from a rule.", ("rule",)),
        seconds=_seconds(registry),
        errors=counter("drainproof_errors", "Requests that could not be decided.", ("reason",)),
        expiry=Gauge(
            "drainproof_certificate_expiry_timestamp_seconds",
            "When the certificate served expires, in seconds since 1970.",
            registry=registry,
        ),
        reload_failures=counter(
            "drainproof_certificate_reload_failures",
            "Looks at certificate files that cannot be used; it rises, every few seconds, for as long as they stay so.",
        ),
    )
    for fault in FAULTS:  # a counter that is there from the start has a rate when it first rises
        made.errors.labels(fault)
    return made


def reviewed(metrics: Metrics, deed: Deed, request: Request, verdict: Verdict, seconds: float) -> None:
    """Logs and counts one request that was decided in `seconds`."""
    # What validation foresees of a CronJob's Jobs is mended only when those Jobs are created.
    mended = verdict.mended if deed == "mutate" else ()
    _count(metrics, deed, request, verdict, mended)
    metrics.seconds.labels(deed).observe(seconds)
    fields = {
        "uid": request.uid,
        "deed": deed,
        "kind": request.kind,
        "namespace": request.namespace,
        "name": request.name,
        "operation": request.operation,
        "user": request.user,
        "dryRun": request.dry_run,
        "allowed": not verdict.denied,
        "mended": list(mended),
        "denied": _rules(verdict, Level.DENY),
        "warned": _rules(verdict, Level.WARN),
        "exempt": {one.rule: one.reason for one in verdict.exempt},
        "left": verdict.left,
        "ms": round(seconds * 1000, 3),
    }
    LOG.info("review decided", extra={"fields": fields})


def failed(metrics: Metrics, fault: Fault, **fields: Any) -> None:
    """Logs and counts one request that was not decided; inside an except block for faults of ours, with the trace."""
    metrics.errors.labels(fault).inc()
    ours = fault in ("rule", "exception")
    level = logging.ERROR if ours else logging.WARNING
    LOG.log(level, "review not decided", exc_info=ours, extra={"fields": {"reason": fault, **fields}})


def said(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Logs what the server itself does: a constant message and fields."""
    LOG.log(level, message, extra={"fields": fields})


def outcome(deed: Deed, verdict: Verdict) -> str:
    """The one word for what came of an object."""
    if verdict.denied:
        return "denied"
    if verdict.steps and deed == "mutate":
        return "mended"
    return "left" if verdict.left else "warned" if verdict.warned else "clean"


class JsonLines(logging.Formatter):
    """One JSON object a record: time, level, message, the record's fields, and the trace where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage().strip(),
            **getattr(record, "fields", {}),
        }
        if record.name != LOG.name:
            line["logger"] = record.name
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure(level: str) -> None:
    """Sends our log records from `level` up to stderr as JSON lines, and those of libraries from warnings up."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"()": JsonLines}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["stderr"], "level": "WARNING"},
            "loggers": {LOG.name: {"level": level.upper()}, "uvicorn.access": {"level": "CRITICAL"}},
        }
    )


def _seconds(registry: CollectorRegistry) -> Histogram:
    text = "Seconds from the whole body to the whole answer."
    return Histogram("drainproof_review_seconds", text, ("deed",), buckets=BUCKETS, registry=registry)


def _count(metrics: Metrics, deed: Deed, request: Request, verdict: Verdict, mended: tuple[str, ...]) -> None:
    kind = request.kind if (request.group, request.kind) in KINDS else "other"
    metrics.reviews.labels(deed, kind, request.operation, outcome(deed, verdict)).inc()
    for rule in mended:
        metrics.mended.labels(rule).inc()
    if deed == "mutate":  # the same object comes to validation next, which counts what stands
        return
    for notice in verdict.notices:
        metrics.findings.labels(notice.rule, notice.level.value).inc()
    for one in verdict.exempt:
        metrics.exempt.labels(one.rule).inc()


def _rules(verdict: Verdict, level: Level) -> list[str]:
    return list(dict.fromkeys(notice.rule for notice in verdict.notices if notice.level is level))
