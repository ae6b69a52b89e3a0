"""The HTTP application on a real socket: what is answered to whom, and what is counted and logged."""

import asyncio
import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
import pytest
import uvicorn

from tests.tables import CASES
from tests.test_review import JOB, review
from webhook import connection, intake, observe, server
from webhook.core import policy
from webhook.core.rule import Finding, Level, Rule
from webhook.core.workload import EVERY
from webhook.observe import Metrics
from webhook.rules import RULES

SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Running:
    port: int
    state: server.State
    metrics: Metrics

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def errors(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value("drainproof_errors_total", {"reason": reason})


@contextmanager
def running(state: server.State, body_seconds: float = SECONDS, **scope_state: Any) -> Iterator[Running]:
    """The application under uvicorn in a thread of its own."""
    metrics = observe.metrics()
    inner = server.app(state, metrics, body_seconds)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, "state": scope_state}, receive, send)

    config = uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = uvicorn.Server(config)
        thread = threading.Thread(target=asyncio.run, args=(one.serve([listener]),))
        thread.start()
        try:
            yield Running(listener.getsockname()[1], state, metrics)
        finally:
            one.should_exit = True
            thread.join(SECONDS)
            assert not thread.is_alive()


def state(*rules: Rule) -> server.State:
    return server.State(policy.default(rules or RULES), lambda: "")


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    with running(state()) as one:
        yield one


def test_a_review_is_answered_as_json_and_counted(shared: Running) -> None:
    for deed in ("mutate", "validate"):
        status, text, headers = shared.ask("POST", f"/{deed}?timeout=10s", orjson.dumps(review()))
        assert status == 200
        assert headers["content-type"] == "application/json"
        assert headers["connection"] is None
        assert orjson.loads(text)["response"]["uid"] == "u-1"
        assert ("patch" in orjson.loads(text)["response"]) is (deed == "mutate")
        assert f'drainproof_review_seconds_count{{deed="{deed}"}}' in shared.ask("GET", "/metrics")[1]


def test_a_report_of_a_kubelet_is_answered_and_counted(shared: Running) -> None:
    body = (CASES / "status" / "exit0.guarded.json").read_bytes()
    status, text, _ = shared.ask("POST", "/guard?timeout=3s", body)
    assert status == 200
    assert orjson.loads(text)["response"]["patchType"] == "JSONPatch"
    assert 'drainproof_mended_total{mode="enforce",rule="completion-guard"} 1.0' in shared.ask("GET", "/metrics")[1]


@pytest.mark.parametrize("media", ["application/json", "application/json; charset=utf-8", "text/plain", ""])
def test_a_review_is_taken_whatever_its_media_type_is_called(shared: Running, media: str) -> None:
    assert shared.ask("POST", "/mutate", orjson.dumps(review()), **{"content-type": media})[0] == 200


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", orjson.dumps(review(uid=7))])
def test_what_is_no_review_is_a_bad_call_told_in_one_sentence(shared: Running, body: bytes) -> None:
    before = shared.errors("not-a-review") or 0
    status, text, headers = shared.ask("POST", "/validate", body)
    assert status == 400
    assert headers["content-type"].startswith("text/plain")
    assert text.endswith(".\n")
    assert text.count("\n") == 1
    assert shared.errors("not-a-review") == before + 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/mutate", 405),
        ("PUT", "/validate", 405),
        ("GET", "/guard", 405),
        ("POST", "/healthz", 405),
        ("POST", "/", 404),
        ("POST", "/mutate/", 404),
        ("GET", "/nothing", 404),
    ],
)
def test_other_methods_and_paths_are_refused_in_a_sentence(
    shared: Running, method: str, path: str, status: int
) -> None:
    found, text, headers = shared.ask(method, path)
    assert (found, text[-2:], text.count("\n")) == (status, ".\n", 1)
    assert headers["content-type"].startswith("text/plain")
    if status == 404:
        assert "/mutate, /validate and /guard" in text
    else:
        allowed = ["POST"] if method != "POST" else ["GET", "HEAD"]
        assert headers["allow"].split(", ") == allowed
        assert text.endswith(f"use {' or '.join(allowed)}.\n")


def test_what_can_be_read_can_be_asked_for_by_its_head(shared: Running) -> None:
    assert [shared.ask(method, "/healthz")[:2] for method in ("GET", "HEAD")] == [(200, "ok\n"), (200, "")]
    assert shared.ask("HEAD", "/nothing")[:2] == (404, "")


def padded(size: int) -> bytes:
    """A review of exactly `size` bytes."""
    short = orjson.dumps(review(padding=""))
    return short[:-3] + b"x" * (size - len(short)) + short[-3:]


def test_a_body_of_the_greatest_size_is_answered(shared: Running) -> None:
    body = padded(7 << 20)
    assert len(body) == 7 << 20
    assert shared.ask("POST", "/mutate", body)[0] == 200


def test_a_body_of_8_mib_is_refused(shared: Running) -> None:
    for size in (8 << 20, (7 << 20) + 1):
        status, text, headers = shared.ask("POST", "/mutate", padded(size))
        assert (status, text) == (413, f"The body is longer than {7 << 20} bytes.\n")
        assert headers["connection"] == "close"
    assert shared.errors("too-large")


def test_a_body_of_8_mib_in_chunks_is_refused_too(shared: Running) -> None:
    whole = padded(8 << 20)
    status, text, _ = shared.ask("POST", "/mutate", (whole[at : at + 9999] for at in range(0, len(whole), 9999)))
    assert (status, text) == (413, f"The body is longer than {7 << 20} bytes.\n")


def test_a_body_longer_than_it_was_said_to_be_is_a_bad_call(shared: Running) -> None:
    assert shared.ask("POST", "/mutate", orjson.dumps(review()), **{"content-length": "20"})[0] == 400


def test_a_body_without_end_is_not_read_without_end() -> None:
    with running(state()) as one, socket.create_connection(("127.0.0.1", one.port), SECONDS) as connection:
        connection.sendall(b"POST /mutate HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(chunk * (8 * intake.DISCARD_BYTES >> 20))
    assert one.errors("too-large") == 1


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with running(state(), body_seconds=0.2) as one, socket.create_connection(("127.0.0.1", one.port), SECONDS) as slow:
        slow.sendall(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        answer = http.client.HTTPResponse(slow)
        answer.begin()
        assert (answer.status, answer.read()) == (408, b"The body did not arrive within 0.2 seconds.\n")
        assert answer.headers["connection"] == "close"
        assert slow.recv(1) == b""
    assert one.errors("slow-body") == 1


def test_a_client_that_goes_away_is_counted_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with running(state()) as one:
        with socket.create_connection(("127.0.0.1", one.port), SECONDS) as gone:
            gone.sendall(b"POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        assert one.ask("POST", "/mutate", orjson.dumps(review()))[0] == 200
    assert one.errors("disconnected") == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@dataclass(frozen=True, slots=True)
class NoOptions:
    pass


def raises(*_: Any) -> list[Finding]:
    raise KeyError("a bug")


def test_a_rule_that_raises_is_a_500_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with running(state(Rule("faulty", raises, NoOptions, Level.DENY, fix=True, kinds=EVERY))) as one:
        for deed in ("mutate", "validate"):
            caplog.clear()
            status, text, _ = one.ask("POST", f"/{deed}", orjson.dumps(review()))
            assert status == 500
            assert "the rule faulty raised" in text
            (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
            fields = record.__dict__["fields"]
            assert (fields["uid"], fields["rule"], fields["deed"]) == ("u-1", "faulty", deed)
            assert "a bug" in observe.JsonLines().format(record)
        assert one.errors("rule") == 2


def test_any_other_fault_is_a_500_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.review.respond", raises)
    with running(state()) as one:
        assert one.ask("POST", "/mutate", orjson.dumps(review()))[0] == 500
        assert one.errors("exception") == 1


def test_readiness_says_which_check_fails_and_verbose_lists_them_all() -> None:
    with running(state()) as one:
        assert one.ask("GET", "/readyz")[:2] == (200, "ok\n")
        assert one.ask("GET", "/readyz?verbose")[:2] == (200, "policy: ok\ncertificate: ok\ndraining: ok\n")
        one.state.remarks = lambda: {"policy": "ok, generation 2", "facts": "none yet are in force"}
        assert one.ask("GET", "/readyz")[:2] == (200, "ok\n")
        assert one.ask("GET", "/readyz?verbose")[:2] == (
            200,
            "policy: ok, generation 2\ncertificate: ok\ndraining: ok\nfacts: none yet are in force\n",
        )
        one.state.remarks = dict
        one.state.certificate = lambda: "it has expired"
        assert one.ask("GET", "/readyz")[:2] == (503, "certificate: it has expired\n")
        one.state.certificate, one.state.policy = lambda: "", None
        assert one.ask("GET", "/readyz?verbose")[:2] == (
            503,
            "policy: no policy is loaded\ncertificate: ok\ndraining: ok\n",
        )
        assert one.ask("GET", "/healthz")[0] == 200
        assert one.ask("POST", "/mutate", orjson.dumps(review()))[0] == 503


@pytest.mark.parametrize(("only", "known", "status"), [(True, False, 403), (True, True, 200), (False, False, 200)])
def test_a_review_is_refused_only_where_clients_must_be_known_and_one_is_not(
    only: bool, known: bool, status: int
) -> None:
    with running(state(), **{connection.KNOWN_CLIENT: known}) as one:
        one.state.known_clients_only = only
        for deed in ("mutate", "validate"):
            assert one.ask("POST", f"/{deed}", orjson.dumps(review()))[0] == status
        assert one.ask("POST", "/mutate", padded(8 << 20))[0] == (403 if status == 403 else 413)
        assert [one.ask("GET", path)[0] for path in ("/healthz", "/readyz", "/metrics")] == [200] * 3
        assert one.errors("unknown-client") == (3 if status == 403 else 0)


def test_where_nothing_says_that_a_client_is_known_it_is_not() -> None:
    with running(server.State(policy.default(RULES), lambda: "", known_clients_only=True)) as one:
        assert one.ask("POST", "/mutate", b"")[:2] == (
            403,
            "Reviews are answered only to clients with a certificate of the CAs given, and this one showed none.\n",
        )


def test_a_draining_server_is_not_ready_and_answers_with_the_end_of_the_connection() -> None:
    with running(state()) as one:
        one.state.draining = True
        assert one.ask("GET", "/readyz")[0] == 503
        for path in ("/mutate", "/validate", "/nothing"):
            status, _, headers = one.ask("POST", path, orjson.dumps(review()))
            assert status == (404 if path == "/nothing" else 200)
            assert headers.get_all("connection") == ["close"]


@pytest.mark.parametrize(("closes_at", "header"), [(0.0, "close"), (1e12, None)])
def test_an_old_connection_is_ended_with_its_next_answer(closes_at: float, header: str | None) -> None:
    with running(state(), **{connection.CLOSES_AT: closes_at}) as one:
        assert one.ask("POST", "/mutate", orjson.dumps(review(object=JOB)))[2]["connection"] == header


def test_two_applications_count_apart() -> None:
    with running(state()) as one, running(state()) as two:
        one.ask("POST", "/mutate", b"")
        assert (one.errors("not-a-review"), two.errors("not-a-review")) == (1, 0)
