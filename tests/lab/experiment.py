"""What an experiment is and what was observed in one; where it ran is nothing to this module.

All times are seconds on an axis of the run's own, on which 0 is what the run is about, such as its first eviction.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final


class Phase(StrEnum):
    """What a lane is doing for a while; the value is the word for it in a legend."""

    WAITING = "starting"
    PROTECTED = "protected"
    RUNNING = "running"
    PRE_STOP = "preStop"
    STOPPING = "after SIGTERM"
    HELD = "node there"


class Sign(StrEnum):
    """What happens at one moment; the value is the word for it in a legend."""

    ASKED = "eviction or deletion"
    TERM = "SIGTERM"
    KILL = "SIGKILL"
    EXIT = "exit"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Bar:
    """A while in a lane."""

    phase: Phase
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in a lane; `text` is written beside it, and an empty one is not."""

    sign: Sign
    at: float
    text: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """One Pod, or one of its containers, or a Job, or a node."""

    name: str
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """One course of events, such as that without drainproof."""

    title: str
    lanes: tuple[Lane, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that was measured."""

    name: str
    value: float
    unit: str = "s"


@dataclass(frozen=True, slots=True)
class Claim:
    """What must be seen, and what was."""

    text: str
    expected: str
    seen: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen in one experiment. Two observations of the same experiment add up."""

    runs: tuple[Run, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether everything came as it must."""
        return all(claim.holds for claim in self.claims)

    def __add__(self, other: "Observation") -> "Observation":
        return Observation(self.runs + other.runs, self.claims + other.claims, self.figures + other.figures)


Observing = Callable[[Any], Observation]
"""Given the place where it runs (for a node tests.lab.bench.Bench), runs an experiment."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """One of the lab's experiments.

    `done`, `expected` and `meaning` are paragraphs of the page; `manifest` is the object that it is about.
    `observe` runs beside other experiments, `alone` afterwards with the whole place for itself.
    """

    number: int
    title: str
    done: str
    expected: str
    meaning: str
    observe: Observing | None = None
    alone: Observing | None = None
    manifest: Mapping[str, Any] = field(default_factory=dict)


EXPECTED: Final = "**Expected.** "
MEANING: Final = "**What it means.** "


def described(
    number: int,
    text: str | None,
    *,
    observe: Observing | None = None,
    alone: Observing | None = None,
    manifest: Mapping[str, Any] = MappingProxyType({}),
) -> Experiment:
    """An experiment in the words of a module's docstring.

    A title, paragraphs about what is done, and then those that begin with EXPECTED and MEANING.
    """
    title, *rest = inspect.cleandoc(text or "").split("\n\n")
    joined = "\n\n".join(" ".join(paragraph.split()) for paragraph in rest)
    done, _, after = joined.partition(EXPECTED)
    expected, _, meaning = after.partition(MEANING)
    return Experiment(
        number, title.removesuffix("."), done.strip(), expected.strip(), meaning.strip(), observe, alone, manifest
    )


@dataclass(frozen=True, slots=True)
class Result:
    """An experiment with what was observed, and how many seconds that took."""

    experiment: Experiment
    observation: Observation
    seconds: float


def between(text: str, seen: float | None, least: float, most: float, *, about: str = "", unit: str = "s") -> Claim:
    """The claim that a number is within limits; None is not. `about` says in words what is expected."""
    limits = f"{least:g} to {most:g} {unit}".strip()
    expected = f"{about} ({limits})" if about else limits
    said = "not seen" if seen is None else f"{round(seen, 1) + 0.0:.1f} {unit}".strip()  # and no -0.0
    return Claim(text, expected, said, seen is not None and least <= seen <= most)


def equal(text: str, seen: object, expected: object) -> Claim:
    """The claim that something is as expected."""
    words: dict[object, str] = {True: "yes", False: "no"} if isinstance(expected, bool) else {}
    return Claim(text, words.get(expected, str(expected)), words.get(seen, str(seen)), seen == expected)


def contains(text: str, seen: str, part: str) -> Claim:
    """The claim that a text has a part."""
    return Claim(text, f"… {part} …", seen or "nothing", part in seen)
