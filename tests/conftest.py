"""How property tests run, and how tests are shared out where several processes run them."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline, for a shared machine stalls at times; in CI the same examples each time.
settings.register_profile("drainproof", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("drainproof")

# What a shell starts in the background ignores SIGINT, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

FOLDER = Path(__file__).parent
# What there can be one of on a machine, or what a look at the machine would take for it.
ALONE = tuple(FOLDER / name for name in ("node", "lab", "karpenter", "test_image.py"))


# Before pytest-xdist reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With `-n`, the tests of a file stay together, and those that need the machine are one by one, and begin first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group("machine" if _is_alone(item) else str(item.path.relative_to(FOLDER))))
    items.sort(key=lambda item: not _is_alone(item))


def _is_alone(item: pytest.Item) -> bool:
    return any(item.path.is_relative_to(path) for path in ALONE)


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says what was measured: on stderr, for what the processes of pytest-xdist write to stdout is lost."""

    def said(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", file=sys.stderr, flush=True)

    return said
