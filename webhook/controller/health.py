"""What a kubelet and Prometheus ask the controller: /healthz, /readyz and /metrics over HTTP."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

SECONDS: Final = 5.0  # for a client to say what it wants
Checks = Callable[[], Mapping[str, str]]


@dataclass(slots=True)
class Health:
    """Answers on a socket that listens. `live` and `ready` give each check, and what is wrong by it or nothing."""

    listener: socket.socket
    live: Checks
    ready: Checks
    registry: CollectorRegistry
    name: str = "health"

    def problem(self) -> str:
        """Nothing: whoever can ask is answered."""
        return ""

    def alive(self) -> bool:
        """That it is: whoever can ask is answered."""
        return True

    def run(self, stop: Event) -> None:
        """Answers until `stop` is set."""
        server = _Server(self.listener, self.answer)
        Thread(target=server.serve_forever, args=(0.2,), name="http", daemon=True).start()
        stop.wait()
        server.shutdown()
        server.server_close()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """The status, media type and body for a path."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self.registry)
        checks = {"/healthz": self.live, "/readyz": self.ready}.get(path)
        if checks is None:
            return 404, "text/plain; charset=utf-8", b"not found\n"
        wrong = [f"{name}: {text}\n" for name, text in checks().items() if text]
        return 503 if wrong else 200, "text/plain; charset=utf-8", "".join(wrong or ["ok\n"]).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, listener: socket.socket, answer: Callable[[str], tuple[int, str, bytes]]) -> None:
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.answer = answer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that goes away is no event."""


class _Handler(BaseHTTPRequestHandler):
    timeout = SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Answers one request."""
        status, kind, body = self.server.answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: probes come every few seconds."""
