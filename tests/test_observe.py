"""Log lines and metrics of a decided request."""

import logging
import sys
from typing import Any

import orjson
import pytest
from prometheus_client import generate_latest

from webhook import observe
from webhook.core.engine import Exempted, Notice, Verdict
from webhook.core.rule import Level
from webhook.metrics import FAULTS, REASONS, Metrics
from webhook.observe import JsonLines
from webhook.review import Request

REQUEST = Request("u-1", "Job", "batch", "jobs", "", "reports", "nightly", "CREATE", True, "jane", {}, None)
DENIED = Notice("first", Level.DENY, (), "no (first)")
WARNED = Notice("second", Level.WARN, (), "well (second)")
STEP = {"op": "add", "path": "/a", "value": 1}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def line(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(JsonLines().format(record))
    return found


def test_a_decided_request_makes_one_line_with_every_field(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    verdict = Verdict({}, notices=(DENIED, WARNED, WARNED), exempt=(Exempted("third", "why"),), mended=("fourth",))
    observe.reviewed(observe.metrics(), "validate", REQUEST, verdict, 0.00025)
    (record,) = caplog.records
    found = line(record)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "info",
        "message": "review decided",
        "uid": "u-1",
        "deed": "validate",
        "kind": "Job",
        "namespace": "reports",
        "name": "nightly",
        "operation": "CREATE",
        "user": "jane",
        "dryRun": True,
        "mode": "enforce",
        "allowed": False,
        "outcome": "denied",
        "mended": [],
        "denied": ["first"],
        "warned": ["second"],
        "exempt": {"third": "why"},
        "left": "",
        "ms": 0.25,
    }


def test_a_decided_request_is_counted_by_what_came_of_it() -> None:
    metrics = observe.metrics()
    observe.reviewed(metrics, "mutate", REQUEST, Verdict({}, (STEP,), mended=("fourth",), notices=(WARNED,)), 0.0001)
    observe.reviewed(
        metrics, "validate", REQUEST, Verdict({}, notices=(DENIED, WARNED), exempt=(Exempted("third", "why"),)), 0.0001
    )
    labels = {"kind": "Job", "operation": "CREATE"}
    assert value(metrics, "drainproof_reviews_total", deed="mutate", outcome="mended", **labels) == 1
    assert value(metrics, "drainproof_reviews_total", deed="validate", outcome="denied", **labels) == 1
    assert value(metrics, "drainproof_mended_total", rule="fourth", mode="enforce") == 1
    assert value(metrics, "drainproof_findings_total", rule="first", level="deny", mode="enforce") == 1
    assert value(metrics, "drainproof_findings_total", rule="second", level="warn", mode="enforce") == 1
    assert value(metrics, "drainproof_exempt_total", rule="third", reason="why") == 1
    assert value(metrics, "drainproof_review_seconds_bucket", deed="mutate", le="0.0001") == 1
    assert value(metrics, "drainproof_review_seconds_bucket", deed="mutate", le="5e-05") == 0


def test_what_a_monitoring_policy_would_do_is_logged_and_counted_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    metrics = observe.metrics()
    mending = Verdict({}, (STEP,), mended=("fourth",), monitored=True)
    observe.reviewed(metrics, "mutate", REQUEST, mending, 0)
    observe.reviewed(metrics, "validate", REQUEST, Verdict({}, notices=(DENIED,), monitored=True), 0)
    told = [{name: line(record)[name] for name in ("mode", "allowed", "outcome")} for record in caplog.records]
    assert told == [{"mode": "monitor", "allowed": True, "outcome": f"would-{deed}"} for deed in ("mend", "deny")]
    assert [line(record)["mended"] for record in caplog.records] == [["fourth"], []]
    assert [line(record)["denied"] for record in caplog.records] == [[], ["first"]]
    labels = {"kind": "Job", "operation": "CREATE"}
    assert value(metrics, "drainproof_reviews_total", deed="mutate", outcome="would-mend", **labels) == 1
    assert value(metrics, "drainproof_reviews_total", deed="validate", outcome="would-deny", **labels) == 1
    assert value(metrics, "drainproof_mended_total", rule="fourth", mode="monitor") == 1
    assert value(metrics, "drainproof_findings_total", rule="first", level="deny", mode="monitor") == 1
    assert b'mode="enforce"' not in generate_latest(metrics.registry)


def exempted(metrics: Metrics, reason: str) -> None:
    observe.reviewed(metrics, "validate", REQUEST, Verdict({}, exempt=(Exempted("*", reason),)), 0)


def test_a_reason_in_a_metric_is_one_line_of_at_most_60_characters() -> None:
    metrics = observe.metrics()
    exempted(metrics, "two\n lines \x07 " + "x" * 100_000)
    assert value(metrics, "drainproof_exempt_total", rule="*", reason="two lines ? " + "x" * 47 + "…") == 1


def test_past_100_different_reasons_a_new_one_is_counted_as_other_and_a_known_one_goes_on() -> None:
    metrics = observe.metrics()
    for number in range(REASONS + 50):
        exempted(metrics, f"reason {number}")
    exempted(metrics, "reason 0")
    assert REASONS == 100
    assert value(metrics, "drainproof_exempt_total", rule="*", reason="other") == 50
    assert value(metrics, "drainproof_exempt_total", rule="*", reason="reason 0") == 2
    assert generate_latest(metrics.registry).count(b"drainproof_exempt_total{") == 101


def test_a_long_reason_in_a_log_line_is_cut(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    exempted(observe.metrics(), "y" * 100_000)
    assert line(caplog.records[0])["exempt"] == {"*": "y" * 255 + "…"}


def test_a_kind_that_the_core_does_not_know_is_counted_as_other() -> None:
    metrics = observe.metrics()
    for kind, group in (("Unheard-of", "batch"), ("Job", "example.com")):
        request = Request("u", kind, group, "", "", "", "", "CREATE", False, "", {}, None)
        observe.reviewed(metrics, "mutate", request, Verdict({}, left="kind"), 0)
    labels = {"deed": "mutate", "operation": "CREATE", "outcome": "left"}
    assert value(metrics, "drainproof_reviews_total", kind="other", **labels) == 2
    assert b"Unheard-of" not in generate_latest(metrics.registry)


@pytest.mark.parametrize(
    ("deed", "verdict", "outcome"),
    [
        ("validate", Verdict({}, (STEP,), notices=(DENIED,)), "denied"),
        ("mutate", Verdict({}, (STEP,), left="update"), "mended"),
        ("validate", Verdict({}, (STEP,)), "clean"),
        ("validate", Verdict({}, left="kind"), "left"),
        ("validate", Verdict({}, notices=(WARNED,)), "warned"),
        ("validate", Verdict({}, notices=(WARNED, DENIED), monitored=True), "would-deny"),
        ("mutate", Verdict({}, (STEP,), notices=(WARNED,), monitored=True), "would-mend"),
        ("validate", Verdict({}, notices=(WARNED,), monitored=True), "would-warn"),
        ("validate", Verdict({}, (STEP,), monitored=True), "clean"),
        ("validate", Verdict({}, left="owner", monitored=True), "left"),
    ],
)
def test_the_outcome_is_the_gravest_thing_that_came_of_it(deed: Any, verdict: Verdict, outcome: str) -> None:
    assert observe.outcome(deed, verdict) == outcome


def test_every_fault_stands_at_zero_from_the_start() -> None:
    metrics = observe.metrics()
    assert [value(metrics, "drainproof_errors_total", reason=fault) for fault in FAULTS] == [0] * 7


def test_a_fault_of_ours_is_an_error_with_its_trace_and_any_other_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    metrics = observe.metrics()
    try:
        raise KeyError("gone")
    except KeyError:
        observe.failed(metrics.errors, "rule", uid="u-1", rule="first")
    observe.failed(metrics.errors, "too-large", text="The body is too long.")
    ours, theirs = map(line, caplog.records)
    assert (ours["level"], ours["reason"], ours["uid"], ours["rule"]) == ("error", "rule", "u-1", "first")
    assert "KeyError: 'gone'" in ours["trace"]
    assert (theirs["level"], theirs["text"]) == ("warning", "The body is too long.")
    assert "trace" not in theirs
    assert value(metrics, "drainproof_errors_total", reason="rule") == 1


def test_records_of_libraries_take_the_same_shape_on_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "broke\n%s", ("a\nb",), sys.exc_info())
    assert "\n" not in JsonLines().format(record)
    assert (line(record)["message"], line(record)["logger"]) == ("broke\na\nb", "uvicorn.error")
