"""A steady load of Jobs on an API server, and what becomes of each one while something happens to the webhook.

All connections ask at the same moments, so that the API server needs many connections to the webhook, which kube-proxy
spreads over its replicas. Beside that, calls are made that each need a connection and a handshake of their own, by the
Service and with the CA then published, as an API server that has just started would make them.
"""

import base64
import itertools
import json
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from threading import Event
from typing import Any, Final
from urllib.parse import urlsplit

from tests.cluster.controlplane import ControlPlane

CONNECTIONS: Final = 16
PER_SECOND: Final = 80  # of all connections together; two cores run everything here
FRESH_PER_SECOND: Final = 10
SERVICE: Final = "/api/v1/namespaces/drainproof/services/drainproof"
CONFIGURATION: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/drainproof"
SECONDS: Final = 15  # for one answer; a webhook has at most three, twice
JOB: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"generateName": "load-"},
    "spec": {
        "template": {
            "metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.test/none:1"}]},
        }
    },
}


@dataclass(frozen=True, slots=True)
class Admission:
    """One Job asked for, with the times on the monotonic clock; `problem` is empty where it was created and mended."""

    began: float
    ended: float
    problem: str

    @property
    def seconds(self) -> float:
        """How long the answer took."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True)
class Row:
    """What happened in some time, and the admissions that were under way in it."""

    event: str
    seconds: float
    admissions: list[Admission]
    fresh: list[Admission]

    @property
    def lost(self) -> list[Admission]:
        """Those that were refused, or created without being mended."""
        return [one for one in self.admissions if one.problem]

    @property
    def failed(self) -> list[Admission]:
        """The calls with a connection of their own that were not answered."""
        return [one for one in self.fresh if one.problem]

    @property
    def slowest(self) -> float:
        """How many seconds the slowest took."""
        return max((one.seconds for one in self.admissions), default=0)


@dataclass(frozen=True, slots=True)
class Load:
    """A load that goes on; what was asked so far, and the rows of what happened."""

    admissions: list[Admission] = field(default_factory=list)
    fresh: list[Admission] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @contextmanager
    def during(self, event: str) -> Iterator[None]:
        """Adds the row of what happens within the block, which is looked at a second longer."""
        began = time.monotonic()
        try:
            yield
        finally:
            time.sleep(1)
            ended = time.monotonic()
            found, fresh = (
                [one for one in list(asked) if began <= one.ended and one.began < ended]
                for asked in (self.admissions, self.fresh)
            )
            self.rows.append(Row(event, ended - began, found, fresh))

    def lost_between(self) -> list[Admission]:
        """What was lost, or had a connection of its own and was not answered, while none of the rows happened."""
        told = {id(one) for row in self.rows for one in (*row.admissions, *row.fresh)}
        return [one for one in (*self.admissions, *self.fresh) if one.problem and id(one) not in told]

    def table(self) -> str:
        """The rows for a person, and the whole."""
        titles = f"{'admissions':>10} {'lost':>5} {'fresh':>6} {'failed':>6} {'seconds':>8} {'slowest':>8}"
        lines = [f"{'event':<28} {titles}"]
        seconds = self.admissions[-1].ended - self.admissions[0].began
        for row in (*self.rows, Row("all, with the time between", seconds, [*self.admissions], [*self.fresh])):
            counts = f"{len(row.admissions):>10} {len(row.lost):>5} {len(row.fresh):>6} {len(row.failed):>6}"
            lines.append(f"{row.event:<28} {counts} {row.seconds:>8.1f} {row.slowest:>8.2f}")
        return "\n".join(lines)


@contextmanager
def running(plane: ControlPlane, namespace: str) -> Iterator[Load]:
    """Dry runs of the creation of JOB as the administrator, on CONNECTIONS connections that stay, until leaving."""
    load, stop = Load(), Event()
    with ThreadPoolExecutor(CONNECTIONS + 1, thread_name_prefix="load") as pool:
        first = time.monotonic()
        going = [pool.submit(_ask_on, plane, namespace, first, load, stop) for _ in range(CONNECTIONS)]
        going.append(pool.submit(_call_on, plane, first, load, stop))
        try:
            yield load
        finally:
            stop.set()
        for one in going:
            one.result()


def _ask_on(plane: ControlPlane, namespace: str, first: float, load: Load, stop: Event) -> None:
    """One connection: asks at its times, whatever the answers are."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"
    with closing(_connected(plane)) as connection:
        for began in _times(first, CONNECTIONS / PER_SECOND, stop):
            problem = _asked(connection, path)
            load.admissions.append(Admission(began, time.monotonic(), problem))


def _call_on(plane: ControlPlane, first: float, load: Load, stop: Event) -> None:
    """Calls by the Service, each on a connection of its own that trusts what is published at the time."""
    with closing(_connected(plane)) as connection:
        address = _read(connection, SERVICE)["spec"]["clusterIP"]
        for began in _times(first, 1 / FRESH_PER_SECOND, stop):
            client = _read(connection, CONFIGURATION)["webhooks"][0]["clientConfig"]
            problem = _called(address, base64.b64decode(client["caBundle"]).decode())
            load.fresh.append(Admission(began, time.monotonic(), problem))


def _times(first: float, every: float, stop: Event) -> Iterator[float]:
    """Waits for one time after the other, and says when it is."""
    for turn in itertools.count():
        if stop.wait(max(0, first + turn * every - time.monotonic())):
            return
        yield time.monotonic()


def _connected(plane: ControlPlane) -> HTTPSConnection:
    context = ssl.create_default_context(cafile=str(plane.ca))
    context.load_cert_chain(plane.ca.with_name("admin.crt"), plane.ca.with_name("admin.key"))
    server = urlsplit(plane.server)
    return HTTPSConnection(server.hostname or "", server.port, timeout=SECONDS, context=context)


def _read(connection: HTTPSConnection, path: str) -> dict[str, Any]:
    connection.request("GET", path)
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    return found


def _called(address: str, trusted: str) -> str:
    """What was wrong with a call on a new connection; empty where it was answered."""
    context = ssl.create_default_context(cadata=trusted)
    try:
        with (
            socket.create_connection((address, 443), timeout=3) as plain,
            context.wrap_socket(plain, server_hostname="drainproof.drainproof.svc") as connection,
        ):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: drainproof\r\n\r\n")
            said = connection.recv(4096)
    except OSError as error:
        return repr(error)
    return "" if said.startswith(b"HTTP/1.1 200") else repr(said)


def _asked(connection: HTTPSConnection, path: str) -> str:
    """What was wrong with the answer; empty for a Job that was created and mended."""
    try:
        connection.request("POST", path, json.dumps(JOB), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body: dict[str, Any] = json.loads(answer.read())
    except (OSError, HTTPException, ValueError) as error:
        connection.close()  # the next request opens another one
        return f"no answer: {error!r}"
    if answer.status != 201:
        return f"{answer.status}: {body.get('message')}"
    return "" if "podFailurePolicy" in body["spec"] else "created without being mended"
