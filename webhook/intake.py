"""What is taken in: requests to the very paths, and the body of a review, once, within bounds, and from who may ask."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from webhook.connection import KNOWN_CLIENT
from webhook.metrics import Fault

BODY_BYTES: Final = 7 << 20  # an object and an old object of 3 MiB each, and the envelope
DISCARD_BYTES: Final = 4 * BODY_BYTES  # a client that still writes does not read an answer yet
BODY_SECONDS: Final = 10.0  # no API server waits longer than 30 seconds for the whole call


class CallError(Exception):
    """A call without a body that can be used: what is wrong with it, and the HTTP status that says so."""

    def __init__(self, fault: Fault, status: int, text: str) -> None:
        self.fault: Fault = fault
        self.status = status
        super().__init__(text)


def route(path: str, endpoint: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    """Where requests for a path and nothing else go; Starlette's own pattern takes a line feed behind it, too."""
    made = Route(path, endpoint, methods=[method])
    made.path_regex = re.compile(re.escape(path) + r"\Z")
    return made


async def body(request: Request, seconds: float, known_clients_only: bool) -> bytes:
    """The whole body of a request, never holding more than BODY_BYTES, or anything from a client that is not known.

    `seconds` is how long it may take to arrive. Raises CallError.
    """
    known = not known_clients_only or request.scope.get("state", {}).get(KNOWN_CLIENT, False)
    try:
        async with asyncio.timeout(seconds):
            found = await _received(request, BODY_BYTES if known else 0)
    except TimeoutError:
        raise CallError("slow-body", 408, f"The body did not arrive within {seconds:g} seconds.") from None
    except ClientDisconnect:
        raise CallError("disconnected", 400, "The client went away before the body was there.") from None
    if not known:
        text = "Reviews are answered only to clients with a certificate of the CAs given, and this one showed none."
        raise CallError("unknown-client", 403, text)
    if found is None:
        raise CallError("too-large", 413, f"The body is longer than {BODY_BYTES} bytes.")
    return found


def refusal(error: CallError) -> Response:
    """The answer to a call without a usable body, which ends the connection.

    What is left of the body would be taken for the next request.
    """
    return PlainTextResponse(f"{error}\n", error.status, {"connection": "close"})


async def _received(request: Request, limit: int) -> bytes | None:
    """The whole body; None where it is longer than `limit` bytes, whatever its length was said to be."""
    found, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit:
            found += chunk
        else:
            found.clear()
        if size > DISCARD_BYTES:
            break
    return bytes(found) if size <= limit else None
