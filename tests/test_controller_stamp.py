"""/stamp of the controller: what is stored for a deletion, that everything else lets it pass, and how it is served."""

import asyncio
import http.client
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.tables import policy_of
from tests.test_controller_run import MAIN, kubeconfig
from tests.test_stamp import NOW, ON, POD, POLICY, deletion
from tests.test_tls import client_pair
from webhook import intake, policyfile
from webhook.controller import deletion as deletions
from webhook.controller import stamp as stamps
from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.deletion import Desk
from webhook.controller.metrics import Complaints, Metrics, metrics
from webhook.controller.run import composed
from webhook.controller.settings import Settings
from webhook.controller.stamp import Files, Stamp
from webhook.core.policy import Policy
from webhook.core.stamp import patch
from webhook.listener import bound
from webhook.review import ReviewError
from webhook.rules import RULES
from webhook.tls import Pair, throw_away
from webhook.watched import Watched

SECONDS: Final = 20.0
STATUS: Final = Thing("/api/v1", "pods", "sums-x7k2p", "data", "status")
BODY: Final = orjson.dumps(deletion())
USER: Final = deletion()["request"]["userInfo"]["username"]
ALLOWED: Final = {"uid": "u-1", "allowed": True}
AUDITED: Final = {**ALLOWED, "auditAnnotations": {"mended": "disruption-stamp"}}
OUTCOMES: Final = ("stamped", "dry-run", "left", "failed")


class Pods(Api):
    """An API server that stores what it is told, does something first, and keeps what it was asked."""

    def __init__(self, does: Callable[[], object] = lambda: None) -> None:
        self.does = does
        self.asked: list[tuple[Thing, Any]] = []

    def strategic(self, thing: Thing, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert 0 < seconds < 3
        self.asked.append((thing, body))
        self.does()
        return {}


def refusing(status: int) -> Callable[[], object]:
    def refuse() -> object:
        raise ApiError("patch", STATUS, status, "no")

    return refuse


def desk(api: Api, policy: Policy | None = POLICY) -> Desk:
    counted = metrics()
    return Desk(api, lambda: policy, counted, Complaints(counted), ThreadPoolExecutor(2), now=lambda: NOW)


def answered(one: Desk, review: Any = None) -> dict[str, Any]:
    try:
        answer = asyncio.run(one.answer(orjson.dumps(review or deletion())))
    finally:
        one.workers.shutdown()
    response: dict[str, Any] = orjson.loads(answer)["response"]
    return response


def counts(counted: Metrics) -> dict[str, float]:
    """How often each outcome was counted, without those that were not."""
    sample = partial(counted.registry.get_sample_value, "drainproof_controller_stamps_total")
    return {one: count for one in OUTCOMES if (count := sample({"outcome": one}))}


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    records = [one for one in caplog.records if one.getMessage() == message]
    return [{"level": one.levelname, **one.__dict__["fields"]} for one in records]


def test_a_deletion_by_force_is_stamped_with_one_call_and_allowed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    api = Pods()
    one = desk(api)
    assert answered(one) == AUDITED
    assert api.asked == [(STATUS, patch(POD, USER, NOW))]
    assert counts(one.metrics) == {"stamped": 1}
    (line,) = lines(caplog, "deletion reviewed")
    assert line.pop("ms") >= 0
    assert line == {
        "level": "INFO",
        "uid": "u-1",
        "namespace": "data",
        "name": "sums-x7k2p",
        "user": USER,
        "dryRun": False,
        "outcome": "stamped",
        "reason": "",
    }


def test_every_outcome_is_counted_from_the_start() -> None:
    counted = metrics().registry
    names = [counted.get_sample_value("drainproof_controller_stamps_total", {"outcome": one}) for one in OUTCOMES]
    assert names == [0, 0, 0, 0]


def test_a_dry_run_writes_nothing() -> None:
    api = Pods()
    one = desk(api)
    assert answered(one, deletion(dryRun=True)) == AUDITED
    assert api.asked == []
    assert counts(one.metrics) == {"dry-run": 1}


@pytest.mark.parametrize(
    ("review", "policy", "reason", "audited"),
    [
        (deletion(userInfo={"username": "jane"}), POLICY, "user", {}),
        (deletion(oldObject={"metadata": {"ownerReferences": []}}), POLICY, "owner", {}),
        (deletion(operation="CONNECT"), POLICY, "operation", {}),
        (deletion(), policy_of(), "off", {}),
        (deletion(), policy_of(ON, exempt=[{"names": ["sums"]}]), "exempt", {"exempt": "*: policy"}),
        (deletion(), policy_of(ON, mode="monitor"), "monitor", {"mended": "disruption-stamp", "mode": "monitor"}),
        (deletion(), None, "no policy", {}),
    ],
)
def test_what_is_not_to_be_stamped_is_left_and_says_why(
    review: Any, policy: Policy | None, reason: str, audited: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    api = Pods()
    one = desk(api, policy)
    assert answered(one, review) == {**ALLOWED, **({"auditAnnotations": audited} if audited else {})}
    assert api.asked == []
    assert counts(one.metrics) == {"left": 1}
    assert [line["reason"] for line in lines(caplog, "deletion reviewed")] == [reason]


@pytest.mark.parametrize("status", [0, 403, 404, 409, 422, 429, 500])
def test_whatever_the_api_server_refuses_the_deletion_goes_on_with_one_clear_line(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    one = desk(Pods(refusing(status)))
    assert answered(one) == ALLOWED
    assert counts(one.metrics) == {"failed": 1}
    (line,) = lines(caplog, "call to the API server failed")
    assert line["level"] == ("ERROR" if status in (403, 422) else "WARNING")
    assert {line["part"], line["verb"], line["resource"], line["status"]} == {"stamp", "patch", "pods/status", status}
    told = str(ApiError("patch", STATUS, status, "no"))
    assert [line["reason"] for line in lines(caplog, "deletion reviewed")] == [told]
    labels = {"verb": "patch", "resource": "pods/status", "status": str(status)}
    assert one.metrics.registry.get_sample_value("drainproof_controller_api_errors_total", labels) == 1


def test_a_verb_that_is_missing_is_told_once_and_not_for_each_pod(caplog: pytest.LogCaptureFixture) -> None:
    one = desk(Pods(refusing(403)))

    async def many() -> None:
        for number in range(20):
            await one.answer(orjson.dumps(deletion(oldObject={"metadata": {"name": f"pod-{number}"}})))

    asyncio.run(many())
    assert counts(one.metrics) == {"failed": 20}
    assert len(lines(caplog, "call to the API server failed")) == 1


def test_a_call_that_hangs_holds_up_no_deletion_and_no_more_calls_are_made_than_may_be(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(deletions, "ANSWER_SECONDS", 0.3)
    goes_on = threading.Event()
    api = Pods(lambda: goes_on.wait(SECONDS))
    one = desk(api)

    async def together() -> list[bytes]:
        return await asyncio.gather(*(one.answer(BODY) for _ in range(10)))

    began = time.monotonic()
    try:
        answers = asyncio.run(together())
    finally:
        goes_on.set()
        one.workers.shutdown()
    assert time.monotonic() - began < 5
    assert [orjson.loads(answer)["response"] for answer in answers] == [ALLOWED] * 10
    assert counts(one.metrics) == {"failed": 10}
    assert len(api.asked) == 2, "two threads were there to make calls, and what waited for them is not done any more"
    assert "it is not done after 0.3 seconds" in lines(caplog, "call to the API server failed")[0]["reason"]


def test_the_answer_comes_before_the_api_server_gives_up() -> None:
    assert deletions.CALL_SECONDS < deletions.ANSWER_SECONDS < 3


def raises(*_: Any) -> Any:
    raise KeyError("a bug")


@pytest.mark.parametrize("where", ["webhook.controller.deletion.judge", "webhook.core.stamp.patch", "the call"])
def test_a_fault_of_ours_lets_the_deletion_pass_and_is_logged_with_its_trace(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk(Pods(raises if where == "the call" else lambda: None))
    if where != "the call":
        monkeypatch.setattr(where, raises)
    assert answered(one) == ALLOWED
    assert counts(one.metrics) == {"failed": 1}
    (record,) = (record for record in caplog.records if record.levelno >= logging.ERROR)
    assert record.exc_info
    assert record.__dict__["fields"] == {"uid": "u-1"}


def test_what_is_no_review_is_not_answered_as_one() -> None:
    one = desk(Pods())
    with pytest.raises(ReviewError, match="not JSON"):
        asyncio.run(one.answer(b"hello"))
    assert counts(one.metrics) == {}


# The part, over TLS.


@dataclass
class Running:
    """The part in a thread."""

    part: Stamp
    stop: threading.Event
    thread: threading.Thread
    api: Pods = field(default_factory=Pods)

    @property
    def port(self) -> int:
        return int(self.part.listener.getsockname()[1])

    @property
    def metrics(self) -> Metrics:
        return self.part.desk.metrics

    def refused(self, reason: str) -> float | None:
        return self.metrics.registry.get_sample_value("drainproof_controller_stamp_errors_total", {"reason": reason})

    def client(self, pair: Pair, shown: Pair | None = None) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=pair.ca)
        if shown:
            context.load_cert_chain(shown.certificate, shown.key)
        return http.client.HTTPSConnection("localhost", self.port, timeout=SECONDS, context=context)

    def ask(self, pair: Pair, body: Any = BODY, **how: Any) -> tuple[int, str, http.client.HTTPMessage]:
        connection = self.client(pair, how.get("shown"))
        try:
            connection.request(how.get("method", "POST"), how.get("path", "/stamp?timeout=3s"), body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()


@contextmanager
def running(pair: Pair, serves: bool = True, **changes: Any) -> Iterator[Running]:
    """The part on a free port with a policy that stamps. On leaving it has ended."""
    api, counted = Pods(), metrics()
    files = Files(pair, changes.pop("client_ca", None), changes.pop("policy", POLICY))
    one = Desk(api, files.policy_in_force, counted, Complaints(counted))
    with bound("127.0.0.1", 0) as listener:
        part = Stamp(listener, files, one, look_seconds=0.05, **changes)
        stop = threading.Event()
        thread = threading.Thread(target=part.run, args=(stop,))
        thread.start()
        try:
            if serves:
                waited(lambda: part.problem() == "")
            yield Running(part, stop, thread, api)
        finally:
            stop.set()
            thread.join(SECONDS)
            assert not thread.is_alive()


def waited(holds: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


@pytest.fixture(autouse=True)
def brief_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stamps, "DRAIN_SECONDS", 0.2)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    (tmp_path / "pair").mkdir()
    return throw_away(tmp_path / "pair")


def test_a_review_is_answered_as_json(pair: Pair) -> None:
    with running(pair) as one:
        status, text, headers = one.ask(pair)
        assert (status, headers["content-type"]) == (200, "application/json")
        assert orjson.loads(text)["response"] == AUDITED
        assert headers["connection"] is None
        assert [thing for thing, _ in one.api.asked] == [STATUS]
        assert one.part.alive()


def test_bad_calls_are_refused_in_a_sentence_counted_by_their_fault_and_stamp_nothing(pair: Pair) -> None:
    with running(pair, body_seconds=0.3) as one:
        cases = {
            "not-a-review": (400, one.ask(pair, b"hello")),
            "too-large": (413, one.ask(pair, b" " * (intake.BODY_BYTES + 1))),
            "slow-body": (408, half(one, pair)),
        }
        for fault, (status, (found, text, _)) in cases.items():
            assert (found, text[-2:], text.count("\n")) == (status, ".\n", 1), fault
            assert one.refused(fault) == 1
        assert one.ask(pair, method="GET")[:2] == (405, "This method is not allowed here; use POST.\n")
        for path in ("/", "/stamp/", "/mutate", "/healthz"):
            found, text, _ = one.ask(pair, path=path)
            assert (found, text) == (404, "There is nothing here: reviews of deletions go to /stamp.\n")
        assert one.api.asked == []
        assert counts(one.metrics) == {}


def half(one: Running, pair: Pair) -> tuple[int, str, http.client.HTTPMessage]:
    """What comes of a request that never sends the rest of its body."""
    connection = one.client(pair)
    connection.connect()
    assert connection.sock is not None
    connection.sock.sendall(b"POST /stamp HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
    answer = http.client.HTTPResponse(connection.sock)
    answer.begin()
    try:
        return answer.status, answer.read().decode(), answer.headers
    finally:
        connection.close()


def test_headers_without_end_are_refused(pair: Pair) -> None:
    with running(pair) as one:
        connection = one.client(pair)
        connection.connect()
        assert connection.sock is not None
        connection.sock.sendall(b"POST /stamp HTTP/1.1\r\nx: " + b"x" * (70 << 10))
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        assert (answer.status, answer.read()) == (400, b"The headers are too long.")
        connection.close()


def test_with_a_client_ca_only_known_clients_are_answered(pair: Pair, tmp_path: Path) -> None:
    known = client_pair(tmp_path, "known")
    with running(pair, client_ca=known.ca) as one:
        status, text, _ = one.ask(pair)
        assert (status, "showed none" in text) == (403, True)
        assert one.refused("unknown-client") == 1
        assert one.api.asked == []
        assert one.ask(pair, shown=known)[0] == 200


def test_while_there_is_no_certificate_connections_are_refused_and_each_reason_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = Pair(tmp_path / "tls.crt", tmp_path / "tls.key")
    with running(missing, serves=False) as one:
        said = partial(lines, caplog, "stamp waits for its certificate")
        waited(said)
        time.sleep(0.3)
        assert [line["reason"] for line in said()] == [
            f"{missing.certificate} cannot be read: No such file or directory"
        ]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", one.port), SECONDS)
        assert one.part.problem() == "it waits for its certificate"
        assert one.part.alive()
        missing.certificate.write_text("junk")
        waited(lambda: len(said()) == 2)
        made = throw_away(new_folder(tmp_path))
        shutil.copy(made.key, missing.key)
        shutil.copy(made.certificate, missing.certificate)
        waited(lambda: one.part.problem() == "")
        assert one.ask(made)[0] == 200


def new_folder(path: Path, name: str = "made") -> Path:
    (path / name).mkdir()
    return path / name


def test_a_controller_that_has_waited_for_its_certificate_long_enough_is_ready_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "UNREADY_SECONDS", 0.2)
    with running(Pair(tmp_path / "tls.crt", tmp_path / "tls.key"), serves=False) as one:
        waited(lambda: one.part.problem() == "")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", one.port), SECONDS)


def test_it_ends_at_once_while_it_waits(tmp_path: Path) -> None:
    began = time.monotonic()
    with running(Pair(tmp_path / "tls.crt", tmp_path / "tls.key"), serves=False):
        pass
    assert time.monotonic() - began < 2


def test_a_new_certificate_is_taken_over_and_a_broken_one_is_not(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    new = throw_away(new_folder(tmp_path))
    with running(pair) as one:
        served = Pair(pair.certificate, pair.key, tmp_path / "ca")
        assert pair.ca
        shutil.copy(pair.ca, tmp_path / "ca")
        shutil.copy(new.certificate, pair.certificate)  # the key does not belong to it
        waited(lambda: lines(caplog, "certificate not taken over"))
        assert one.ask(served)[0] == 200
        assert one.part.problem() == ""
        shutil.copy(new.key, pair.key)
        waited(lambda: lines(caplog, "certificate taken over"))
        assert one.ask(new)[0] == 200
        with pytest.raises(ssl.SSLError):
            one.ask(served)
    assert len(lines(caplog, "certificate not taken over")) == 1


def written(path: Path, fix: object) -> Watched[Policy]:
    rules = {"disruption-stamp": {"fix": fix}}
    path.write_bytes(orjson.dumps({"apiVersion": "drainproof.dev/v1", "kind": "Policy", "rules": rules}))
    return Watched(path, partial(policyfile.stated, rules=RULES))


def test_a_policy_is_taken_over_when_it_changes_and_the_last_good_one_stays(
    pair: Pair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "drainproof")
    path = tmp_path / "policy.json"
    with running(pair, policy=written(path, False)) as one:
        assert orjson.loads(one.ask(pair)[1])["response"] == ALLOWED
        written(path, True)
        waited(lambda: len(lines(caplog, "policy taken over")) == 2)
        assert orjson.loads(one.ask(pair)[1])["response"] == AUDITED
        written(path, "perhaps")
        (line,) = waited(lambda: lines(caplog, "policy not taken over"))
        assert "rules.disruption-stamp.fix" in line["reason"]
        assert orjson.loads(one.ask(pair)[1])["response"] == AUDITED
        assert one.part.problem() == ""


def test_a_policy_that_could_never_be_used_stamps_nothing_is_no_end_and_keeps_from_being_ready(
    pair: Pair, tmp_path: Path
) -> None:
    path = tmp_path / "policy.json"
    with running(pair, serves=False, policy=written(path, "perhaps")) as one:
        waited(lambda: "cannot be used" in one.part.problem() and one.part._serves)
        assert orjson.loads(one.ask(pair)[1])["response"] == ALLOWED
        assert counts(one.metrics) == {"left": 1}
        written(path, True)
        waited(lambda: one.part.problem() == "")
        assert orjson.loads(one.ask(pair)[1])["response"] == AUDITED


def test_a_fault_while_looking_at_files_ends_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(pair) as one:
        monkeypatch.setattr("webhook.tls.Serving.reload", raises)
        waited(lambda: [record for record in caplog.records if record.getMessage() == "files not looked at"])
        assert one.ask(pair)[0] == 200
        assert one.part.alive()


def test_at_the_end_it_goes_on_answering_for_the_drain_and_ends_each_connection(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "DRAIN_SECONDS", 3.0)
    with running(pair) as one:
        idle, early = one.client(pair), one.client(pair)
        idle.connect()
        early.connect()
        one.stop.set()
        waited(lambda: one.part._draining)
        early.request("POST", "/stamp", BODY)
        answer = early.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        assert one.ask(pair)[0] == 200, "a new connection during the drain"
        assert idle.sock is not None
        assert idle.sock.recv(1) == b"", "closed in good order, not reset"
        one.thread.join(SECONDS)
        early.close()
        idle.close()
    assert counts(one.metrics) == {"stamped": 2}


def test_a_stamp_that_is_being_stored_when_the_end_comes_is_stored(pair: Pair) -> None:
    with running(pair) as one:
        began = threading.Event()

        def slowly() -> None:
            began.set()
            time.sleep(1.0)

        one.api.does = slowly
        with ThreadPoolExecutor(1) as client:
            asked = client.submit(one.ask, pair)
            assert began.wait(SECONDS)
            one.stop.set()
            assert orjson.loads(asked.result()[1])["response"] == AUDITED
    assert counts(one.metrics) == {"stamped": 1}


# What the command makes of its settings.


def names(*changes: Any, **settings: Any) -> list[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener, bound("127.0.0.1", 0) as address:
        crew = composed(Settings(**settings), Pods(), listener, address if changes else None)
    return [part.name for part in (*crew.parts, *crew.answering)]


def test_the_parts_are_those_that_the_settings_ask_for(tmp_path: Path) -> None:
    pair = {"certificate": tmp_path / "tls.crt", "key": tmp_path / "tls.key"}
    watching, rest = ["watch", "findings"], ["discovery", "health"]
    assert names() == ["rotation", "injection", *watching, *rest]
    assert names("stamp", **pair) == ["rotation", "injection", *watching, *rest, "stamp"]
    few = {"certificates": "external", "policy": tmp_path / "p"}
    assert names("stamp", **pair, **few) == [*watching, *rest, "stamp"]
    assert names("stamp", **pair, **few, no_watch=True, no_discovery=True) == ["health", "stamp"]
    assert names(**few, no_watch=True) == ["discovery", "policy", "health"]


def test_without_an_api_server_deletions_are_allowed_in_time_and_the_process_ends_after_its_drain(
    tmp_path: Path, pair: Pair
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # It takes connections and says nothing.
        written(tmp_path / "policy.json", True)
        where = ["--kubeconfig", str(kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}"))]
        where += ["--host", "127.0.0.1", "--port", "0", "--stamp-port", "0", "--policy", str(tmp_path / "policy.json")]
        files = ["--certificate", str(pair.certificate), "--key", str(pair.key)]
        log = tmp_path / "log"
        with log.open("wb") as output:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-W", "error", "-c", MAIN, *where, *files]
            popen = subprocess.Popen(command, stderr=output, env=environment)
        try:
            told = waited(lambda: [one for one in entries(log) if one["message"] == "stamp served"])
            context = ssl.create_default_context(cafile=pair.ca)
            connection = http.client.HTTPSConnection("localhost", told[0]["port"], timeout=SECONDS, context=context)
            began = time.monotonic()
            connection.request("POST", "/stamp", BODY)
            answer = connection.getresponse()
            assert (answer.status, orjson.loads(answer.read())["response"]) == (200, ALLOWED)
            assert time.monotonic() - began < 3
            popen.send_signal(signal.SIGTERM)
            connection.request("POST", "/stamp", orjson.dumps(deletion(userInfo={"username": "jane"})))
            answer = connection.getresponse()
            assert (answer.status, orjson.loads(answer.read())["response"]) == (200, ALLOWED)
            connection.close()
            assert popen.wait(SECONDS) == 0
        finally:
            popen.kill()
            popen.wait()
    reviewed = [(one["outcome"], one["reason"][:21]) for one in entries(log) if one["message"] == "deletion reviewed"]
    assert reviewed == [("failed", "patch pods/status dat"), ("left", "user")]
    assert [one["part"] for one in entries(log) if one["message"] == "part does not end"] == []


def entries(log: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log.read_bytes().splitlines()]
