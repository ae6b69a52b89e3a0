"""Runs experiments: first side by side, for most of their time is waiting, then those that need the place alone."""

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any, Final, Protocol

from tests.lab.experiment import Claim, Experiment, Observation, Observing, Result

APART_SECONDS: Final = 3  # between two starts, so that not all Pods start at the same moment


class Place(Protocol):
    """Where experiments are done; `facts` are what the page says of the machine and the versions."""

    @property
    def facts(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Laboratory:
    """Experiments, the longest first, and how to open the place where they are done, given a folder for its files."""

    name: str
    experiments: Sequence[Experiment]
    opened: Callable[[Path], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Report:
    """What came of a whole lab: the results in the order of their numbers, and the facts of all places."""

    results: tuple[Result, ...]
    facts: Mapping[str, str]

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return all(result.observation.holds for result in self.results)


def report(laboratories: Iterable[Laboratory], folder: Path, say: Callable[[str], None]) -> Report:
    """Runs everything; `say` is told what begins and ends. Errors as of Laboratory.opened."""
    results: list[Result] = []
    facts: dict[str, str] = {}
    for laboratory in laboratories:
        (own := folder / laboratory.name).mkdir(parents=True)
        say(f"{laboratory.name}: being set up")
        with laboratory.opened(own) as place:
            facts |= place.facts
            results += results_of(laboratory.experiments, place, say)
    return Report(tuple(sorted(results, key=lambda result: result.experiment.number)), facts)


def results_of(experiments: Sequence[Experiment], place: Place, say: Callable[[str], None]) -> list[Result]:
    """What comes of experiments in one place."""
    session = _Session(place, say)
    pool = ThreadPoolExecutor(len(experiments))
    try:
        runs = [
            pool.submit(session.observe, one, one.observe, number * APART_SECONDS)
            for number, one in enumerate(experiments)
        ]
        first = {one.number: run.result() for one, run in zip(experiments, runs, strict=True)}
    finally:  # after an interruption nobody waits for them; their place is about to be gone
        session.over.set()
        pool.shutdown(wait=False, cancel_futures=True)
    return [
        _added(first[one.number], _Session(place, say).observe(one, one.alone))
        for one in sorted(experiments, key=lambda one: one.number)
    ]


def _added(first: Result, second: Result) -> Result:
    return Result(first.experiment, first.observation + second.observation, first.seconds + second.seconds)


@dataclass(frozen=True)
class _Session:
    """Experiments at one time in one place, until it is `over`."""

    place: Place
    say: Callable[[str], None]
    over: Event = field(default_factory=Event)

    def observe(self, one: Experiment, observe: Observing | None, delay: float = 0) -> Result:
        """One part of an experiment; what ends it in an error is a claim that does not hold."""
        if observe is None or self.over.wait(delay):
            return Result(one, Observation(), 0)
        self.say(f"{one.number:>2} begins: {one.title}")
        began = time.monotonic()
        try:
            observation = observe(self.place)
        except Exception as error:
            text = " ".join(traceback.format_exception_only(error)[-1].split())
            observation = Observation(claims=(Claim("the experiment runs to its end", "no error", text, False),))
        seconds = time.monotonic() - began
        failed = [f"{claim.text}: {claim.seen}" for claim in observation.claims if not claim.holds]
        verdict = f"NOT as expected: {'; '.join(failed)}" if failed else "as expected"
        if not self.over.is_set():
            self.say(f"{one.number:>2} ends after {seconds:.0f} s: {verdict}")
        return Result(one, observation, seconds)
