"""A small API server on loopback for tests of the controller: it lists, watches and stores, and fails as it is told to.

It knows what a real one does about resource versions, continue tokens, bookmarks and history that is forgotten; the
tests in tests/cluster hold the controller to a real one.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
PODS: Final = "/api/v1/pods"


@dataclass
class Fault:
    """What is answered instead, to requests of a verb about a resource, so many times.

    With status 0 it is done, and nobody hears of it.
    """

    verb: str
    resource: str
    status: int
    times: int = 1_000_000
    retry_after: str = ""
    message: str = "refused"
    who: str = ""  # only to whoever shows this token


@dataclass
class ApiServer:
    """Its objects by path, what happened to Pods, and what it was asked."""

    url: str = ""
    objects: dict[str, Json] = field(default_factory=dict)
    version: int = 100
    history: list[tuple[int, str, Json]] = field(default_factory=list)
    forgotten: int = 0  # versions up to this one cannot be watched from any more
    faults: list[Fault] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)  # verb, path and query
    watch_seconds: float = 60.0
    deaf: bool = False  # a watch is never ended by its time, and nothing more comes
    page: int = 2
    changed: threading.Condition = field(default_factory=threading.Condition)
    upset: str = ""  # how watches end
    upsets: int = 0
    closed: bool = False

    def put(self, path: str, thing: Json) -> int:
        """Stores an object, as somebody else would; its version."""
        with self.changed:
            self.version += 1
            known = path in self.objects
            stored = json.loads(json.dumps(thing))
            stored.setdefault("metadata", {})["resourceVersion"] = str(self.version)
            self.objects[path] = stored
            self._record("MODIFIED" if known else "ADDED", path, stored)
            return self.version

    def delete(self, path: str) -> int:
        """Removes an object; its last version."""
        with self.changed:
            self.version += 1
            gone = self.objects.pop(path)
            last = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
            self._record("DELETED", path, last)
            return self.version

    def forget(self) -> None:
        """Forgets its history, as an API server that is started anew does; who watches is sent away."""
        with self.changed:
            self.version += 1
            self.forgotten = self.version
            self.end_watches("drop")

    def end_watches(self, how: str) -> None:
        """Ends every watch: `end`, `drop`, `half`, `garbage`, `nothing` (an event without an object) or `expire`."""
        with self.changed:
            self.upset, self.upsets = how, self.upsets + 1
            self.changed.notify_all()

    def fault(self, verb: str, path: str, who: str) -> Fault | None:
        """What is to go wrong with this request."""
        with self.changed:
            for fault in self.faults:
                if fault.verb == verb and f"/{fault.resource}" in path and fault.times and fault.who in who:
                    fault.times -= 1
                    return fault
        return None

    def refuse(self, verb: str, resource: str, status: int, **more: Any) -> Fault:
        """Adds a fault; `times = 0` ends it."""
        self.faults.append(Fault(verb, resource, status, **more))
        return self.faults[-1]

    def under(self, collection: str, selector: str = "") -> list[Json]:
        """The objects of a collection, in all namespaces where it names none, with the labels asked for."""
        prefix, _, resource = collection.rpartition("/")
        key, _, value = selector.partition("=")
        with self.changed:
            return [
                one
                for path, one in sorted(self.objects.items())
                if path.startswith(prefix + "/")
                and path.split("/")[-2] == resource
                and (not key or (key in (labels := one["metadata"].get("labels", {})) and value in ("", labels[key])))
            ]

    def events(self) -> list[Json]:
        """The Events that were made."""
        return self.under("/api/v1/events")

    def asks(self, verb: str, resource: str) -> int:
        """How often something was asked."""
        return sum(one[0] == verb and f"/{resource}" in one[1] for one in list(self.asked))

    def _record(self, kind: str, path: str, thing: Json) -> None:
        if "/pods/" in path:
            self.history.append((self.version, kind, thing))
            self.changed.notify_all()


@contextmanager
def serving() -> Iterator[ApiServer]:
    """An API server that listens."""
    cluster = ApiServer()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster))
    server.daemon_threads = True
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield cluster
    finally:
        cluster.closed = True
        cluster.end_watches("drop")
        server.shutdown()
        server.server_close()
        thread.join()


VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def _handler(cluster: ApiServer) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
            is_list = parts.path.split("/")[-1] in ("pods", "nodepools", "events")
            verb = VERBS.get(self.command) or ("watch" if "watch" in query else "list" if is_list else "get")
            cluster.asked.append((verb, parts.path, query))
            fault = cluster.fault(verb, parts.path, str(self.headers["Authorization"]))
            if fault and not fault.status:
                self._store(verb, parts.path, body, silently=True)
            elif fault:
                self._fail(fault.status, fault.message, retry_after=fault.retry_after)
            elif verb == "watch":
                self._watch(int(query["resourceVersion"]), float(query["timeoutSeconds"]))
            elif verb == "list":
                self._list(parts.path, query)
            else:
                self._store(verb, parts.path, body)

        do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815

        def _store(self, verb: str, path: str, body: Json, silently: bool = False) -> None:
            with cluster.changed:
                if verb == "create":
                    path = f"{path}/{body['metadata']['name']}"
                    if path in cluster.objects:
                        return self._fail(409, "it already exists", reason="AlreadyExists")
                stored = cluster.objects.get(path)
                if verb == "get" and stored is None:
                    return self._fail(404, "not found")
                version = ((body or {}).get("metadata") or {}).get("resourceVersion")
                if verb == "update" and stored and version != stored["metadata"]["resourceVersion"]:
                    return self._fail(409, "it has changed", reason="Conflict")
                if verb != "get":
                    cluster.put(path, {**(stored or {}), **body, "metadata": {**body["metadata"]}})
                found = cluster.objects[path]
            if silently:
                self.close_connection = True
                self.connection.close()
            else:
                self._answer(200, found)
            return None

        def _list(self, path: str, query: dict[str, str]) -> None:
            with cluster.changed:
                found = cluster.under(path, query.get("labelSelector", ""))
                first, _, version = (query.get("continue") or f"0:{cluster.version}").partition(":")
                # A real one goes on with the objects as they were; that nothing changes between two pages is the
                # tests' own affair.
                page = min(int(query.get("limit", 500)), cluster.page)
                rest = found[int(first) + page :]
                more = {"continue": f"{int(first) + page}:{version}"} if rest else {}
                items = found[int(first) : int(first) + page]
            self._answer(200, {"metadata": {"resourceVersion": version, **more}, "items": items})

        def _watch(self, version: int, seconds: float) -> None:
            with cluster.changed:
                if version < cluster.forgotten:
                    return self._fail(410, f"too old resource version: {version} ({cluster.forgotten})")
                upsets = cluster.upsets
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                self._stream(version, upsets, min(seconds, cluster.watch_seconds))
            except OSError:
                self.close_connection = True
            return None

        def _stream(self, version: int, upsets: int, seconds: float) -> None:
            while True:
                with cluster.changed:
                    new = [one for one in cluster.history if one[0] > version]
                    if (
                        not new
                        and cluster.upsets == upsets
                        and not cluster.changed.wait(None if cluster.deaf else seconds)
                    ):
                        break
                    upset = cluster.upset if cluster.upsets != upsets else ""
                for version, kind, thing in new:  # noqa: B007
                    self._event({"type": kind, "object": thing})
                if upset:
                    return self._upset(upset)
            self._event({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(cluster.version)}}})
            return self._upset("end")

        def _upset(self, how: str) -> None:
            if how == "half":
                self._chunk(b'{"type": "MODIFIED", "obj')
            if how == "garbage":
                self._chunk(b"<html>\n")
            if how == "nothing":
                self._event({"type": "MODIFIED"})
            if how == "expire":
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                self._event({"type": "ERROR", "object": status})
            if how == "end":
                self._chunk(b"")
            else:
                self.close_connection = True
                self.connection.close()

        def _event(self, event: Json) -> None:
            self._chunk(json.dumps(event).encode() + b"\n")

        def _chunk(self, text: bytes) -> None:
            self.wfile.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")
            self.wfile.flush()

        def _fail(self, status: int, message: str, reason: str = "", retry_after: str = "") -> None:
            body = {"kind": "Status", "code": status, "message": message, "reason": reason}
            self._answer(status, body, retry_after)

        def _answer(self, status: int, body: Json, retry_after: str = "") -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
