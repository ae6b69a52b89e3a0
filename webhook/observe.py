"""One log line and the metrics of each decided request; every other log line has the same JSON shape."""

import logging
import logging.config
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from prometheus_client import Counter

from webhook.annotation import brief, ids
from webhook.core.ruleset import Mode
from webhook.core.verdict import Verdict
from webhook.core.workload import KINDS
from webhook.metrics import Fault, Metrics, metrics
from webhook.review import Deed, Request, mended
from webhook.watched import Change, Reloading

__all__ = [
    "LOG",
    "JsonLines",
    "Metrics",
    "configure",
    "failed",
    "metrics",
    "outcome",
    "reloaded",
    "reviewed",
    "said",
]

LOG: Final = logging.getLogger("drainproof")
WOULD: Final[Mapping[str, str]] = {
    "denied": "would-deny",
    "guarded": "would-guard",
    "mended": "would-mend",
    "stamped": "would-stamp",
    "warned": "would-warn",
}
CHANGED: Final[Mapping[Deed, str]] = {"mutate": "mended", "guard": "guarded", "stamp": "stamped"}
RELOADED: Final = {"swapped": "taken over", "broken": "not taken over", "mended": "usable again"}
REASON: Final = 256  # characters of a reason in a log line


def reviewed(metrics: Metrics, deed: Deed, request: Request, verdict: Verdict, seconds: float) -> None:
    """Logs and counts one request that was decided in `seconds`; in mode monitor, what would have been done."""
    _count(metrics, deed, request, verdict)
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
        "mode": _mode(verdict),
        "allowed": verdict.monitored or not verdict.denied,
        "outcome": outcome(deed, verdict),
        "mended": list(mended(verdict, deed)),
        "denied": ids(verdict.denied),
        "warned": ids(verdict.warned),
        "exempt": {one.rule: brief(one.reason, REASON) for one in verdict.exempt},
        "left": verdict.left,
        "ms": round(seconds * 1000, 3),
    }
    LOG.info("review decided", extra={"fields": fields})


def failed(errors: Counter, fault: Fault, **fields: Any) -> None:
    """Logs one request that was not decided, and counts it by its fault in `errors`.

    Inside an except block for faults of ours, with the trace.
    """
    errors.labels(fault).inc()
    ours = fault in ("rule", "exception")
    level = logging.ERROR if ours else logging.WARNING
    LOG.log(level, "review not decided", exc_info=ours, extra={"fields": {"reason": fault, **fields}})


def said(message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Logs what the server itself does: a constant message and fields."""
    LOG.log(level, message, extra={"fields": fields})


def reloaded(name: str, thing: Reloading, change: Change, **fields: Any) -> None:
    """Logs what came of looking at files: nothing where nothing has changed."""
    if change:
        level = logging.ERROR if change == "broken" else logging.INFO
        fields = {"reason": thing.remark(), **fields}
        said(f"{name} {RELOADED[change]}", level, **{key: value for key, value in fields.items() if value})


def outcome(deed: Deed, verdict: Verdict) -> str:
    """The one word for what came of an object, or would have."""
    word = "left" if verdict.left else "warned" if verdict.warned else "clean"
    if verdict.steps:
        word = CHANGED.get(deed, word)
    if verdict.denied:
        word = "denied"
    return WOULD.get(word, word) if verdict.monitored else word


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


def _count(metrics: Metrics, deed: Deed, request: Request, verdict: Verdict) -> None:
    kind = request.kind if (request.group, request.kind) in KINDS else "other"
    metrics.reviews.labels(deed, kind, request.operation, outcome(deed, verdict)).inc()
    for rule in mended(verdict, deed):
        metrics.mended.labels(rule, _mode(verdict)).inc()
    if deed == "mutate":  # the same object comes to validation next, which counts what stands
        return
    for notice in verdict.notices:
        metrics.findings.labels(notice.rule, notice.level.value, _mode(verdict)).inc()
    for one in verdict.exempt:
        metrics.exempt.labels(one.rule, metrics.reason(brief(one.reason))).inc()


def _mode(verdict: Verdict) -> str:
    return (Mode.MONITOR if verdict.monitored else Mode.ENFORCE).value
