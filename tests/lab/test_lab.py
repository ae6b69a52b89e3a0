"""What the lab sees is what is expected: every experiment, on a real node with drainproof installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab import node
from tests.lab.experiment import Experiment, Result
from tests.lab.laboratories import EXPERIMENTS, LABORATORIES
from tests.lab.laboratory import Report, report
from tests.node import requirements, snapshot

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1800),  # the first of them waits for all experiments, and for the image that they need
    pytest.mark.skipif(requirements.unfit() is not None, reason=str(requirements.unfit())),
]


@pytest.fixture(scope="session")
def told(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What came of the whole lab, of whose node nothing is left."""

    def say(text: str) -> None:
        print(f"[lab] {text}", file=sys.stderr, flush=True)

    before = snapshot.take()
    try:
        with _aloud(pytestconfig):
            found = report(LABORATORIES, tmp_path_factory.mktemp("lab"), say)
    except node.ERRORS as error:
        pytest.fail(str(error), pytrace=False)
    assert snapshot.left(before) == []
    return found


@contextmanager
def _aloud(config: pytest.Config) -> Iterator[None]:
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        yield


@pytest.fixture
def result(told: Report, one: Experiment) -> Result:
    (found,) = (result for result in told.results if result.experiment is one)
    return found


@pytest.mark.parametrize("one", EXPERIMENTS, ids=[f"{one.number:02}" for one in EXPERIMENTS])
def test_an_experiment_comes_as_expected(result: Result) -> None:
    failed = [claim for claim in result.observation.claims if not claim.holds]
    assert failed == []


@pytest.mark.parametrize("one", EXPERIMENTS, ids=[f"{one.number:02}" for one in EXPERIMENTS])
def test_an_experiment_has_something_to_show(result: Result) -> None:
    assert result.observation.runs
    assert result.observation.claims
