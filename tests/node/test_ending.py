"""Nothing of a ring is left on the machine, however it ends. Each test has a ring of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import process
from tests.node import ring, snapshot

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("able")


@contextmanager
def command(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`python -m tests.node.ring`, which keeps its files in `folder`; it is gone on leaving."""
    words = [sys.executable, "-m", "tests.node.ring"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(words, cwd=ROOT, text=True, env=environment, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def first_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def test_a_kubelet_that_does_not_start_is_named_with_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    before = snapshot.take()
    with (
        pytest.raises(process.ProcessError, match=r"kubelet ended(.|\n)*unknown flag: --no-such-flag"),
        ring.running(tmp_path, kubelet_flags=["--no-such-flag"]),
    ):
        pass
    assert snapshot.left(before) == []
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["control-plane", "logs"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_ring_that_is_interrupted_leaves_nothing(tmp_path: Path, ending: signal.Signals) -> None:
    before = snapshot.take()
    with command(tmp_path) as child:
        assert first_line(child).startswith("export KUBECONFIG=")
        child.send_signal(ending)
        assert child.wait(60) == 0
    assert snapshot.left(before) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [0.7, 3, 7])
def test_a_ring_that_is_interrupted_while_it_starts_leaves_nothing(tmp_path: Path, seconds: float) -> None:
    before = snapshot.take()
    with command(tmp_path) as child:
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        child.wait(60)
    assert snapshot.left(before) == []
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_ring_leaves_is_removed_by_the_next_one(tmp_path: Path) -> None:
    before = snapshot.take()
    (tmp_path / "killed").mkdir()
    with command(tmp_path / "killed") as child:
        first_line(child)
        child.kill()
    left = snapshot.left(before)
    # The processes and what they had mounted go by the kernel's hand.
    assert [line for line in left if line.startswith(("process", "mount"))] == []
    assert [line for line in left if "KUBE-SERVICES" in line] != []
    with ring.running(tmp_path / "next") as running:
        running.kubectl("get", "nodes")
    assert snapshot.left(before) == []
