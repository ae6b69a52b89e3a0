"""Requests told in a few words, for a reader of what happened."""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.karpenter.record import Call
from tests.karpenter.ring import USER


@dataclass(frozen=True)
class Moment:
    """Something that happened `at` seconds after the Job was created, and `who` asked for it."""

    at: float
    what: str
    who: str


def about(call: Call) -> str:
    """What a request is about: an event is about the object that it names."""
    return str(call.object["involvedObject"].get("name")) if call.resource == "events" else call.name


def told(call: Call) -> Iterator[str]:
    """A request in a few words; nothing where it tells nothing new of the life of a Job, a Pod or a node."""
    if call.resource == "events":
        reason, message = call.object["reason"], call.object["message"]
        # What others say by events is told by their requests.
        if call.user == USER and not message.startswith("Status condition transitioned"):
            yield f"{reason} ({about(call)}): {message}"
    elif call.resource == "pods/binding":
        yield f"{call.name} is bound to {call.object['target']['name']}"
    elif call.resource == "pods/eviction":
        yield f"{call.name} is evicted"
    elif call.verb == "DELETE":
        yield f"{call.name} is deleted" + ("" if call.grace is None else f" with {call.grace} s")
    elif call.verb == "CREATE":
        yield f"{call.name} is created"
    elif call.resource == "pods/status" and call.status.get("phase") != "Pending":
        yield f"{call.name} is {call.status['phase']}"
    elif call.resource == "jobs/status":
        for condition in call.status.get("conditions", ()):
            yield f"{call.name} is {condition['type']}: {condition.get('reason', '')}"
