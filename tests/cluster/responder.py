"""An HTTPS responder in the place of a webhook of ours: it keeps what it is asked, and answers as a test says."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.cluster import deployment
from tests.cluster.deployment import Endpoint

JSON: Final = "application/json"


def review(uid: str, **response: Any) -> bytes:
    """The answer that lets a request through, with more or other fields in it."""
    answer = {"uid": uid, "allowed": True, **response}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}).encode()


@dataclass(frozen=True)
class Reply:
    """How a call is answered: `body` is made from the uid of the request, after `seconds` if it is waited for."""

    body: Callable[[str], bytes] = review
    media_type: str = JSON
    status: int = 200
    seconds: float = 0
    headers: Mapping[str, str] = field(default_factory=dict)


ALLOWING: Final = Reply()


@dataclass
class Responder:
    """Where it serves, the requests that it was sent so far, oldest first, and how it answers."""

    endpoint: Endpoint
    heard: list[dict[str, Any]] = field(default_factory=list)
    reply: Reply = ALLOWING

    def names(self) -> list[str]:
        """The names of the objects that it was asked about."""
        return [str(request["name"]) for request in self.heard]

    async def answer(self, request: Request) -> Response:
        asked = (await request.json())["request"]
        self.heard.append(asked)
        reply = self.reply
        end = time.monotonic() + reply.seconds
        while time.monotonic() < end and not await request.is_disconnected():
            await asyncio.sleep(0.1)
        return Response(reply.body(asked["uid"]), reply.status, reply.headers, reply.media_type)


@contextmanager
def responding(directory: Path) -> Iterator[Responder]:
    """A responder at every path, in a thread of this process."""
    made: list[Responder] = []

    async def answer(request: Request) -> Response:
        return await made[0].answer(request)

    application = Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])])
    with deployment.in_thread(application, directory) as endpoint:
        made.append(Responder(endpoint))
        yield made[0]
