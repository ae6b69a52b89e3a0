"""POST /stamp over TLS, by every replica, whether it leads or not: reviews of deletions in, answers out."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from webhook import connection, intake, observe, tls
from webhook.controller import policy
from webhook.controller.deletion import Desk
from webhook.controller.policy import Chosen
from webhook.core.policy import Policy
from webhook.metrics import Fault
from webhook.observe import said
from webhook.review import ReviewError

NAME: Final = "stamp"
DRAIN_SECONDS: Final = 4.0  # to go on answering while kube-proxies learn that this replica ends
KEEP_ALIVE_SECONDS: Final = 120  # above the 90 after which API servers drop an idle connection
UNREADY_SECONDS: Final = 120.0  # a kubelet shows a Secret that was made meanwhile within about 90


def app(desk: Desk, known_clients_only: bool, is_draining: Callable[[], bool], body_seconds: float) -> ASGIApp:
    """The application. `body_seconds` is how long a request may take to send its body."""

    async def stamp(request: Request) -> Response:
        try:
            body = await intake.body(request, body_seconds, known_clients_only)
            return Response(await desk.answer(body), media_type="application/json")
        except intake.CallError as error:
            _refused(desk, error.fault, error)
            return intake.refusal(error)
        except ReviewError as error:
            _refused(desk, "not-a-review", error)
            return PlainTextResponse(f"{error}\n", 400)

    handlers = {404: _elsewhere, 405: _otherwise}
    application = Starlette(routes=[intake.route("/stamp", stamp, "POST")], exception_handlers=handlers)
    application.router.redirect_slashes = False
    return connection.ending(application, is_draining)


def _refused(desk: Desk, fault: Fault, error: Exception) -> None:
    observe.failed(desk.metrics.stamp_errors, fault, deed=NAME, text=str(error))


async def _elsewhere(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("There is nothing here: reviews of deletions go to /stamp.\n", 404)


async def _otherwise(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("This method is not allowed here; use POST.\n", 405, {"allow": "POST"})


@dataclass(frozen=True, slots=True)
class Files:
    """What /stamp goes by. `policy` is looked at for changes where it is a file."""

    pair: tls.Pair
    client_ca: Path | None
    policy: Chosen

    def policy_in_force(self) -> Policy | None:
        """The policy; None while its file could not be used even once, and then nothing is stamped."""
        return policy.in_force(self.policy)

    def look(self) -> None:
        """Takes over a changed policy."""
        policy.look(self.policy)

    def problem(self) -> str:
        """Why nothing can be decided; empty where it can."""
        return policy.problem(self.policy)


@dataclass(slots=True)
class Stamp:
    """The part. `listener` has an address and does not listen yet.

    While it waits for a certificate, connections are refused: an API server then lets a deletion pass at once, where it
    would wait for its timeout if they were only not answered.
    """

    listener: socket.socket
    files: Files
    desk: Desk
    look_seconds: float
    name: str = NAME
    body_seconds: float = intake.BODY_SECONDS
    _serves: bool = False
    _draining: bool = False
    _began: float = field(default_factory=time.monotonic)
    _beat: float = field(default_factory=time.monotonic)

    def problem(self) -> str:
        """What is wrong, as far as it is to keep this replica from being ready.

        Not ready, it gets no deletions to review, and the API server asks a replica that answers. But it is this very
        controller that makes the certificate, and mends it: were readiness to wait for it without end, an update of the
        controller that puts certificates right could never replace the one that holds the Lease. So a certificate is
        waited for no longer than a kubelet takes to show one, and one that has expired is no problem here.
        """
        waits = not self._serves and time.monotonic() - self._began < UNREADY_SECONDS
        return self.files.problem() or ("it waits for its certificate" if waits else "")

    def alive(self) -> bool:
        """Whether it still looks at its files."""
        return time.monotonic() - self._beat < 60

    def run(self, stop: Event) -> None:
        """Waits for a certificate, then serves until `stop` is set and the drain is over."""
        serving = self._awaited(stop)
        if serving is None:
            return
        application = app(self.desk, self.files.client_ca is not None, lambda: self._draining, self.body_seconds)
        server = connection.server(application, serving.context, DRAIN_SECONDS, KEEP_ALIVE_SECONDS)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(self._serve(server, serving, stop))

    def _awaited(self, stop: Event) -> tls.Serving | None:
        """What can be served, as soon as it can; None where `stop` is set first. Each reason to wait is said once."""
        told = ""
        while not stop.is_set():
            self._beat = time.monotonic()
            self.files.look()
            try:
                return tls.Serving(self.files.pair, self.files.client_ca)
            except tls.CertificateError as error:
                if str(error) != told:
                    told = str(error)
                    said("stamp waits for its certificate", logging.WARNING, reason=told)
            stop.wait(self.look_seconds)
        return None

    async def _serve(self, server: connection.Server, serving: tls.Serving, stop: Event) -> None:
        keeping_up = asyncio.get_running_loop().create_task(self._keep_up(server, serving, stop))
        try:
            await server.serve(sockets=[self.listener])
        finally:
            keeping_up.cancel()

    async def _keep_up(self, server: connection.Server, serving: tls.Serving, stop: Event) -> None:
        """Looks at the files until `stop` is set, and then lets the server end."""
        while not server.started:
            await asyncio.sleep(0.01)
        host, port = self.listener.getsockname()[:2]
        said("stamp served", host=host, port=port)
        self._serves = True
        looked = time.monotonic()
        while not stop.is_set():
            await asyncio.sleep(0.1)
            self._beat = time.monotonic()
            if self._beat - looked < self.look_seconds:
                continue
            looked = self._beat
            try:
                observe.reloaded("certificate", serving, serving.reload(), expires=serving.expires)
                await asyncio.to_thread(self.files.look)  # reading a policy takes a while
            except Exception:  # a fault of ours that must not end the looking
                observe.LOG.exception("files not looked at")
        self._draining = True
        server.stop_after_drain()
