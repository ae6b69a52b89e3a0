"""The ring that the tests of this folder share, and their markers."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cluster import programs as cluster_programs
from tests.cluster.building import ProgramError
from tests.karpenter import programs, ring
from tests.karpenter.programs import BEFORE_DURATIONS, NEWEST
from tests.karpenter.ring import Ring

FOLDER = Path(__file__).parent
NEEDED = ("kube-scheduler",)


# First, because `-m` chooses by the markers that are there.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this folder; the hook is given those of all folders."""
    for item in _here(items):
        item.add_marker("cluster")
        item.add_marker("karpenter")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the programs before the first test runs: a first build takes longer than a test may."""
    if session.config.option.collectonly or not _here(session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled(), suppress(ProgramError):  # said by the first test that needs them
        _find()


def _find() -> None:
    cluster_programs.find()
    cluster_programs.find({name: cluster_programs.NODE_PACKAGES[name] for name in NEEDED})
    for version in (NEWEST, BEFORE_DURATIONS):
        programs.find(version)


def _here(items: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if item.path.is_relative_to(FOLDER)]


@pytest.fixture(scope="session")
def able() -> None:
    """The programs are there; without them a test fails, it is never skipped."""
    try:
        _find()
    except ProgramError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def old_ring(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:  # noqa: ARG001
    """A cluster with the last Karpenter that knows no durations."""
    try:
        with ring.alone(tmp_path_factory.mktemp("karpenter"), BEFORE_DURATIONS) as running:
            yield running
    except ring.ERRORS as error:
        pytest.fail(str(error), pytrace=False)
