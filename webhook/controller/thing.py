"""What the API server is asked about, and the one error for all that can go wrong."""

from dataclasses import dataclass
from urllib.parse import quote


class ApiError(Exception):
    """A call that was not done: `status` is the HTTP status, or 0 where there was no answer.

    `retry_after` is what the server asked to wait, in seconds, and `reason` its one word for what is wrong.
    """

    def __init__(
        self, verb: str, thing: "Thing", status: int, text: str, retry_after: float = 0, reason: str = ""
    ) -> None:
        self.verb, self.thing, self.status, self.retry_after = verb, thing, status, retry_after
        self.reason = reason
        said = f"{status}: {text}" if status else text
        super().__init__(f"{verb} {thing}: {' '.join(said.split())}")


@dataclass(frozen=True, slots=True)
class Thing:
    """An object, or without a name all objects of a kind; `prefix` is /api/v1 or /apis/<group>/<version>.

    With a subresource, that part of the object.
    """

    prefix: str
    resource: str
    name: str = ""
    namespace: str = ""
    subresource: str = ""

    @property
    def path(self) -> str:
        """The path of its URL."""
        parts = ["namespaces", self.namespace] if self.namespace else []
        parts += filter(None, (self.resource, self.name, self.subresource))
        return "/".join([self.prefix, *(quote(part, safe="") for part in parts)])

    def __str__(self) -> str:
        return " ".join(filter(None, (self.kind, "/".join(filter(None, (self.namespace, self.name))))))

    @property
    def kind(self) -> str:
        """What a rule of RBAC calls it: `pods`, `pods/status`."""
        return "/".join(filter(None, (self.resource, self.subresource)))
