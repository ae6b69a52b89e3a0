"""The HTTP application: reviews in, answers out, and what a kubelet and Prometheus ask."""

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from webhook import observe
from webhook.core.policy import Policy
from webhook.core.verdict import Verdict
from webhook.metrics import Fault, Metrics
from webhook.review import Deed, ReviewError, UndecidedError, decide
from webhook.review import Request as Asked

BODY_BYTES: Final = 7 << 20  # an object and an old object of 3 MiB each, and the envelope
DISCARD_BYTES: Final = 4 * BODY_BYTES  # a client that still writes does not read an answer yet
BODY_SECONDS: Final = 10.0  # no API server waits longer than 30 seconds for the whole call
REVIEWS: Final = ("/mutate", "/validate", "/guard")
CLOSES_AT: Final = "closes_at"  # key in an ASGI scope's state: the loop time from which on a connection is ended
KNOWN_CLIENT: Final = "known_client"  # key in an ASGI scope's state: whether the client showed a good certificate

# What is told of a decided review: the headers of its request, when that began (nanoseconds since 1970), and all of it.
Trace = Callable[[Mapping[str, str], int, Deed, Asked, Verdict], None]


@dataclass(slots=True)
class State:
    """What a running server stands on.

    `policy` is only ever replaced as a whole, and a review goes by the one that it met. `certificate` says what is
    wrong with the one served; nothing while it is well. `remarks` has what verbose readiness says of a check that is
    well. With `known_clients_only`, a review needs a connection with a client certificate that is good.
    """

    policy: Policy | None
    certificate: Callable[[], str]
    remarks: Callable[[], Mapping[str, str]] = dict
    known_clients_only: bool = False
    draining: bool = False

    def problems(self) -> dict[str, str]:
        """Each check of readiness, and what is wrong by it; empty where it is well."""
        return {
            "policy": "" if self.policy else "no policy is loaded",
            "certificate": self.certificate(),
            "draining": "the server is about to stop" if self.draining else "",
        }


def app(state: State, metrics: Metrics, body_seconds: float = BODY_SECONDS, trace: Trace | None = None) -> ASGIApp:
    """The application. `body_seconds` is how long a request may take to send its body; `trace` hears of each review.

    The media type of a request is not looked at: whatever it is called, the body is read as JSON or refused.
    """
    desk = _Desk(state, metrics, body_seconds, trace)
    application = Starlette(
        routes=[
            _route("/mutate", desk.mutate, "POST"),
            _route("/validate", desk.validate, "POST"),
            _route("/guard", desk.guard, "POST"),
            _route("/healthz", desk.healthz, "GET"),
            _route("/readyz", desk.readyz, "GET"),
            _route("/metrics", desk.metrics_page, "GET"),
        ],
        exception_handlers={404: _elsewhere, 405: _otherwise},
    )
    application.router.redirect_slashes = False
    return _ending(application, state)


def _route(path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    route = Route(path, endpoint, methods=[method])
    route.path_regex = re.compile(re.escape(path) + r"\Z")  # Starlette's $ also takes a path with a line feed after it
    return route


async def _elsewhere(_request: Request, _error: Exception) -> Response:
    ours = "reviews go to /mutate, /validate and /guard; /healthz, /readyz and /metrics can be read"
    text = f"There is nothing here: {ours}.\n"
    return PlainTextResponse(text, 404)


async def _otherwise(request: Request, _error: Exception) -> Response:
    allowed = ("POST",) if request.url.path in REVIEWS else ("GET", "HEAD")
    text = f"This method is not allowed here; use {' or '.join(allowed)}.\n"
    return PlainTextResponse(text, 405, {"allow": ", ".join(allowed)})


class _CallError(Exception):
    def __init__(self, fault: Fault, status: int, text: str) -> None:
        self.fault: Fault = fault
        self.status = status
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class _Desk:
    state: State
    metrics: Metrics
    body_seconds: float
    trace: Trace | None

    async def mutate(self, request: Request) -> Response:
        return await self.review(request, "mutate")

    async def validate(self, request: Request) -> Response:
        return await self.review(request, "validate")

    async def guard(self, request: Request) -> Response:
        return await self.review(request, "guard")

    async def healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, request: Request) -> Response:
        problems = self.state.problems()
        lines = [f"{name}: {text}" for name, text in problems.items() if text]
        if "verbose" in request.query_params:
            well = {**dict.fromkeys(problems, "ok"), **self.state.remarks()}
            lines = [f"{name}: {problems.get(name) or text}" for name, text in well.items()]
        return PlainTextResponse("\n".join(lines or ["ok"]) + "\n", 503 if any(problems.values()) else 200)

    async def metrics_page(self, _: Request) -> Response:
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def review(self, request: Request, deed: Deed) -> Response:
        began = time.time_ns()
        try:
            body = await self.body(request)
        except _CallError as error:
            observe.failed(self.metrics, error.fault, deed=deed, text=str(error))
            # What is left of the body would be taken for the next request.
            return PlainTextResponse(f"{error}\n", error.status, {"connection": "close"})
        return self.answer(body, deed, request, began)

    async def body(self, request: Request) -> bytes:
        """The whole body of a request, never holding more than BODY_BYTES, or anything from a client that is not known.

        Raises _CallError.
        """
        known = not self.state.known_clients_only or request.scope.get("state", {}).get(KNOWN_CLIENT, False)
        try:
            async with asyncio.timeout(self.body_seconds):
                body = await _received(request, BODY_BYTES if known else 0)
        except TimeoutError:
            text = f"The body did not arrive within {self.body_seconds:g} seconds."
            raise _CallError("slow-body", 408, text) from None
        except ClientDisconnect:
            raise _CallError("disconnected", 400, "The client went away before the body was there.") from None
        if not known:
            text = "Reviews are answered only to clients with a certificate of the CAs given, and this one showed none."
            raise _CallError("unknown-client", 403, text)
        if body is None:
            raise _CallError("too-large", 413, f"The body is longer than {BODY_BYTES} bytes.")
        return body

    def answer(self, body: bytes, deed: Deed, call: Request, began: int) -> Response:
        """The answer to a whole body: pure computing of less than a millisecond, so it needs no thread."""
        started = time.perf_counter()
        policy = self.state.policy  # taken once: it may be replaced while this one is being decided
        if policy is None:
            return PlainTextResponse("No policy is loaded yet.\n", 503)
        try:
            request, verdict, content = decide(body, policy, deed)
        except ReviewError as error:
            observe.failed(self.metrics, "not-a-review", deed=deed, text=str(error))
            return PlainTextResponse(f"{error}\n", 400)
        except UndecidedError as error:
            fault: Fault = "rule" if error.rule else "exception"
            observe.failed(self.metrics, fault, deed=deed, uid=error.request.uid, rule=error.rule)
            return PlainTextResponse(f"The review could not be decided: {error}; this is a fault of drainproof.\n", 500)
        observe.reviewed(self.metrics, deed, request, verdict, time.perf_counter() - started)
        if self.trace:
            self.trace(call.headers, began, deed, request, verdict)
        return Response(content, media_type="application/json")


async def _received(request: Request, limit: int) -> bytes | None:
    """The whole body; None where it is longer than `limit` bytes, whatever its length was said to be."""
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            body += chunk
        else:
            body.clear()
        if size > DISCARD_BYTES:
            break
    return bytes(body) if size <= limit else None


def _ending(inner: ASGIApp, state: State) -> ASGIApp:
    """`inner`, whose answers end the connection once the server drains or the connection has become old.

    A client that is told so sends nothing more on it; one whose idle connection is closed may lose a request.
    """

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        closes_at = scope.get("state", {}).get(CLOSES_AT, math.inf)

        async def closing(message: Message) -> None:
            old = closes_at <= asyncio.get_running_loop().time()
            if message["type"] == "http.response.start" and (state.draining or old):
                headers = [header for header in message["headers"] if header[0] != b"connection"]
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        await inner(scope, receive, closing)

    return outer
