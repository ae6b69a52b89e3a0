"""Connections: what each may take of time and room, and how all of them end."""

import asyncio
import contextlib
import math
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

CLOSES_AT: Final = "closes_at"  # key in an ASGI scope's state: the loop time from which on a connection is ended
KNOWN_CLIENT: Final = "known_client"  # key in an ASGI scope's state: whether the client showed a good certificate
AGE_SECONDS: Final = (240.0, 360.0)  # of a connection; spread, so that API servers do not all come back at once
HEAD_SECONDS: Final = 10.0  # from a request's first byte to the end of its headers
HEAD_BYTES: Final = 64 << 10
WAITING: Final = 16  # requests of a connection that wait for the answer to an earlier one; API servers send none ahead
TAKE_SECONDS: Final = 10.0  # for a client to take of an answer what is too much to be kept for it
CLOSE_SECONDS: Final = 0.5  # for a client to take the last answer and agree to the end, as TLS wants it
LINGER_SECONDS: Final = 1.0  # at the end of a drain: no new connections, and time for those just made to ask
FINISH_SECONDS: Final = 5  # after a drain, for requests that are still being answered


class Connection(HttpToolsProtocol):
    """uvicorn's connection with bounds that it lacks: to age, headers, requests that wait, and what is not taken."""

    _head: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _untaken: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            CLOSES_AT: self.loop.time() + random.uniform(*AGE_SECONDS),
            # Empty where none was asked for; one that is of none of the CAs has failed the handshake.
            KNOWN_CLIENT: bool(transport.get_extra_info("peercert")),
        }
        # One on which nothing was asked yet is idle too: a client may open it ahead of need and count on it.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_head_end()
        self.on_taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head is not None and self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.on_head_begin()

    def on_headers_complete(self) -> None:
        self.on_head_end()
        if len(self.pipeline) >= WAITING:
            self.transport.abort()
            raise RuntimeError("requests are sent faster than answers are read")  # to the parser, which stops
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._head_bytes = 0  # what else came with its last bytes is not counted: it is not known how much that is

    def on_response_complete(self) -> None:
        unread = self.cycle.more_body
        super().on_response_complete()
        if unread:
            self.cut()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self.cut()

    def cut(self) -> None:
        """Soon ends a connection that is closing, from which uvloop would go on reading for half a minute."""
        if self.transport.is_closing():
            self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken = self._untaken or self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self.on_taken()
        super().resume_writing()

    def on_taken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def on_head_begin(self) -> None:
        self.on_head_end()
        self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def on_head_end(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


class Server(uvicorn.Server):
    """uvicorn's server with our way of ending: signals are ours, and a connection just made may still ask."""

    def __init__(self, config: uvicorn.Config, drain: float) -> None:
        super().__init__(config)
        # The last part of a drain, at most a fifth of it, is for what is already connected.
        self.linger = min(LINGER_SECONDS, drain / 5)
        self.drain = drain
        self._at_once = asyncio.Event()

    def stop_after_drain(self) -> None:
        """Goes on answering for the drain, then ends."""
        asyncio.get_running_loop().call_later(self.drain - self.linger, setattr, self, "should_exit", True)

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
        for one in self.connections:  # whose clients do not take their answers: the end of the loop would wait for them
            one.transport.abort()
        await asyncio.sleep(0)

    @property
    def connections(self) -> list[Connection]:
        """The connections that are open."""
        return [one for one in self.server_state.connections if isinstance(one, Connection)]

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._at_once.wait(), seconds)


def server(application: ASGIApp, context: ssl.SSLContext, drain: float, keep_alive: int) -> Server:
    """A server over TLS for one application; its times are in seconds."""
    config = uvicorn.Config(
        application,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        workers=1,
        timeout_keep_alive=keep_alive,
        timeout_graceful_shutdown=FINISH_SECONDS,
        ssl_context_factory=lambda _config, _default: context,
    )
    return Server(config, drain)


def ending(inner: ASGIApp, is_draining: Callable[[], bool]) -> ASGIApp:
    """`inner`, whose answers end the connection once the server drains or the connection has become old.

    A client that is told so sends nothing more on it; one whose idle connection is closed may lose a request.
    """

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        closes_at = scope.get("state", {}).get(CLOSES_AT, math.inf)

        async def closing(message: Message) -> None:
            old = closes_at <= asyncio.get_running_loop().time()
            if message["type"] == "http.response.start" and (is_draining() or old):
                headers = [header for header in message["headers"] if header[0] != b"connection"]
                message = {**message, "headers": [*headers, (b"connection", b"close")]}
            await send(message)

        await inner(scope, receive, closing)

    return outer
