"""Nothing of a ring is left, in the control plane or on the machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import controlplane, process
from tests.cluster.controlplane import ControlPlane
from tests.karpenter import chart, ring, subject
from tests.karpenter.pool import node_pool
from tests.karpenter.programs import BEFORE_DURATIONS, NEWEST
from tests.karpenter.subject import Setting

pytestmark = pytest.mark.usefixtures("able")

ROOT: Final = Path(__file__).parents[2]
KINDS: Final = (
    "nodes,leases,customresourcedefinitions,serviceaccounts,clusterroles,clusterrolebindings,"
    "validatingwebhookconfigurations,deployments"
)
NAMES: Final = 'jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of its own, which new nodes enter without a taint."""
    with controlplane.running(tmp_path / "control-plane", apiserver_flags=ring.APISERVER_FLAGS) as running:
        yield running


def things(plane: ControlPlane) -> set[str]:
    return {*plane.kubectl("get", KINDS, "--all-namespaces", "-o", NAMES).stdout.splitlines()}


def test_one_version_after_another_leaves_nothing_in_a_control_plane(plane: ControlPlane, tmp_path: Path) -> None:
    before = things(plane)
    for version in (BEFORE_DURATIONS, NEWEST):
        with ring.running(plane, tmp_path / version, version) as running:
            plane.create(chart.deployment(version))
            running.add(node_pool("left"))
            job = subject.create(Setting(running, "default"), f"left-{version[2:4]}", "true", pool="left")
            pod = job.pod(0)
            job.runs(pod)
            node = job.node(pod)
        assert things(plane) == before
        assert plane.kubectl("get", "pods", f"--field-selector=spec.nodeName={node}").stdout == ""
        assert [entry.name for entry in (tmp_path / version).iterdir()] == ["logs"]


def test_a_control_plane_that_taints_its_nodes_for_ever_is_refused(tmp_path: Path) -> None:
    with controlplane.running(tmp_path / "control-plane", controllers=False) as plane:
        before = things(plane)
        with pytest.raises(process.ProcessError, match="TaintNodesByCondition"), ring.running(plane, tmp_path / "ring"):
            pass
        assert things(plane) == before


def test_the_command_ends_with_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.karpenter.ring"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, text=True, env=environment, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("export KUBECONFIG=")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
    assert [*tmp_path.iterdir()] == []
