"""The process and what it talks to: calls over HTTP, handshakes with replicas, checks, settings, start and end."""

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner
from cryptography import x509
from prometheus_client import CollectorRegistry

from tests.test_tls import echo
from webhook.controller import replicas
from webhook.controller.api import Api, ApiError, ConnectionSettingsError, Thing, connect
from webhook.controller.crew import Crew
from webhook.controller.health import Health
from webhook.controller.lease import Lease
from webhook.controller.run import controller, plan
from webhook.controller.settings import Settings, options, table
from webhook.flags import flag, variable
from webhook.listener import bound, listening
from webhook.tls import Serving, throw_away

SECRET = Thing("/api/v1", "secrets", "a/b", "here")
MAIN = "from webhook.controller.run import controller; controller(prog_name='drainproof controller')"


def kubeconfig(folder: Path, server: str) -> Path:
    path = folder / "kubeconfig"
    named = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    contexts = [{"name": "x", "context": {"cluster": "c", "user": "u"}}]
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": contexts, **named})
    )
    return path


@contextmanager
def answering(folder: Path, status: int, body: bytes, **headers: str) -> Iterator[tuple[Api, list[Any]]]:
    """An API server that always answers the same, and what it was asked."""
    asked: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, dict(self.headers), sent))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield connect(kubeconfig(folder, f"http://127.0.0.1:{server.server_port}")), asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_call_names_its_object_and_who_asks(tmp_path: Path) -> None:
    with answering(tmp_path, 200, b'{"items": [1], "x": 2}') as (api, asked):
        assert api.get(SECRET) == {"items": [1], "x": 2}
        assert list(map(str, api.items(Thing("/apis/g/v1", "things", namespace="here"), "a=b"))) == ["1"]
        api.put(SECRET, {"a": 1})
        api.merge(SECRET, {"a": 1})
        api.patch(SECRET, [{"op": "remove"}])
        api.make(SECRET, {"a": 1}, "me")
        api.strategic(Thing("/api/v1", "pods", "p", "here", "status"), {"a": 1}, 2)
    path = "/api/v1/namespaces/here/secrets/a%2Fb"
    assert [one[:2] for one in asked] == [
        ("GET", path),
        ("GET", "/apis/g/v1/namespaces/here/things?labelSelector=a%3Db"),
        ("PUT", path),
        ("PATCH", path),
        ("PATCH", path),
        ("PATCH", path + "?fieldManager=me"),
        ("PATCH", "/api/v1/namespaces/here/pods/p/status"),
    ]
    kinds = [one[2]["Content-Type"].removeprefix("application/") for one in asked]
    patches = [f"{one}-patch+json" for one in ("merge", "json", "strategic-merge")]
    assert kinds == ["json", "json", "json", *patches[:2], "apply-patch+yaml", patches[2]]
    assert {one[2]["authorization"] for one in asked} == {"Bearer t"}
    assert json.loads(asked[4][3]) == [{"op": "remove"}]


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (403, b'{"kind": "Status", "message": "User \\"x\\" cannot\\nget"}', '403: User "x" cannot get'),
        (409, b'{"message": "changed"}', "409: changed"),
        (410, b"{}", "410: Gone"),
        (429, b"later", "429: Too Many Requests"),
        (503, b"<html>", "503: Service Unavailable"),
        (200, b"<html>", "200: the answer is no object"),
        (200, b"[]", "200: the answer is no object"),
        (302, b"", "302: Found"),
    ],
)
def test_whatever_is_answered_is_one_error_of_one_line(tmp_path: Path, status: int, body: bytes, text: str) -> None:
    with answering(tmp_path, status, body, Retry_After="7", Location="/elsewhere") as (api, asked):
        with pytest.raises(ApiError) as caught:
            api.get(SECRET)
        assert str(caught.value) == f"get secrets here/a/b: {text}"
        assert len(asked) == 1
        assert status == 200 or caught.value.retry_after == 7


def test_what_is_not_there_is_none_to_get_and_an_error_to_change(tmp_path: Path) -> None:
    with answering(tmp_path, 404, b"") as (api, _):
        assert api.get(SECRET) is None
        with pytest.raises(ApiError, match="404"):
            api.merge(SECRET, {})


def test_a_server_that_is_not_there_or_says_nothing_is_one_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api = connect(kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}"))
        monkeypatch.setattr("webhook.controller.api.SECONDS", 0.2)
        with pytest.raises(ApiError, match=r"gave no answer: .*timed out"):
            api.get(SECRET)
        with pytest.raises(ApiError, match=r"^patch pods/status here/p: .*timed out"):
            api.strategic(Thing("/api/v1", "pods", "p", "here", "status"), {}, 0.1)
    with pytest.raises(ApiError, match=r"gave no answer: .*refused") as caught:
        api.get(SECRET)
    assert caught.value.status == 0
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, "", "junk", "a: [", "{}", '{"current-context": "x", "contexts": []}'])
def test_a_kubeconfig_that_cannot_be_used_says_so(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConnectionSettingsError, match="kubeconfig") as caught:
        connect(path)
    assert "\n" not in str(caught.value)


def slice_of(*endpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 2}], "endpoints": [*endpoints], **more}


def test_replicas_are_pods_whatever_number_of_addresses_they_have() -> None:
    pod = {"targetRef": {"uid": "p"}}
    found = replicas.grouped(
        [
            slice_of({"addresses": ["10.0.0.1"], **pod}, {"addresses": ["10.0.0.2"]}),
            slice_of({"addresses": ["fd00::1"], **pod}, ports=[{"name": None, "port": 3}]),
            {"endpoints": None},
            slice_of({"addresses": ["10.0.0.3"]}, ports=None),
        ]
    )
    assert found == {
        "p": {("10.0.0.1", 2), ("fd00::1", 3)},
        "10.0.0.2": {("10.0.0.2", 2)},
        "10.0.0.3": set(),
    }


def test_what_replicas_serve_is_seen_and_those_that_show_nothing_are_counted(tmp_path: Path) -> None:
    pair = throw_away(tmp_path)
    with (
        echo(Serving(pair).context) as port,
        closing(socket.create_server(("127.0.0.1", 0))) as plain,
    ):
        plain.close()
        gone = ("127.0.0.1", plain.getsockname()[1] if plain.fileno() >= 0 else 1)
        here = ("127.0.0.1", port)
        certificates, unknown = replicas.served({"a": [gone, here], "b": [here], "c": [gone], "d": []}, "x.test")
    assert certificates == tuple(x509.load_pem_x509_certificates(pair.certificate.read_bytes()))
    assert unknown == 2
    assert replicas.served({}, "x.test") == ((), 0)


def test_health_tells_what_is_wrong() -> None:
    wrong = {"lease": "", "rotation": ""}
    health = Health(socket.socket(), live=lambda: {}, ready=lambda: wrong, registry=CollectorRegistry())
    assert health.answer("/healthz")[::2] == (200, b"ok\n")
    assert health.answer("/readyz")[::2] == (200, b"ok\n")
    wrong["rotation"] = "no way"
    assert health.answer("/readyz")[::2] == (503, b"rotation: no way\n")
    assert health.answer("/metrics")[0] == 200
    assert health.answer("/other")[0] == 404
    health.listener.close()


def read(*arguments: str, **environment: str) -> tuple[int, str, Settings | None]:
    seen: list[Settings] = []

    @click.command()
    @options
    def command(**given: Any) -> None:
        seen.append(Settings(**given))

    result = CliRunner().invoke(command, arguments, env=environment)
    return result.exit_code, result.output, seen[0] if seen else None


def test_settings_come_from_defaults_variables_and_flags() -> None:
    assert read()[2] == Settings()
    assert list(Settings().problems()) == []
    seen = read("--leaf-life", "1h30m", DRAINPROOF_LEAF_LIFE="1h", DRAINPROOF_MUTATING="a, b", DRAINPROOF_CA_LIFE="9h")[
        2
    ]
    assert seen
    assert (seen.leaf_life, seen.ca_life) == (timedelta(hours=1.5), timedelta(hours=9))
    assert seen.mutating == ("a", "b")
    help = "".join(read("--help")[1].split())
    for one in fields(Settings):
        assert flag(one) in help
        assert variable(one) in help


@pytest.mark.parametrize("value", ["90d", "", "1s", "-5h", "999999999h"])
def test_a_life_that_cannot_be_says_why(value: str) -> None:
    status, output, _ = read("--leaf-life", value)
    assert status == 2
    assert "--leaf-life" in output


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(ca_life=timedelta(days=200)), "three times"),
        (Settings(ca_secret="drainproof-tls"), "the same Secret"),
        (Settings(mutating=(), validating=()), "neither"),
        (Settings(namespace=""), "--namespace is empty"),
        (Settings(karpenter=("karpenter",)), "--karpenter: karpenter is no Deployment such as kube-system/karpenter"),
        (Settings(karpenter=("a/b", "a/b/c")), "--karpenter: a/b/c is no Deployment"),
        (Settings(controller_service=""), "--controller-service is empty"),
        (Settings(certificate=Path("tls.crt")), "--certificate and --key belong together"),
        (Settings(key=Path("tls.key")), "--certificate and --key belong together"),
        (Settings(client_ca=Path("ca.crt")), "--client-ca says who may ask at /stamp"),
    ],
)
def test_settings_that_do_not_go_together_are_a_problem(settings: Settings, text: str) -> None:
    [problem] = settings.problems()
    assert text in problem


def test_the_table_has_a_line_for_every_setting_and_no_cell_is_empty() -> None:
    lines = table().splitlines()
    assert len(lines) == 2 + len(fields(Settings))
    for line in lines:
        assert [cell.strip() for cell in line.split("|")].count("") == 2
    assert "`2160h`" in table()


def test_the_first_name_is_the_one_that_an_api_server_asks_for() -> None:
    assert plan(Settings(namespace="here")).names == (
        *("drainproof.here.svc", "drainproof.here.svc.cluster.local", "drainproof.here"),
        *(
            "drainproof-controller.here.svc",
            "drainproof-controller.here.svc.cluster.local",
            "drainproof-controller.here",
        ),
    )
    assert len(plan(Settings(controller_service="drainproof")).names) == 3


def test_every_problem_is_told_at_once() -> None:
    result = CliRunner().invoke(controller, ["--namespace", "x", "--ca-life", "1h"])
    assert result.exit_code == 2
    assert "three times" in result.output
    assert "--kubeconfig is not given" in result.output


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = ["--host", "127.0.0.1", "--port", str(taken.getsockname()[1])]
        result = CliRunner().invoke(controller, ["--kubeconfig", str(kubeconfig(tmp_path, "http://x.test")), *where])
    assert result.exit_code == 1
    assert "cannot listen on 127.0.0.1" in result.output


def test_a_port_of_the_stamp_that_is_taken_is_told_before_there_is_a_certificate(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = ["--host", "127.0.0.1", "--port", "0", "--stamp-port", str(port)]
        files = ["--certificate", str(tmp_path / "tls.crt"), "--key", str(tmp_path / "tls.key")]
        ways = ["--kubeconfig", str(kubeconfig(tmp_path, "http://x.test"))]
        result = CliRunner().invoke(controller, [*ways, *where, *files])
    assert result.exit_code == 1
    assert result.output == f"Error: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::"])
def test_a_socket_that_is_only_bound_refuses_connections_until_somebody_listens(host: str) -> None:
    with bound(host, 0) as listener:
        addresses = [(one, listener.getsockname()[1]) for one in (["127.0.0.1", "::1"] if host == "::" else [host])]
        for address in addresses:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, 5)
        listener.listen()
        for address in addresses:
            socket.create_connection(address, 5).close()
    with listening("localhost", 0) as one:
        socket.create_connection(one.getsockname()[:2], 5).close()


@dataclass
class Ending:
    """A part that, once it is told to stop, does something and says so."""

    name: str
    ended: list[str]
    does: Callable[[], object] = lambda: None

    def run(self, stop: threading.Event) -> None:
        stop.wait()
        self.does()
        self.ended.append(self.name)

    def problem(self) -> str:
        return ""

    def alive(self) -> bool:
        return True


def test_the_lease_is_given_up_after_what_works_and_before_what_answers_has_drained() -> None:
    ended: list[str] = []
    given_up, stop = threading.Event(), threading.Event()
    election = Ending("lease", ended, given_up.set)
    answering = Ending("answering", ended, lambda: given_up.wait(20))
    crew = Crew(cast(Lease, election), [Ending("works", ended, lambda: time.sleep(0.2))], [answering])
    stop.set()
    crew.run(stop)
    assert ended[0] == "works"
    assert sorted(ended[1:]) == ["answering", "lease"]
    assert given_up.is_set()


def test_without_an_api_server_it_says_so_in_a_line_goes_on_and_ends_within_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    ways = ["--kubeconfig", str(kubeconfig(tmp_path, f"http://127.0.0.1:{port}")), "--host", "127.0.0.1", "--port", "0"]
    command = [sys.executable, "-W", "error", "-c", MAIN, *ways]
    log = tmp_path / "log"
    with log.open("wb") as output:
        popen = subprocess.Popen(command, stderr=output, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        until = time.monotonic() + 20
        while b"call to the API server failed" not in log.read_bytes():
            assert time.monotonic() < until
            time.sleep(0.05)
        began = time.monotonic()
        popen.send_signal(signal.SIGTERM)
        assert popen.wait(10) == 0
        assert time.monotonic() - began < 3
    finally:
        popen.kill()
        popen.wait()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [one["message"] for one in lines] == [
        "controller started",
        "call to the API server failed",
        "stopping",
        "stopped",
    ]
    assert (lines[1]["part"], lines[1]["verb"], lines[1]["resource"]) == ("lease", "get", "leases")
