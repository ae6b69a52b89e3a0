"""The events of a watch: lines of JSON on a connection that stays open until either side has enough."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import urllib3

from webhook.controller.api import SECONDS, Api, read
from webhook.controller.thing import ApiError, Thing

LONGEST: Final = 8 * 1024 * 1024  # bytes of a line; an object has 1.5 MiB in etcd, and is longer in JSON
_CHUNK: Final = 64 * 1024


class StreamError(Exception):
    """The stream broke or held what is no event; `status` is the HTTP status that it told, or 0."""

    def __init__(self, text: str, status: int = 0) -> None:
        self.status = status
        super().__init__(text)


class Stream:
    """Gives each event as it comes: a map with `type` and `object`. Raises StreamError."""

    def __init__(self, answer: urllib3.BaseHTTPResponse) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (_event(line) for line in self._lines() if line.strip())

    def close(self) -> None:
        """Ends the stream, also from another thread while this one waits for an event."""
        with contextlib.suppress(Exception):  # it may have ended by itself in this moment
            self._answer.shutdown()

    def release(self) -> None:
        """Closes the connection. By the thread that read."""
        self._answer.close()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while chunk := self._chunk():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > LONGEST:
                raise StreamError(f"an event is longer than {LONGEST} bytes")
        if rest.strip():
            raise StreamError("the connection ended in the middle of an event")

    def _chunk(self) -> bytes:
        try:
            return self._answer.read1(_CHUNK)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise StreamError(f"the connection broke: {error}") from error


def watch(api: Api, thing: Thing, selector: str, version: int, seconds: int) -> Stream:
    """What happens to objects after a resource version, for `seconds`, with bookmarks in between. Raises ApiError."""
    query = {"watch": "true", "allowWatchBookmarks": "true", "labelSelector": selector}
    query |= {"resourceVersion": str(version), "timeoutSeconds": str(seconds)}
    timeout = urllib3.Timeout(connect=SECONDS, read=seconds + SECONDS)
    answer = api.ask("GET", "watch", thing, timeout, query=query, streams=True)
    if answer.status == 200:
        return Stream(answer)
    try:
        read("watch", thing, answer)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ApiError("watch", thing, answer.status, f"the answer broke off: {error}") from error
    finally:
        answer.close()
    raise ApiError("watch", thing, answer.status, "the answer is no stream")


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise StreamError("an event is no JSON") from error
    thing = event.get("object") if isinstance(event, dict) else None
    if not isinstance(thing, dict) or not isinstance(event.get("type"), str):
        raise StreamError("an event has no type or no object")
    if event["type"] == "ERROR":
        code = thing.get("code")
        raise StreamError(str(thing.get("message")), code if isinstance(code, int) else 0)
    return dict(event)
