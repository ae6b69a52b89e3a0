"""The lab runs every experiment, and an error in one is a claim of it that does not hold."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.lab import laboratory
from tests.lab.experiment import Claim, Experiment, Observation
from tests.lab.laboratory import Laboratory, report

GOOD = Claim("it is", "so", "so", True)


@dataclass(frozen=True)
class Table:
    facts: Mapping[str, str]


@contextmanager
def opened(folder: Path) -> Iterator[Table]:
    assert folder.is_dir()
    yield Table({"Folder": folder.name})


def experiment(number: int, observe: Any = None, alone: Any = None) -> Experiment:
    return Experiment(number, f"Number {number}", "", "", "", observe, alone)


@pytest.fixture(autouse=True)
def _together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laboratory, "APART_SECONDS", 0)


def test_experiments_run_side_by_side_and_those_that_need_it_alone_afterwards(tmp_path: Path) -> None:
    together, order = Barrier(2, timeout=10), []

    def beside(_: Table) -> Observation:
        together.wait()
        order.append("beside")
        return Observation(claims=(GOOD,))

    def alone(_: Table) -> Observation:
        order.append("alone")
        return Observation(claims=(GOOD, GOOD))

    said: list[str] = []
    experiments = (experiment(2, beside, alone), experiment(1, beside))
    told = report((Laboratory("table", experiments, opened),), tmp_path, said.append)
    assert order == ["beside", "beside", "alone"]
    assert [(result.experiment.number, len(result.observation.claims)) for result in told.results] == [(1, 1), (2, 3)]
    assert told.facts == {"Folder": "table"}
    assert told.holds
    assert len(said) == 1 + 2 * 3


def test_an_error_is_a_claim_that_does_not_hold_and_the_others_go_on(tmp_path: Path) -> None:
    def fails(_: Table) -> Observation:
        raise ValueError("what was\nnot foreseen")

    def holds(_: Table) -> Observation:
        return Observation(claims=(GOOD,))

    said: list[str] = []
    experiments = (experiment(1, fails), experiment(2, holds))
    told = report((Laboratory("table", experiments, opened),), tmp_path, said.append)
    first, second = told.results
    assert [claim.seen for claim in first.observation.claims] == ["ValueError: what was not foreseen"]
    assert second.observation.holds
    assert not told.holds
    assert (
        " 1 ends after 0 s: NOT as expected: the experiment runs to its end: ValueError: what was not foreseen" in said
    )


def test_all_places_are_opened_one_after_the_other(tmp_path: Path) -> None:
    def holds(_: Table) -> Observation:
        return Observation(claims=(GOOD,))

    places = [Laboratory(name, (experiment(number, holds),), opened) for number, name in ((2, "a"), (1, "b"))]
    told = report(places, tmp_path, lambda _: None)
    assert [result.experiment.number for result in told.results] == [1, 2]
