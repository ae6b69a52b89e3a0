"""The control plane is the real one, and nothing of it is left when it ends, however it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import controlplane, process
from tests.cluster.controlplane import ControlPlane
from tests.cluster.credentials import HOST
from tests.cluster.programs import Program

ROOT = Path(__file__).parents[2]
# Says the process ids once all runs, then waits to be ended.
HOLD = """
import json, pathlib, signal, sys
from tests.cluster import controlplane
signal.signal(signal.SIGINT, signal.default_int_handler)
with controlplane.running(pathlib.Path(sys.argv[1]), controllers=False) as plane:
    print(json.dumps(dict(plane.pids)), flush=True)
    signal.pause()
"""


def job(name: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example.com/none:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


def alive(pids: Iterable[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def mentioning(folder: Path) -> list[str]:
    """The command lines of all processes that work in `folder`."""
    lines = subprocess.run(["ps", "-eww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if str(folder) in line]


def test_the_server_and_kubectl_are_the_programs_that_were_found(
    control_plane: ControlPlane, found_programs: dict[str, Program]
) -> None:
    versions = json.loads(control_plane.kubectl("version", "-o", "json").stdout)
    assert versions["serverVersion"]["gitVersion"] == found_programs["kube-apiserver"].version
    assert versions["clientVersion"]["gitVersion"] == found_programs["kubectl"].version


def test_a_job_gets_a_pod_from_the_controller_manager(control_plane: ControlPlane) -> None:
    created = control_plane.create(job("gets-a-pod"))
    control_plane.kubectl("wait", "job/gets-a-pod", "--for=jsonpath={.status.active}=1", "--timeout=20s")
    pods = control_plane.get("pods", "--selector=batch.kubernetes.io/job-name=gets-a-pod")["items"]
    assert [pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods] == [created["metadata"]["uid"]]


def test_a_failed_kubectl_call_says_why(control_plane: ControlPlane) -> None:
    with pytest.raises(controlplane.KubectlError, match=r"exit code 1: .*NotFound"):
        control_plane.get("job", "there-is-none")
    assert control_plane.kubectl("get", "job", "there-is-none", check=False).returncode == 1


def test_it_listens_on_loopback_only(control_plane: ControlPlane) -> None:
    inodes = {os.readlink(fd) for pid in control_plane.pids.values() for fd in Path(f"/proc/{pid}/fd").iterdir()}
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    listening = {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}
    assert listening == {f"{socket.htonl(0x7F000001):08X}"}


def test_after_a_port_was_taken_others_are_chosen_and_all_is_gone_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free_ports = controlplane.free_ports
    with socket.create_server((HOST, 0)) as taken:
        choices = iter([[taken.getsockname()[1], *free_ports(1)], free_ports(2)])
        monkeypatch.setattr(controlplane, "free_ports", lambda _count: next(choices))
        with controlplane.running(tmp_path, controllers=False) as plane:
            assert sorted(plane.pids) == ["etcd", "kube-apiserver"]
            plane.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "a"},
                    "spec": job("a")["spec"]["template"]["spec"],
                }
            )
    assert alive(plane.pids.values()) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["logs"]


def test_a_server_that_does_not_start_is_named_with_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(process.ProcessError, match=r"kube-apiserver ended(.|\n)*unknown flag: --no-such-flag"),
        controlplane.running(tmp_path, apiserver_flags=["--no-such-flag"]),
    ):
        pass
    assert mentioning(tmp_path) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["logs"]


def test_a_program_that_is_never_ready_is_named_with_its_log(tmp_path: Path) -> None:
    sleeper = process.start(
        "sleeper",
        ["/bin/sh", "-c", "trap '' TERM; echo waking; sleep 60 & wait; sleep 60"],
        tmp_path / "log",
        {},
    )
    with pytest.raises(process.ProcessError, match=r"sleeper was not ready after 1 s(.|\n)*waking"):
        process.wait_ready([sleeper], lambda: False, seconds=0.6)
    process.stop(sleeper, seconds=0.2)
    assert alive([sleeper.popen.pid]) == []


@contextmanager
def python(*args: str | Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another Python at the root of the project and the first line it prints; it is gone on leaving."""
    command = [sys.executable, *map(str, args)]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=pipe, stderr=null) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline()
        finally:
            child.kill()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_when_python_is_ended_so_is_all_that_it_started(tmp_path: Path, ending: signal.Signals) -> None:
    with python("-c", HOLD, tmp_path) as (holder, line):
        pids = json.loads(line).values()
        assert sorted(alive(pids)) == sorted(pids)
        holder.send_signal(ending)
        holder.wait(20)
    # After SIGKILL the orphans end by the kernel's hand, a moment later.
    deadline = time.monotonic() + 5
    while mentioning(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert mentioning(tmp_path) == []


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_the_kubeconfig_and_cleans_up_when_told_to_end(ending: signal.Signals) -> None:
    with python("-m", "tests.cluster.controlplane") as (command, line):
        kubeconfig = Path(line.strip().removeprefix("export KUBECONFIG="))
        assert kubeconfig.is_file()
        command.send_signal(ending)
        assert command.wait(20) == 0
    assert not kubeconfig.parents[1].exists()
    assert mentioning(kubeconfig.parents[1]) == []
