"""Traces as a collector gets them, and that one which is down, slow or refuses them holds up nothing."""

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.collector import Collector, collecting, values
from tests.test_observe import DENIED, REQUEST, WARNED
from tests.test_serve import BODY, COMMAND, SECONDS, Process, environment, refused, started
from webhook import __version__, tracing
from webhook.core.verdict import Verdict

VERDICT = Verdict({}, notices=(DENIED, WARNED, WARNED), mended=("fourth",))
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


@contextmanager
def traces(url: str) -> Iterator[tracing.Traces]:
    """Traces of this process, whose end leaves the library's logger as it was."""
    before = tracing.LIBRARY.handlers.copy(), tracing.LIBRARY.propagate
    made = tracing.Traces(url)
    try:
        yield made
    finally:
        made.close()
        tracing.LIBRARY.handlers, tracing.LIBRARY.propagate = before


def record(made: tracing.Traces, headers: dict[str, str] | None = None, deed: Any = "validate") -> None:
    made.reviewed(headers or {}, time.time_ns() - 1_500_000, deed, REQUEST, VERDICT)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def ask(process: Process, headers: dict[str, str] | None = None, times: int = 1) -> list[float]:
    """Has reviews decided; how long each took, in seconds."""
    connection, took = process.client(), []
    try:
        for _ in range(times):
            began = time.monotonic()
            connection.request("POST", "/mutate", BODY, headers or {})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
            took.append(time.monotonic() - began)
    finally:
        connection.close()
    return took


def said(process: Process) -> list[str]:
    return [entry["message"] for entry in process.lines() if entry["message"].startswith("traces")]


def test_a_span_says_what_came_of_a_review_and_nothing_of_its_object(collector: Collector) -> None:
    with traces(f"{collector.url}/v1/traces") as made:
        record(made)
    (span,) = collector.spans
    assert (span.name, span.kind) == ("POST /validate", Span.SPAN_KIND_SERVER)
    assert values(span) == {
        "drainproof.deed": "validate",
        "drainproof.uid": "u-1",
        "drainproof.kind": "Job",
        "drainproof.namespace": "reports",
        "drainproof.operation": "CREATE",
        "drainproof.dry_run": True,
        "drainproof.outcome": "denied",
        "drainproof.mended": 0,
        "drainproof.denied": 1,
        "drainproof.warned": 1,
    }
    assert not span.events
    assert 1_500_000 <= span.end_time_unix_nano - span.start_time_unix_nano < SECONDS * 1e9
    assert abs(span.end_time_unix_nano / 1e9 - time.time()) < SECONDS


def test_the_trace_of_the_api_server_is_continued_and_its_choice_holds(collector: Collector) -> None:
    with traces(f"{collector.url}/v1/traces") as made:
        record(made, UNSAMPLED)
        record(made, SAMPLED | {"tracestate": "vendor=1"}, "mutate")
        record(made)
    ours, own = sorted(collector.spans, key=lambda span: span.name)
    assert (ours.trace_id.hex(), ours.parent_span_id.hex(), ours.trace_state) == (TRACE, PARENT, "vendor=1")
    assert values(ours)["drainproof.mended"] == 1
    assert own.trace_id.hex() != TRACE
    assert own.parent_span_id == b""


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": ""},
        {"traceparent": "x" * 60000},
        {"traceparent": f"00-{'0' * 32}-{PARENT}-01"},
        {"traceparent": f"ff-{TRACE}-{PARENT}-01"},
        {"traceparent": f"00-{TRACE}-{PARENT}-01-\udcff"},
        {"traceparent": f"00-{TRACE.upper()}-{PARENT}-01"},
        {**SAMPLED, "tracestate": "=,=" * 9999},
        {**SAMPLED, "tracestate": "\x00\xff"},
        {**SAMPLED, "baggage": "a=b" * 9999},
    ],
)
def test_whatever_a_client_calls_its_trace_there_is_a_span(collector: Collector, headers: dict[str, str]) -> None:
    with traces(f"{collector.url}/v1/traces") as made:
        record(made, headers)
    assert len(collector.spans) == 1


def test_who_makes_the_spans_is_said_and_can_be_said_otherwise(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with traces(f"{collector.url}/v1/traces") as made:
        record(made)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-7,k8s.cluster.name=east")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "admission")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
    with traces(f"{collector.url}/v1/traces") as made:
        record(made)
    first, second = collector.resources
    assert (first["service.name"], first["service.version"]) == ("drainproof", __version__)
    assert first["service.instance.id"] == socket.gethostname()
    assert (second["service.name"], second["service.instance.id"]) == ("admission", "pod-7")
    assert second["k8s.cluster.name"] == "east"
    assert [call.get("authorization") for call in collector.calls] == [None, "Bearer token"]


def test_a_collector_that_refuses_is_told_once_and_once_more_when_it_is_well_again(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracing, "WAIT_SECONDS", 0.02)
    caplog.set_level(logging.INFO, "drainproof")
    collector.status = 400
    with traces(f"{collector.url}/v1/traces") as made:
        until = time.monotonic() + SECONDS
        while len(collector.calls) < 4:
            assert time.monotonic() < until
            record(made)
            time.sleep(0.01)
        collector.status = 200
        record(made)
        collector.waited(1)
    assert [one.getMessage() for one in caplog.records] == ["traces not sent", "traces sent again"]
    fields = caplog.records[0].__dict__["fields"]
    assert fields["url"] == f"{collector.url}/v1/traces"
    assert "400" in fields["reason"]


def test_a_collector_that_is_not_there_is_told_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracing, "SEND_SECONDS", 2.5)  # enough for a second try, not for a third
    monkeypatch.setattr(tracing, "WAIT_SECONDS", 0.02)
    with traces(f"http://127.0.0.1:{closed_port()}/v1/traces") as made:
        record(made)
        until = time.monotonic() + SECONDS
        while not caplog.records:
            assert time.monotonic() < until
            time.sleep(0.02)
    (warning,) = caplog.records
    assert (warning.getMessage(), warning.levelname) == ("traces not sent", "WARNING")
    assert "refused" in warning.__dict__["fields"]["reason"]
    assert capfd.readouterr() == ("", "")


def test_what_a_collector_does_not_take_is_bounded_and_the_end_does_not_wait_for_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracing, "QUEUE", 50)
    monkeypatch.setattr(tracing, "BATCH", 10)
    collector.open.clear()
    with traces(f"{collector.url}/v1/traces") as made:
        for _ in range(500):
            record(made)
        began = time.monotonic()
        made.close(0.2)
        assert time.monotonic() - began < 5
        collector.open.set()
        collector.waited(10)
    time.sleep(0.1)
    assert len(collector.spans) <= 60  # a queue of 50, and the batch that was under way
    assert capfd.readouterr() == ("", "")


def test_a_process_sends_a_span_for_each_review_the_last_ones_at_its_end(collector: Collector, tmp_path: Path) -> None:
    with started(tmp_path, "--traces", collector.url, "--drain-seconds", "0") as process:
        ask(process, SAMPLED)
        assert process.got("/validate", b"no review")[0] == 400
        collector.waited(1)
        ask(process, times=300)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(SECONDS) == 0
    assert len(collector.spans) == 301
    assert collector.spans[0].trace_id.hex() == TRACE
    assert {call["path"] for call in collector.calls} == {"/v1/traces"}
    uids = {values(span)["drainproof.uid"] for span in collector.spans}
    assert uids == {entry["uid"] for entry in process.lines() if entry["message"] == "review decided"}
    assert process.lines()[-1] == process.lines()[-1] | {"message": "stopped", "drained": True}
    assert said(process) == []


def test_a_collector_that_never_answers_delays_neither_reviews_nor_the_end(
    collector: Collector, tmp_path: Path
) -> None:
    collector.open.clear()
    with started(tmp_path, "--traces", collector.url, "--drain-seconds", "0") as process:
        took = ask(process, times=1500)  # more than a batch, so that one is under way
        assert len(collector.calls) == 1
        assert max(took) < 2
        began = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(SECONDS) == 0
        assert time.monotonic() - began < tracing.SEND_SECONDS
    assert collector.spans == []


def test_a_second_signal_does_not_wait_for_a_collector(collector: Collector, tmp_path: Path) -> None:
    collector.open.clear()
    with started(tmp_path, "--traces", collector.url, "--drain-seconds", "600") as process:
        ask(process)
        process.popen.send_signal(signal.SIGTERM)
        process.waited("draining")
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(SECONDS) == 1


def test_a_process_without_a_collector_serves_warns_once_and_ends_well(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    with started(tmp_path, "--traces", url, "--drain-seconds", "0") as process:
        ask(process, times=600)
        assert process.waited("traces not sent")["level"] == "warning"
        ask(process, times=600)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(SECONDS) == 0
    assert said(process) == ["traces not sent"]


def test_without_being_asked_for_nothing_of_it_is_loaded() -> None:
    code = "import sys, webhook.serve; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "[]\n"


def test_where_the_extra_is_not_installed_it_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; from webhook import serve; serve.serve()"
    command = [*COMMAND[:3], "-c", code, "--dev", "--port", "0", "--policy", "none", "--traces", "http://localhost"]
    done = subprocess.run(command, capture_output=True, env=environment(tmp_path), timeout=SECONDS)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert len(lines) == 2
    assert "none: it cannot be read" in lines[0]
    assert "pip install 'drainproof[traces]', or build the image with --build-arg EXTRAS=traces" in lines[1]


@pytest.mark.parametrize("url", ["collector:4318", "ftp://c", "http://", "http://c:0", "http://c:x", "http://u:p@c"])
def test_what_is_no_address_of_a_collector_is_refused_at_the_start(tmp_path: Path, url: str) -> None:
    code, errors = refused(tmp_path, "--dev", DRAINPROOF_TRACES=url)
    assert code == 2
    assert "--traces" in errors
    assert "DRAINPROOF_TRACES" in errors


def test_a_variable_of_the_library_that_is_wrong_is_one_plain_sentence(tmp_path: Path) -> None:
    given = {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}
    code, errors = refused(tmp_path, "--dev", "--traces", "http://localhost", **given)
    assert code == 2
    assert errors.startswith("Error: --traces: a variable of OpenTelemetry's is wrong: ")
    assert "many" in errors
    assert errors.count("\n") == 1


def test_what_the_library_says_of_its_variables_at_the_start_is_logged_as_everything_is(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    with started(tmp_path, "--traces", collector.url) as process:
        process.waited("serving")
    warnings = [entry["message"] for entry in process.lines() if entry["level"] == "warning"]
    assert "sometimes" in "".join(warnings)


def test_a_path_is_kept_and_none_means_the_usual_one(collector: Collector, tmp_path: Path) -> None:
    with started(tmp_path, "--traces", f"{collector.url}/other/traces", "--drain-seconds", "0") as process:
        ask(process)
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(SECONDS) == 0
    assert [call["path"] for call in collector.calls] == ["/other/traces"]
    assert said(process) == ["traces not sent"]
