"""Who asked the API server for what, and when: a webhook that sees the life of Pods, nodes and Jobs, and allows all."""

import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final

from tests.cluster import deployment
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Endpoint

NAME: Final = "record.drainproof.test"
# group, version, resources, operations
RULES: Final = (
    ("", "v1", ("pods", "nodes"), ("CREATE", "DELETE")),
    ("", "v1", ("pods/eviction", "pods/binding", "events"), ("CREATE",)),
    ("", "v1", ("pods/status",), ("UPDATE",)),
    ("batch", "v1", ("jobs",), ("CREATE",)),
    ("batch", "v1", ("jobs/status",), ("UPDATE",)),
    ("karpenter.sh", "v1", ("nodeclaims",), ("CREATE", "DELETE")),
)
LAST: Final = 12  # requests in the text of an error
Message = MutableMapping[str, Any]


class NotSeenError(Exception):
    """A request that did not come in time; the text shows the last ones that came."""


@dataclass(frozen=True)
class Call:
    """One request, before it was carried out: `at` is in seconds since the epoch.

    `object` is what is created or written, or what is deleted. `grace` is in seconds, None where none was asked for.
    """

    at: float
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    grace: int | None
    object: Mapping[str, Any] = field(repr=False)

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the object."""
        found: Mapping[str, Any] = self.object.get("metadata") or {}
        return found

    @property
    def status(self) -> Mapping[str, Any]:
        """The status of the object."""
        found: Mapping[str, Any] = self.object.get("status") or {}
        return found

    @property
    def about(self) -> str:
        """The name of the object that it is about: an event is about the one that it names."""
        return str(self.object["involvedObject"].get("name")) if self.resource == "events" else self.name

    def is_for(self, verb: str, resource: str, name: str | None = None) -> bool:
        """Whether it asked for just that; without a name for any."""
        return (self.verb, self.resource) == (verb, resource) and name in (None, self.name)


@dataclass(frozen=True)
class Record:
    """The requests so far, oldest first; once it is `over` nobody needs to wait for more."""

    calls: list[Call] = field(default_factory=list, repr=False)
    over: Event = field(default_factory=Event, repr=False)

    def first(self, fits: Callable[[Call], bool], seconds: float) -> Call:
        """The first request that fits, now or within `seconds`. Raises NotSeenError, and when the record is over."""
        end = time.monotonic() + seconds
        seen = 0
        while True:
            new = self.calls[seen:]
            for call in new:
                if fits(call):
                    return call
            seen += len(new)
            if time.monotonic() > end:
                raise NotSeenError(
                    "\n  ".join([f"not seen within {seconds:g} s; last:", *map(str, self.calls[-LAST:])])
                )
            if self.over.wait(0.1):
                raise NotSeenError("not seen before the record was over")

    def all(self, fits: Callable[[Call], bool]) -> list[Call]:
        """The requests so far that fit."""
        return [call for call in [*self.calls] if fits(call)]

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """The webhook, as an ASGI application."""
        body, more = b"", scope["type"] == "http"
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        request = json.loads(body)["request"]
        self.calls.append(_call(request))
        response = {"uid": request["uid"], "allowed": True}
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


def _call(request: Mapping[str, Any]) -> Call:
    shown = request["object"] or request["oldObject"] or {}
    resource = "/".join(filter(None, (request["resource"]["resource"], request.get("subResource"))))
    options = shown.get("deleteOptions") if resource == "pods/eviction" else request.get("options")
    return Call(
        time.time(),
        request["userInfo"]["username"],
        request["operation"],
        resource,
        request.get("namespace", ""),
        request.get("name") or (shown.get("metadata") or {}).get("name", ""),
        (options or {}).get("gracePeriodSeconds"),
        shown,
    )


@contextmanager
def recording(plane: ControlPlane, directory: Path) -> Iterator[Record]:
    """Record until leaving. `directory` is for a throw-away certificate. Raises ProcessError."""
    record = Record()
    with (
        deployment.in_thread(record, directory) as endpoint,
        deployment.registered(plane, [_configuration(endpoint)], lambda plane: _is_called(plane, record.calls)),
    ):
        record.calls.clear()
        try:
            yield record
        finally:
            record.over.set()


def _configuration(endpoint: Endpoint) -> dict[str, Any]:
    rules = [
        {"apiGroups": [group], "apiVersions": [version], "resources": [*resources], "operations": [*operations]}
        for group, version, resources, operations in RULES
    ]
    webhook = {
        "name": NAME,
        "admissionReviewVersions": ["v1"],
        "clientConfig": endpoint.client_config("/"),
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 5,
        "rules": rules,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def _is_called(plane: ControlPlane, calls: Sequence[Call]) -> bool:
    plane.kubectl("create", "job", "canary", "--image=example.test/none", "--dry-run=server", check=False)
    return bool(calls)
