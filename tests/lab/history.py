"""What became of a Job and its Pods, put together from a watch, the container runtime and the programs' own words.

Everything here is pure. Times are seconds on one clock, that of the machine since it was started.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

OWNER: Final = "batch.kubernetes.io/job-name"
DISRUPTED: Final = "DisruptionTarget"
TERMINAL: Final = ("Succeeded", "Failed")
KILLED: Final = 137  # 128 and the number of SIGKILL
BEGINS: Final = "begins"
SIGTERM: Final = "SIGTERM"


@dataclass(frozen=True, slots=True)
class Seen:
    """An event of a watch: when it came, and the object; with `gone` it came with the object's removal."""

    at: float
    object: Any
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """A line that a program wrote: when it did, in which start of which container, and what."""

    at: float
    container: str
    restart: int
    text: str


@dataclass(frozen=True, slots=True)
class Act:
    """A process in a container began or, with a code, ended; `process` is the container's id for its first one."""

    at: float
    process: str
    code: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that became True: when that was seen, and what it says."""

    at: float
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Container:
    """One start of a container; `pre_stop` is when its hook began and ended."""

    name: str
    restart: int
    began: float | None
    ended: float | None
    code: int | None
    pre_stop: tuple[float, float | None] | None
    words: tuple[Word, ...]

    def said(self, text: str) -> float | None:
        """When the program first wrote this."""
        return next((word.at for word in self.words if word.text == text), None)

    @property
    def term(self) -> float | None:
        """When the program got SIGTERM, as it says itself."""
        return self.said(SIGTERM)

    @property
    def killed(self) -> float | None:
        """When it was killed."""
        return self.ended if self.code == KILLED else None


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod from its creation on; `asked` is when it was seen to be told to go, `phase` its last one."""

    name: str
    namespace: str
    uid: str
    node: str
    created: float
    running: float | None
    asked: float | None
    disrupted: Condition | None
    phase: str
    reason: str
    message: str
    ended: float | None
    gone: float | None
    containers: tuple[Container, ...]

    @property
    def state(self) -> str:
        """What is stored of it in the end, with the reason where there is one."""
        return f"{self.phase} ({self.reason})" if self.reason else self.phase

    @property
    def disruption(self) -> str:
        """The reason of its DisruptionTarget, or none."""
        return self.disrupted.reason if self.disrupted else "none"

    @property
    def main(self) -> Container | None:
        """The last start of the container `main`, or of the first one."""
        mains = [one for one in self.containers if one.name == "main"] or list(self.containers)
        return mains[-1] if mains else None

    def said(self, text: str) -> float | None:
        """When a program of it first wrote this."""
        found = [at for one in self.containers if (at := one.said(text)) is not None]
        return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Story:
    """A Job with its Pods in the order of their creation, or a bare Pod alone; `told` is when all this was so."""

    name: str
    pods: tuple[Pod, ...]
    seen: tuple[Seen, ...]
    told: float

    def count(self, field: str) -> int:
        """A number in the Job's status."""
        return int(self.seen[-1].object.get("status", {}).get(field, 0)) if self.seen else 0

    def reached(self, field: str, number: int) -> float | None:
        """When a number in the Job's status was first seen to be so high."""
        return _first(self.seen, lambda job: job.get("status", {}).get(field, 0) >= number)

    def condition(self, kind: str) -> Condition | None:
        """A condition of the Job that became True."""
        return _condition(self.seen, kind)

    @property
    def started(self) -> str:
        """The Job's startTime, as it is written."""
        return str(self.seen[-1].object.get("status", {}).get("startTime", "")) if self.seen else ""


def pod(seen: Sequence[Seen], words: Sequence[Word], acts: Mapping[str, Sequence[Act]]) -> Pod:
    """What became of one Pod; `acts` are those of the runtime, by the container's id."""
    last = seen[-1].object
    status = last.get("status", {})
    return Pod(
        last["metadata"]["name"],
        last["metadata"]["namespace"],
        last["metadata"]["uid"],
        last.get("spec", {}).get("nodeName", ""),
        seen[0].at,
        _first(seen, lambda one: one.get("status", {}).get("phase") == "Running"),
        _first(seen, lambda one: "deletionTimestamp" in one["metadata"]),
        _condition(seen, DISRUPTED),
        status.get("phase", ""),
        status.get("reason", ""),
        status.get("message", ""),
        _first(seen, lambda one: one.get("status", {}).get("phase") in TERMINAL),
        next((one.at for one in seen if one.gone), None),
        tuple(_containers(seen, words, acts)),
    )


def _containers(seen: Sequence[Seen], words: Sequence[Word], acts: Mapping[str, Sequence[Act]]) -> Iterator[Container]:
    """Every start of every container, in the order in which the Pod has them."""
    starts: dict[str, list[str]] = {}
    for one in seen:
        for status in _statuses(one.object):
            known = starts.setdefault(status["name"], [])
            known += [found for found in _ids(status) if found not in known]
    for name, found in starts.items():
        for restart, identity in enumerate(found):
            said = tuple(word for word in words if (word.container, word.restart) == (name, restart))
            yield _container(name, restart, identity, acts.get(identity, ()), said)


def _statuses(found: Any) -> list[Any]:
    status = found.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _ids(status: Any) -> Iterator[str]:
    """The containers that a status tells of, the earlier one first."""
    earlier = status.get("lastState", {}).get("terminated", {}).get("containerID")
    for identity in (earlier, status.get("containerID")):
        if identity:
            yield identity.rpartition("/")[2]


def _container(name: str, restart: int, identity: str, acts: Sequence[Act], words: tuple[Word, ...]) -> Container:
    own = [act for act in acts if act.process == identity]
    others = [act for act in acts if act.process != identity]
    end = next((act for act in own if act.code is not None), None)
    hook = next((act for act in others if act.code is None), None)
    hook_end = next((act.at for act in others if hook and act.process == hook.process and act.code is not None), None)
    return Container(
        name,
        restart,
        next((act.at for act in own if act.code is None), None),
        end.at if end else None,
        end.code if end else None,
        (hook.at, hook_end) if hook else None,
        words,
    )


def _condition(seen: Sequence[Seen], kind: str) -> Condition | None:
    for one in seen:
        for found in one.object.get("status", {}).get("conditions") or []:
            if (found["type"], found["status"]) == (kind, "True"):
                return Condition(one.at, found.get("reason", ""), found.get("message", ""))
    return None


def _first(seen: Sequence[Seen], holds: Callable[[Any], bool]) -> float | None:
    return next((one.at for one in seen if holds(one.object)), None)
