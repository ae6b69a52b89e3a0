"""Our webhook as a process of its own, and its configurations in a control plane."""

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from ruamel.yaml import YAML
from starlette.types import ASGIApp

from tests.cluster import process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import Process
from webhook import tls

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIGURATIONS: Final = ROOT / "deploy" / "base"
CANARY: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "canary", "namespace": "default"},
    "spec": {
        "template": {
            "metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "1d"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.test/c:1"}]},
        }
    },
}
_PATIENCE: Final = 30  # seconds for the API server to call the webhook


@dataclass(frozen=True)
class Endpoint:
    """Where a webhook serves on this machine, and the CA (a file) of its certificate."""

    url: str
    ca: Path

    def client_config(self, path: str) -> dict[str, str]:
        """How a webhook configuration names this endpoint."""
        return {"url": self.url + path, "caBundle": base64.b64encode(self.ca.read_bytes()).decode()}


@dataclass(frozen=True)
class Deployment(Endpoint):
    """Our webhook as a process, and the log that it writes."""

    process: Process
    log: Path

    def decided(self) -> list[dict[str, Any]]:
        """The log lines of decided requests so far, oldest first."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if "uid" in line]


@contextmanager
def serving(directory: Path, *flags: str) -> Iterator[Deployment]:
    """Our webhook with a throw-away certificate on a free loopback port; ended by SIGTERM, within a bounded time.

    Raises ProcessError where it does not serve within 60 s.
    """
    log = directory / "webhook.log"
    command = [sys.executable, "-m", "webhook", "serve", "--dev", "--port", "0", "--drain-seconds", "0", *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    started = process.start("drainproof", command, log, environment)
    try:
        url, ca = _announced(started, log)
        yield Deployment(url, ca, started, log)
    finally:
        process.stop(started)


def _announced(started: Process, log: Path) -> tuple[str, Path]:
    """The address and the CA that the webhook prints once it listens."""
    found: list[str] = []

    def said() -> bool:
        match = re.search(r"Serving (https://\S+)\nThe CA of its certificate: (.+)\n", log.read_text())
        found.extend(match.groups() if match else ())
        return bool(match)

    process.wait_ready([started], said)
    return found[0], Path(found[1])


@contextmanager
def in_thread(application: ASGIApp, directory: Path) -> Iterator[Endpoint]:
    """An application served over TLS by a thread of this process, so that a test can change what it stands on."""
    pair = tls.throw_away(directory)
    context = tls.Serving(pair).context
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_keep_alive=120,
        ssl_context_factory=lambda _config, _default: context,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        assert pair.ca is not None
        yield Endpoint(f"https://localhost:{listener.getsockname()[1]}", pair.ca)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        listener.close()


def configurations(endpoint: Endpoint) -> list[dict[str, Any]]:
    """The shipped webhook configurations, with the Service replaced by the address of a local process."""
    documents = [YAML(typ="safe").load(path) for path in sorted(CONFIGURATIONS.glob("*ing.yaml"))]
    for webhook in (webhook for document in documents for webhook in document["webhooks"]):
        webhook["clientConfig"] = endpoint.client_config(webhook["clientConfig"]["service"]["path"])
    return documents


@contextmanager
def registered(
    plane: ControlPlane, documents: Sequence[Mapping[str, Any]], in_force: Callable[[ControlPlane], bool]
) -> Iterator[None]:
    """Webhook configurations in the control plane until leaving; on entering, `in_force` holds.

    The API server learns of them by a watch, so that they are not in force at once. Raises ProcessError after 30 s.
    """
    names = [f"{document['kind']}/{document['metadata']['name']}" for document in documents]
    end = time.monotonic() + _PATIENCE
    try:
        for document in documents:
            plane.kubectl("apply", "-f", "-", input=json.dumps(document))
        while not in_force(plane):
            if time.monotonic() > end:
                raise process.ProcessError(f"{', '.join(names)} were not in force after {_PATIENCE} s")
            time.sleep(0.05)
        yield
    finally:
        plane.kubectl("delete", "--ignore-not-found", *names)


def mends_and_judges(plane: ControlPlane) -> bool:
    """Whether both of our webhooks are called."""
    done = _canary(plane)
    return "podFailurePolicy" in done.stdout and "do-not-disrupt" in done.stderr


def wait_until_alone(plane: ControlPlane) -> None:
    """Returns once the API server calls none of our webhooks any more. Raises ProcessError after 30 s."""
    end = time.monotonic() + _PATIENCE
    while "podFailurePolicy" in (done := _canary(plane)).stdout or done.stderr:
        if time.monotonic() > end:
            raise process.ProcessError(f"our webhooks were still called after {_PATIENCE} s: {done.stderr}")
        time.sleep(0.05)


def _canary(plane: ControlPlane) -> subprocess.CompletedProcess[str]:
    words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    return plane.kubectl(*words, input=json.dumps(CANARY), check=False)
