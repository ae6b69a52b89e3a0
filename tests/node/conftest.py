"""The ring that the tests of this folder share, and their marker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import image
from tests.cluster import programs
from tests.node import installation, requirements, ring, snapshot
from tests.node.ring import Ring

FOLDER = Path(__file__).parent
UNFIT = requirements.unfit()


# First, because `-m` chooses by the markers that are there.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test below this folder; what uses the shared ring comes last.

    There is one ring at a time on a machine, so the tests that start one of their own come before it.
    """
    for item in _here(items):
        item.add_marker("node")
        if UNFIT:
            item.add_marker(pytest.mark.skip(reason=UNFIT))
    items.sort(key=lambda item: "node_ring" in getattr(item, "fixturenames", ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Get the programs before the first test runs: a first build takes longer than a test may."""
    if UNFIT or session.config.option.collectonly or not _here(session.items):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        requirements.check()
        with capture.global_and_fixture_disabled():
            programs.find()
            programs.find(programs.NODE_PACKAGES)
    except ring.ERRORS:
        pass  # said by the first test that needs them


def _here(items: list[pytest.Item]) -> list[pytest.Item]:
    return [item for item in items if item.path.is_relative_to(FOLDER)]


@pytest.fixture(scope="session")
def able() -> None:
    """This machine has what a node needs; without it a test fails, it is never skipped."""
    try:
        requirements.check()
        programs.find(programs.NODE_PACKAGES)
    except ring.ERRORS as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def node_ring(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:  # noqa: ARG001
    """One ring for the whole run, of which nothing is left: a test keeps to names or a namespace of its own."""
    before = snapshot.take()
    try:
        with ring.running(tmp_path_factory.mktemp("ring")) as running:
            yield running
    except ring.ERRORS as error:
        pytest.fail(str(error), pytrace=False)
    left = snapshot.left(before)
    assert left == []


@pytest.fixture(scope="session")
def installable(node_ring: Ring, pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Ring:
    """The ring, whose node has the image of the Dockerfile under the name that docs/install.md gives it."""
    if reason := image.missing():
        pytest.fail(reason, pytrace=False)
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        archive = image.build(tmp_path_factory.mktemp("image") / "drainproof.tar", installation.IMAGE)
    node_ring.import_image(archive)
    archive.unlink()
    return node_ring
