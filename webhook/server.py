"""The HTTP application: reviews in, answers out, and what a kubelet and Prometheus ask."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from webhook import intake, observe
from webhook.connection import ending
from webhook.core.policy import Policy
from webhook.core.verdict import Verdict
from webhook.intake import route
from webhook.metrics import Fault, Metrics
from webhook.review import Deed, ReviewError, UndecidedError, decide
from webhook.review import Request as Asked

REVIEWS: Final = ("/mutate", "/validate", "/guard")

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


def app(
    state: State, metrics: Metrics, body_seconds: float = intake.BODY_SECONDS, trace: Trace | None = None
) -> ASGIApp:
    """The application. `body_seconds` is how long a request may take to send its body; `trace` hears of each review.

    The media type of a request is not looked at: whatever it is called, the body is read as JSON or refused.
    """
    desk = _Desk(state, metrics, body_seconds, trace)
    application = Starlette(
        routes=[
            route("/mutate", desk.mutate, "POST"),
            route("/validate", desk.validate, "POST"),
            route("/guard", desk.guard, "POST"),
            route("/healthz", desk.healthz, "GET"),
            route("/readyz", desk.readyz, "GET"),
            route("/metrics", desk.metrics_page, "GET"),
        ],
        exception_handlers={404: _elsewhere, 405: _otherwise},
    )
    application.router.redirect_slashes = False
    return ending(application, lambda: state.draining)


async def _elsewhere(_request: Request, _error: Exception) -> Response:
    ours = "reviews go to /mutate, /validate and /guard; /healthz, /readyz and /metrics can be read"
    text = f"There is nothing here: {ours}.\n"
    return PlainTextResponse(text, 404)


async def _otherwise(request: Request, _error: Exception) -> Response:
    allowed = ("POST",) if request.url.path in REVIEWS else ("GET", "HEAD")
    text = f"This method is not allowed here; use {' or '.join(allowed)}.\n"
    return PlainTextResponse(text, 405, {"allow": ", ".join(allowed)})


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
            body = await intake.body(request, self.body_seconds, self.state.known_clients_only)
        except intake.CallError as error:
            observe.failed(self.metrics.errors, error.fault, deed=deed, text=str(error))
            return intake.refusal(error)
        return self.answer(body, deed, request, began)

    def answer(self, body: bytes, deed: Deed, call: Request, began: int) -> Response:
        """The answer to a whole body: pure computing of less than a millisecond, so it needs no thread."""
        started = time.perf_counter()
        policy = self.state.policy  # taken once: it may be replaced while this one is being decided
        if policy is None:
            return PlainTextResponse("No policy is loaded yet.\n", 503)
        try:
            request, verdict, content = decide(body, policy, deed)
        except ReviewError as error:
            observe.failed(self.metrics.errors, "not-a-review", deed=deed, text=str(error))
            return PlainTextResponse(f"{error}\n", 400)
        except UndecidedError as error:
            fault: Fault = "rule" if error.rule else "exception"
            observe.failed(self.metrics.errors, fault, deed=deed, uid=error.request.uid, rule=error.rule)
            return PlainTextResponse(f"The review could not be decided: {error}; this is a fault of drainproof.\n", 500)
        observe.reviewed(self.metrics, deed, request, verdict, time.perf_counter() - started)
        if self.trace:
            self.trace(call.headers, began, deed, request, verdict)
        return Response(content, media_type="application/json")
