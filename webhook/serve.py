"""`drainproof serve`: puts the server together, starts it, and ends it so that no request is lost."""

import asyncio
import contextlib
import logging
import random
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from webhook import observe, policyfile, server, tls
from webhook.core import policy
from webhook.core.policy import Policy
from webhook.rules import RULES
from webhook.settings import Settings, options

AGE_SECONDS: Final = (240.0, 360.0)  # of a connection; spread, so that API servers do not all come back at once
HEAD_SECONDS: Final = 10.0  # from a request's first byte to the end of its headers
HEAD_BYTES: Final = 64 << 10
RELOAD_SECONDS: Final = 5.0
LINGER_SECONDS: Final = 1.0  # at the end of a drain: no new connections, and time for those just made to ask
CLOSE_SECONDS: Final = 0.5  # for a client to agree to the end of an idle connection, as TLS wants it
FINISH_SECONDS: Final = 5  # after a drain, for requests that are still being answered


@click.command()
@options
def serve(**given: Any) -> None:
    """Serve the webhooks over HTTPS, until SIGTERM or SIGINT.

    Exits with 0 after a drain, 1 where it cannot listen or is stopped at once by a second signal, and 2 where a setting
    or the policy is wrong.
    """
    settings = Settings(**given)
    with contextlib.ExitStack() as stack:
        chosen, serving, pair = _prepared(settings, stack)
        listener = stack.enter_context(_listener(settings))
        observe.configure(settings.log_level)
        host, port = listener.getsockname()[:2]
        if settings.dev:
            click.echo(f"Serving https://localhost:{port}")
            click.echo(f"The CA of its certificate: {pair.ca}")
        observe.said("serving", host=host, port=port, policy=str(settings.policy or "default"))
        run = _Run(settings, server.State(chosen, serving.problem), serving, listener)
        with asyncio.Runner(loop_factory=run.config.get_loop_factory()) as runner:
            well = runner.run(run.until_stopped())
    sys.exit(0 if well else 1)


def _prepared(settings: Settings, stack: contextlib.ExitStack) -> tuple[Policy, tls.Serving, tls.Pair]:
    """The policy and the certificate. Exits with 2, and every reason on stderr, where there is something wrong."""
    problems = list(settings.problems())
    chosen, serving, pair = policy.default(RULES), None, None
    try:
        chosen = policyfile.load(settings.policy, RULES) if settings.policy else chosen
    except policyfile.PolicyFileError as error:
        problems += error.problems
    try:
        pair = _pair(settings, stack) if not list(settings.problems()) else None
        serving = tls.Serving(pair, settings.client_ca) if pair else None
    except tls.CertificateError as error:
        problems.append(str(error))
    if problems or serving is None or pair is None:
        click.echo("\n".join(f"Error: {problem}" for problem in problems), err=True)
        sys.exit(2)
    return chosen, serving, pair


def _pair(settings: Settings, stack: contextlib.ExitStack) -> tls.Pair:
    if settings.certificate and settings.key:
        return tls.Pair(settings.certificate, settings.key)
    return tls.throw_away(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drainproof-"))))


def _listener(settings: Settings) -> socket.socket:
    """A socket that listens already. Exits with 1 where that is not possible."""
    try:
        family = socket.getaddrinfo(settings.address, settings.port, type=socket.SOCK_STREAM)[0][0]
        both = settings.address == "::" and socket.has_dualstack_ipv6()
        address = (settings.address, settings.port)
        return socket.create_server(address, family=family, backlog=2048, dualstack_ipv6=both)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]  # the address stands in the sentence already
        click.echo(f"Error: cannot listen on {settings.address} port {settings.port}: {reason}", err=True)
        sys.exit(1)


class _Run:
    """One run of the server, from its start to the end of its drain."""

    def __init__(self, settings: Settings, state: server.State, serving: tls.Serving, listener: socket.socket) -> None:
        self.settings = settings
        self.state = state
        self.serving = serving
        self.listener = listener
        metrics = observe.metrics()
        metrics.expiry.set_function(lambda: serving.expires)
        self.config = uvicorn.Config(
            server.app(state, metrics),
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            workers=1,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=FINISH_SECONDS,
            ssl_context_factory=lambda _config, _default: serving.context,
        )
        # The last part of a drain, at most a fifth of it, is for what is already connected.
        self.server = _Server(self.config, min(LINGER_SECONDS, settings.drain_seconds / 5))

    async def until_stopped(self) -> bool:
        """Serves until a signal has ended it; whether the drain was left its time."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        watch = loop.create_task(_watch(self.serving, RELOAD_SECONDS))
        try:
            await self.server.serve(sockets=[self.listener])
        finally:
            watch.cancel()
        observe.said("stopped", drained=not self.server.force_exit)
        return not self.server.force_exit

    def stop(self) -> None:
        """A signal came: the first one begins the drain, a second one ends it."""
        if self.state.draining:
            self.server.stop_at_once()
            return
        self.state.draining = True
        observe.said("draining", seconds=self.settings.drain_seconds)
        delay = self.settings.drain_seconds - self.server.linger
        asyncio.get_running_loop().call_later(delay, setattr, self.server, "should_exit", True)


async def _watch(serving: tls.Serving, seconds: float) -> None:
    """Takes over a new certificate within `seconds` of its being written."""
    while True:
        await asyncio.sleep(seconds)
        change = serving.reload()
        if change == "broken":
            observe.said("certificate not taken over", logging.ERROR, reason=serving.problem())
        elif change:
            observe.said("certificate taken over", expires=serving.expires)


class _Server(uvicorn.Server):
    """uvicorn's server with our way of ending: signals are ours, and a connection just made may still ask."""

    def __init__(self, config: uvicorn.Config, linger: float) -> None:
        super().__init__(config)
        self.linger = linger
        self._at_once = asyncio.Event()

    def stop_at_once(self) -> None:
        """Ends without waiting for anything."""
        self.should_exit = self.force_exit = True
        self.config.timeout_graceful_shutdown = 0
        self._at_once.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone; uvicorn would raise them again at the end, and the exit code would be a signal's."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, lets the linger pass, closes what is idle, and waits for what is still being answered."""
        for listening in self.servers:
            listening.close()
        await self._pause(self.linger)
        idle = [one for one in self.connections if one.idle]
        for one in idle:
            one.shutdown()
        if idle:
            await self._pause(CLOSE_SECONDS)
        for one in self.connections:
            if self.force_exit or one in idle:
                one.transport.abort()
        await super().shutdown(sockets)

    @property
    def connections(self) -> list["_Connection"]:
        """The connections that are open."""
        return [one for one in self.server_state.connections if isinstance(one, _Connection)]

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._at_once.wait(), seconds)


class _Connection(HttpToolsProtocol):
    """uvicorn's connection with bounds that it lacks: an age, and limits to the headers of a request."""

    _head: asyncio.TimerHandle | None = None
    _head_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, server.CLOSES_AT: self.loop.time() + random.uniform(*AGE_SECONDS)}
        # One on which nothing was asked yet is idle too: a client may open it ahead of need and count on it.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_head_end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.on_head_begin()

    def on_headers_complete(self) -> None:
        self.on_head_end()
        super().on_headers_complete()

    def on_head_begin(self) -> None:
        self.on_head_end()
        self._head_bytes = 0
        self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def on_head_end(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
