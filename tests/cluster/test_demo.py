"""The demo as a person runs it: to its end, and interrupted on the way."""

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster import programs
from tests.cluster.controlplane import ControlPlane
from tests.cluster.demo import act, example
from tests.cluster.demo.act import Stage
from tests.cluster.demo.screen import Screen
from tests.cluster.programs import Program

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("found_programs")


@contextmanager
def demo(scratch: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """The demo with a temp folder of its own, by which everything that it starts can be told."""
    variables = {**os.environ, "TMPDIR": str(scratch), "NO_COLOR": "1", **environment}
    command = [sys.executable, "-m", "tests.cluster.demo"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with subprocess.Popen(command, cwd=ROOT, env=variables, **pipes) as started:  # type: ignore[call-overload]
        try:
            yield started
        finally:
            started.kill()


def left_over(scratch: Path) -> list[str]:
    """What there still is of a demo: files in its temp folder, and processes that were given it."""
    return [str(path) for path in scratch.rglob("*")] + [" ".join(words) for words in _processes(str(scratch))]


def _processes(mark: str) -> Iterator[list[str]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if mark.encode() in environment or mark in " ".join(words):
            yield [folder.name, *words]


def test_the_demo_shows_what_the_examples_claim_and_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        said, complaint = running.communicate(timeout=60)
    assert (running.returncode, complaint) == (0, "")
    assert "\x1b" not in said
    lines = [line.strip() for line in said.splitlines()]
    for one in example.story():
        assert one.path.name in lines
        assert f"$ kubectl apply --dry-run=server -f {one.file}" in lines
        assert f"✓ {one.claim}, as its comment says" in lines
    assert "+       restartPolicy: Never" in lines
    assert lines[-1] == "✓ Everything came out as the manifests' own comments say."
    summary = re.fullmatch(r"10 manifests in ([\d.]+) s: 6 mended, 5 warned, 2 refused\.", lines[-2])
    assert summary
    assert float(summary[1]) < 30
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("number", "line"),
    [
        (signal.SIGINT, "on-failure-job.yaml"),
        (signal.SIGTERM, "Starting a Kubernetes"),
        (signal.SIGINT, "Still running"),
    ],
    ids=["SIGINT midway", "SIGTERM while it starts", "SIGINT where it is kept"],
)
def test_a_signal_ends_the_demo_and_leaves_nothing(number: signal.Signals, line: str, tmp_path: Path) -> None:
    with demo(tmp_path, KEEP="1", PYTHONUNBUFFERED="1") as running:
        assert running.stdout is not None
        assert any(said.startswith(line) for said in running.stdout)
        time.sleep(0.3)  # into the middle of something
        running.send_signal(number)
        _, complaint = running.communicate(timeout=20)
    assert running.returncode == 130
    assert complaint == "\nInterrupted: what had been started is stopped, and nothing is left behind.\n"
    assert left_over(tmp_path) == []


def test_a_control_plane_that_does_not_start_is_told_in_plain_words(
    found_programs: Mapping[str, Program], tmp_path: Path
) -> None:
    assets, scratch = tmp_path / "assets", tmp_path / "scratch"
    for folder in (assets, scratch):
        folder.mkdir()
    for name in programs.PACKAGES:
        (assets / name).symlink_to(found_programs[name].path)
    (assets / "etcd").unlink()
    (assets / "etcd").write_text("#!/bin/sh\necho the disk is on fire\nexit 3\n")
    (assets / "etcd").chmod(0o755)
    with demo(scratch, KUBEBUILDER_ASSETS=str(assets)) as running:
        _, complaint = running.communicate(timeout=30)
    assert running.returncode == 1
    assert complaint.startswith("\nerror: etcd ended with exit code 3")
    assert "the disk is on fire" in complaint
    assert "Traceback" not in complaint
    assert left_over(scratch) == []


def test_programs_that_cannot_be_had_are_told_in_plain_words(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    with demo(tmp_path, PATH=nowhere, XDG_CACHE_HOME=nowhere, KUBEBUILDER_ASSETS="") as running:
        _, complaint = running.communicate(timeout=30)
    assert running.returncode == 1
    assert complaint.startswith(
        "\nerror: the test control plane has to be built, and there is no `go` on PATH. Install"
    )
    assert left_over(tmp_path) == []


def test_the_demo_notices_what_does_not_come_out_as_claimed(control_plane: ControlPlane) -> None:
    shown = io.StringIO()
    stage = Stage(control_plane, Screen(shown), example.story())
    stage.measure()
    act.dry_runs(stage)  # without a webhook, so that nothing is mended, said or refused
    assert [fault.partition(":")[0] for fault in stage.faults] == [one.file for one in stage.examples]
    assert set(stage.outcomes) == {"accepted as written"}
    assert shown.getvalue().count("x accepted as written; its comment says: ") == len(stage.examples)
