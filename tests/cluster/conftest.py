"""The control plane that the tests of this folder share, and their marker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import controlplane, process, programs
from tests.cluster.controlplane import ControlPlane
from tests.cluster.programs import Program, ProgramError

FOLDER = Path(__file__).parent
FOUND = pytest.StashKey[dict[str, Program] | ProgramError]()


# First, because `-m` chooses by the markers that are there.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this folder; the hook is given those of all folders."""
    for item in _here(items):
        item.add_marker("cluster")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the programs before the first test runs: a first build takes longer than a test may."""
    if session.config.option.collectonly or not _here(session.items):
        return
    try:
        session.config.stash[FOUND] = _find_aloud(session.config)
    except ProgramError as error:
        session.config.stash[FOUND] = error


def _here(items: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if item.path.is_relative_to(FOLDER)]


def _find_aloud(config: pytest.Config) -> dict[str, Program]:
    """Find or build the programs; the progress of a build is not held back by pytest's capturing."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return programs.find()
    with capture.global_and_fixture_disabled():
        return programs.find()


def _found(config: pytest.Config) -> dict[str, Program]:
    found = config.stash[FOUND]
    if isinstance(found, ProgramError):
        pytest.fail(str(found), pytrace=False)
    return found


@pytest.fixture(scope="session")
def found_programs(pytestconfig: pytest.Config) -> dict[str, Program]:
    """The programs of the control plane; without them a test fails, it is never skipped."""
    return _found(pytestconfig)


@pytest.fixture(scope="session")
def control_plane(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One control plane for the whole run: a test keeps to names or a namespace of its own."""
    _found(pytestconfig)
    try:
        with controlplane.running(tmp_path_factory.mktemp("control-plane")) as plane:
            yield plane
    except process.ProcessError as error:
        pytest.fail(str(error), pytrace=False)
