"""The real process: how it starts, what it says when it cannot, and that its end loses no request."""

import http.client
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.test_review import review
from tests.test_tls import client_pair
from webhook import connection, policyfile
from webhook.policyfile import PolicyFileError
from webhook.rules import RULES
from webhook.tls import Pair, throw_away

SECONDS = 20.0
COMMAND = [sys.executable, "-W", "error", "-m", "webhook", "serve"]
BODY = orjson.dumps(review())


@dataclass(slots=True)
class Process:
    """A server that was started with --dev and has said where it serves."""

    popen: "subprocess.Popen[bytes]"
    port: int
    ca: Path
    log: Path

    def client(self, shown: Pair | None = None) -> http.client.HTTPSConnection:
        """A client, with a certificate to show or without one."""
        context = ssl.create_default_context(cafile=self.ca)
        if shown:
            context.load_cert_chain(shown.certificate, shown.key)
        return http.client.HTTPSConnection("localhost", self.port, timeout=SECONDS, context=context)

    def status(self, path: str) -> int:
        return self.got(path)[0]

    def got(self, path: str, body: bytes | None = None, shown: Pair | None = None) -> tuple[int, str]:
        """The status and text of an answer; with a body, to a POST."""
        connection = self.client(shown)
        try:
            connection.request("POST" if body else "GET", path, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def reload_failures(self) -> float:
        lines = (line.split() for line in self.got("/metrics")[1].splitlines())
        return next(float(one[1]) for one in lines if one[0] == "drainproof_certificate_reload_failures_total")

    def waited(self, message: str) -> dict[str, Any]:
        """The log line with a message, as soon as it is there."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for entry in self.lines():
                if entry["message"] == message:
                    return entry
            time.sleep(0.02)
        raise AssertionError(f"no log line says {message}")

    def lines(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.log.read_bytes().splitlines()]


def environment(directory: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAINPROOF_")}
    return kept | {"TMPDIR": str(directory)} | more


@contextmanager
def started(directory: Path, *arguments: str, **changed: object) -> Iterator[Process]:
    """A server with --dev on a free port. `changed` are constants of its modules that it is to run with."""
    log, temporary = directory / "log", directory / "tmp"
    temporary.mkdir()
    places = {name: "connection" if hasattr(connection, name) else "serve" for name in changed}
    changes = "".join(f"{places[name]}.{name} = {value!r}; " for name, value in changed.items())
    code = f"from webhook import connection, serve; {changes}serve.serve()"
    start = [*COMMAND[:3], "-c", code] if changed else COMMAND
    command = [*start, "--dev", "--port", "0", *arguments]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment(temporary)) as popen,
    ):
        try:
            url, ca = line(popen).rpartition(":"), line(popen).rpartition(": ")
            assert url[0] == "Serving https://localhost"
            yield Process(popen, int(url[2]), Path(ca[2]), log)
        finally:
            popen.kill()
            popen.wait(SECONDS)


def line(popen: "subprocess.Popen[bytes]") -> str:
    """The next line that a process prints."""
    assert popen.stdout
    found = b""
    while not found.endswith(b"\n"):
        assert select.select([popen.stdout], [], [], SECONDS)[0], "the process prints nothing"
        letter = os.read(popen.stdout.fileno(), 1)
        assert letter, "the process has ended"
        found += letter
    return found.decode().strip()


def refused(directory: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """The exit code and the errors of a process that is not to start."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, env=environment(directory, **variables), timeout=SECONDS
    )
    assert done.stdout == b""
    assert not list(directory.glob("drainproof-*"))
    return done.returncode, done.stderr.decode()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), SECONDS).close()
    except ConnectionRefusedError:
        return False
    return True


@dataclass(slots=True)
class Client:
    """A client that asks without a pause over connections that it keeps, until no new one can be made."""

    process: Process
    enough: threading.Event
    answered: int = 0
    reconnected: int = 0
    lost: list[str] = field(default_factory=list)

    def run(self) -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            connection = self.process.client()
            try:
                connection.connect()
            except OSError:
                return
            self.reconnected += 1
            try:
                self.ask_on(connection)
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
            finally:
                connection.close()
        self.lost.append("the server did not end")

    def ask_on(self, connection: http.client.HTTPSConnection) -> None:
        ends = False
        while not ends:
            connection.request("POST", "/mutate", BODY, {"content-type": "application/json"})
            answer = connection.getresponse()
            ends = answer.getheader("connection") == "close"
            assert orjson.loads(answer.read())["response"]["allowed"] is True
            self.answered += 1
            if self.answered == 100:
                self.enough.set()


def test_sigterm_under_running_clients_loses_no_request(tmp_path: Path) -> None:
    with started(tmp_path, "--drain-seconds", "2") as process:
        clients = [Client(process, threading.Event()) for _ in range(4)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for client in clients:
            assert client.enough.wait(SECONDS)
        begun = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(SECONDS)
        assert process.popen.wait(SECONDS) == 0
        assert 1.5 < time.monotonic() - begun < 8
    assert [client.lost for client in clients] == [[]] * 4
    assert all(client.reconnected > 1 for client in clients), "each was told to come again during the drain"
    decided = [entry for entry in process.lines() if entry["message"] == "review decided"]
    assert len(decided) == sum(client.answered for client in clients)


def test_a_drain_fails_readiness_at_once_and_goes_on_answering(tmp_path: Path) -> None:
    with started(tmp_path, "--drain-seconds", "3") as process:
        idle = process.client()
        idle.connect()
        assert process.status("/readyz") == 200
        process.popen.send_signal(signal.SIGTERM)
        until = time.monotonic() + 2
        while process.status("/readyz") != 503:
            assert time.monotonic() < until
        assert process.status("/healthz") == 200
        idle.request("POST", "/validate", BODY)
        answer = idle.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        idle.close()
        assert process.popen.wait(SECONDS) == 0
        assert not process.ca.parent.exists()
    messages = [entry["message"] for entry in process.lines()]
    assert messages[0] == "serving"
    assert messages[-1] == "stopped"
    assert "draining" in messages


def test_an_idle_connection_is_closed_at_the_end_of_the_drain_and_does_not_hold_it_up(tmp_path: Path) -> None:
    with started(tmp_path, "--drain-seconds", "1") as process:
        idle = process.client()
        idle.request("GET", "/healthz")
        assert idle.getresponse().read() == b"ok\n"
        process.popen.send_signal(signal.SIGINT)
        assert idle.sock is not None
        assert idle.sock.recv(1) == b"", "closed in good order, not reset"
        idle.close()
        assert process.popen.wait(4) == 0


def test_a_connection_made_before_listening_ends_may_still_ask_afterwards(tmp_path: Path) -> None:
    with started(tmp_path, "--drain-seconds", "4") as process:
        early = process.client()
        early.connect()
        process.popen.send_signal(signal.SIGTERM)
        while is_listening(process.port):
            time.sleep(0.01)
        early.request("POST", "/mutate", BODY)
        answer = early.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        early.close()
        assert process.popen.wait(SECONDS) == 0


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with started(tmp_path, "--drain-seconds", "600") as process:
        idle = process.client()
        idle.connect()
        process.popen.send_signal(signal.SIGTERM)
        while process.status("/readyz") != 503:
            assert process.popen.poll() is None
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(5) == 1
        idle.close()
    assert not process.ca.parent.exists()
    assert process.lines()[-1]["drained"] is False


def test_headers_without_end_are_refused(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        connection = process.client()
        connection.connect()
        assert connection.sock is not None
        connection.sock.sendall(b"POST /mutate HTTP/1.1\r\nx: " + b"x" * (70 << 10))
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        assert (answer.status, answer.read()) == (400, b"The headers are too long.")
        connection.close()


def test_headers_that_do_not_come_are_not_waited_for(tmp_path: Path) -> None:
    with started(tmp_path, HEAD_SECONDS=0.2) as process:
        connection = process.client()
        connection.connect()
        assert connection.sock is not None
        connection.sock.sendall(b"POST /mutate HT")
        assert connection.sock.recv(1) == b""
        connection.close()


def test_a_connection_that_has_become_old_is_ended_with_an_answer(tmp_path: Path) -> None:
    with started(tmp_path, AGE_SECONDS=(0.0, 0.0)) as process:
        connection = process.client()
        connection.request("POST", "/mutate", BODY)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("connection")) == (200, "close")
        connection.close()


def test_a_connection_on_which_nothing_is_asked_is_closed_after_the_keep_alive_time(tmp_path: Path) -> None:
    with started(tmp_path, "--keep-alive-seconds", "1") as process:
        connection = process.client()
        connection.connect()
        assert connection.sock is not None
        assert connection.sock.recv(1) == b""
        connection.close()


def replaced(new: Path, old: Path) -> None:
    """Puts a file in the place of another as a whole: what is half written would be told of too."""
    shutil.copy(new, whole := old.with_suffix(".new"))
    whole.replace(old)


def test_a_new_certificate_is_taken_over_by_the_running_process_and_a_broken_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = throw_away(tmp_path / "new")
    with started(tmp_path, "--reload-seconds", "0.05") as process:
        before, served = process.client(), process.ca.parent
        before.request("GET", "/healthz")
        assert before.getresponse().read() == b"ok\n"
        replaced(new.certificate, served / "tls.crt")  # the key does not belong to it
        said = process.waited("certificate not taken over")
        assert "cannot be used" in said["reason"]
        assert process.got("/readyz") == (200, "ok\n"), "what is served still works"
        assert "\ncertificate: ok; the files on disk cannot be used: " in process.got("/readyz?verbose")[1]
        assert process.reload_failures() > 0
        replaced(new.key, served / "tls.key")
        process.waited("certificate taken over")
        assert new.ca
        after = Process(process.popen, process.port, new.ca, process.log)
        assert "\ncertificate: ok\n" in after.got("/readyz?verbose")[1]
        count = after.reload_failures()
        time.sleep(0.2)
        assert after.reload_failures() == count
        before.request("GET", "/healthz")
        assert before.getresponse().read() == b"ok\n"
        before.close()
    assert [entry["message"] for entry in process.lines()].count("certificate not taken over") == 1


def test_a_ready_server_serves_the_good_pair_on_disk_whenever_it_looked_last(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    new = throw_away(tmp_path / "new")
    with started(tmp_path, "--reload-seconds", "1200") as process:
        for name in ("certificate", "key"):
            shutil.copy(getattr(new, name), process.ca.parent / getattr(new, name).name)
        assert process.status("/readyz") == 200
        assert new.ca
        assert Process(process.popen, process.port, new.ca, process.log).status("/readyz") == 200


def test_with_a_client_ca_reviews_need_a_certificate_and_probes_do_not(tmp_path: Path) -> None:
    known, foreign = client_pair(tmp_path, "known"), client_pair(tmp_path, "foreign")
    with started(tmp_path, "--client-ca", str(known.ca)) as process:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert process.status(path) == 200
        for path in ("/mutate", "/validate"):
            status, text = process.got(path, BODY)
            assert (status, text.count("."), text[-2:]) == (403, 1, ".\n")
            assert "showed none" in text
            assert process.got(path, BODY, known)[0] == 200
        for path in ("/mutate", "/readyz"):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                process.got(path, BODY, foreign)
        assert 'drainproof_errors_total{reason="unknown-client"} 2.0' in process.got("/metrics")[1]


def test_without_a_client_ca_no_certificate_is_asked_for(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert process.got("/mutate", BODY)[0] == 200
        assert process.got("/mutate", BODY, client_pair(tmp_path, "any"))[0] == 200


def test_without_dev_it_serves_the_pair_given_by_variables_and_says_where(tmp_path: Path) -> None:
    pair = throw_away(tmp_path)
    given = {"DRAINPROOF_CERTIFICATE": str(pair.certificate), "DRAINPROOF_KEY": str(pair.key), "DRAINPROOF_PORT": "0"}
    variables = environment(tmp_path, DRAINPROOF_HOST="127.0.0.1", DRAINPROOF_DRAIN_SECONDS="0", **given)
    with subprocess.Popen(COMMAND, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=variables) as popen:
        try:
            assert popen.stderr
            assert select.select([popen.stderr], [], [], SECONDS)[0]
            said = orjson.loads(popen.stderr.readline())
            assert (said["message"], said["host"], said["policy"]) == ("serving", "127.0.0.1", "default")
            assert pair.ca
            process = Process(popen, said["port"], pair.ca, tmp_path)
            assert process.status("/readyz") == 200
            popen.send_signal(signal.SIGTERM)
            assert popen.wait(SECONDS) == 0
        finally:
            popen.kill()


def test_without_a_certificate_it_says_what_to_give(tmp_path: Path) -> None:
    code, errors = refused(tmp_path)
    assert code == 2
    assert "give --certificate and --key (or DRAINPROOF_CERTIFICATE and DRAINPROOF_KEY), or --dev" in errors


def test_a_setting_that_is_wrong_names_its_flag_and_its_variable(tmp_path: Path) -> None:
    code, errors = refused(tmp_path, DRAINPROOF_PORT="many")
    assert code == 2
    assert "--port" in errors
    assert "DRAINPROOF_PORT" in errors


def test_everything_that_is_wrong_is_said_at_once_and_nothing_is_started(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "apiVersion: drainproof.dev/v1\nkind: Policies\nrules:\n  grace-budgets: {}\n  restart-policy: {level: loud}\n"
    )
    none = str(tmp_path / "none")
    code, errors = refused(tmp_path, "--policy", str(file), "--certificate", none, "--key", none)
    assert code == 2
    assert f"Error: {file}:2: kind: " in errors
    assert f"Error: {file}:4: rules.grace-budgets: " in errors
    assert f"Error: {file}:5: rules.restart-policy.level: " in errors
    assert f"Error: {none} cannot be read: No such file or directory" in errors


def test_a_port_in_use_is_one_plain_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = refused(tmp_path, "--dev", "--port", str(port))
    assert (code, errors) == (1, f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use\n")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"kind: Policy\nkind: Policy\n", ":2: the key kind is there twice"),
        (b"a: [1\nb: 2\n", ":2: "),
        (b"a: 1\n---\nb: 2\n", ":2: a second document starts here; a policy is one document"),
        (b"\xff\xfe\x00", ": it is not text in UTF-8"),
        (b"a: \x07", ":1: "),
        (b"", ": the document: it must be a map"),
        (b"[" * 5000, ":1: it is nested more than 200 levels deep"),
        (None, ": it cannot be read: No such file or directory"),
    ],
)
def test_a_policy_file_that_is_no_document_says_so_with_its_line(
    tmp_path: Path, content: bytes | None, text: str
) -> None:
    file = tmp_path / "policy.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PolicyFileError) as error:
        policyfile.load(file, RULES)
    assert error.value.problems[0].startswith(f"{file}{text}")


def test_a_policy_file_may_be_json_or_yaml(tmp_path: Path) -> None:
    file = tmp_path / "policy"
    for content in (
        '{"apiVersion": "drainproof.dev/v1", "kind": "Policy", "rules": {"grace-budget": {"level": "deny"}}}',
        "apiVersion: drainproof.dev/v1\nkind: Policy\nrules:\n  grace-budget:\n    level: deny\n",
    ):
        file.write_text(content)
        assert policyfile.load(file, RULES).ruleset.settings["grace-budget"].level == "deny"


def test_a_signal_during_the_start_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "webhook", "serve", "--dev", "--port", "0", "--drain-seconds", "0"]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL) as started:
        end = time.monotonic() + SECONDS
        while not list(tmp_path.glob("drainproof-*")) and time.monotonic() < end:
            time.sleep(0.001)
        started.terminate()
        assert started.wait(SECONDS) == 0
    assert list(tmp_path.iterdir()) == []
