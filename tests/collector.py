"""A collector of OpenTelemetry traces on loopback: takes OTLP over HTTP and keeps the spans, or misbehaves."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

SECONDS = 20.0


@dataclass(slots=True)
class Collector:
    """What has come so far. Requests are answered with `status`, once `open` is set."""

    url: str = ""
    status: int = 200
    open: threading.Event = field(default_factory=threading.Event)
    spans: list[Span] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, str]] = field(default_factory=list)

    def take(self, body: bytes) -> None:
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(values(part.resource))
            for scope in part.scope_spans:
                self.spans.extend(scope.spans)

    def waited(self, count: int, which: Callable[[Span], bool] = lambda _: True) -> list[Span]:
        """The spans that are wanted, as soon as there are `count` of them."""
        until = time.monotonic() + SECONDS
        while len(found := [span for span in self.spans.copy() if which(span)]) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} spans came"
            time.sleep(0.02)
        return found


def values(owner: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "") for one in owner.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that takes everything at /v1/traces."""
    collector = Collector()
    collector.open.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.calls.append({"path": self.path, **{name.lower(): text for name, text in self.headers.items()}})
            collector.open.wait(SECONDS)
            status = collector.status if self.path == "/v1/traces" else 404
            if status == 200:
                collector.take(body)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # a client that went away while it was left waiting

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield collector
        finally:
            collector.open.set()
            server.shutdown()
            thread.join(SECONDS)
