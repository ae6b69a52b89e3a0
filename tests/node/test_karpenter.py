"""Karpenter works beside a real node, and neither it nor its simulated nodes have to do with that one."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.karpenter import programs, subject
from tests.karpenter import ring as karpenter
from tests.karpenter.pool import node_pool
from tests.karpenter.subject import Setting
from tests.node.image import BUSYBOX
from tests.node.ring import Ring

# Its programs may have to be built.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def beside(
    node_ring: Ring, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[karpenter.Ring]:
    """Karpenter in the cluster of the node ring, which has a scheduler."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        programs.find()
    folder = tmp_path_factory.mktemp("karpenter")
    with karpenter.running(node_ring.plane, folder, has_scheduler=True) as running:
        running.add(node_pool("beside"))
        yield running


def known(node_ring: Ring) -> Any:
    """What of the real node is Karpenter's or KWOK's to change, were it theirs."""
    node = node_ring.plane.get("node", node_ring.node)
    metadata = {key: node["metadata"].get(key) for key in ("labels", "annotations", "finalizers", "ownerReferences")}
    return metadata, node["spec"], node["status"]["nodeInfo"]


def test_each_pod_runs_where_it_belongs(node_ring: Ring, beside: karpenter.Ring) -> None:
    before = known(node_ring)
    job = subject.create(Setting(beside, "default"), "beside", pool="beside")
    pod = job.pod(0)
    job.runs(pod)
    simulated = node_ring.plane.get("node", job.node(pod))
    assert simulated["metadata"]["labels"]["karpenter.sh/nodepool"] == "beside"
    container = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", "echo real; exec sleep 600"]}
    metadata, spec = {"name": "real"}, {"containers": [container], "terminationGracePeriodSeconds": 1}
    node_ring.plane.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    node_ring.kubectl("wait", "pod/real", "--for=condition=Ready", "--timeout=50s")
    assert node_ring.plane.get("pod", "real")["spec"]["nodeName"] == node_ring.node
    assert node_ring.kubectl("logs", "real").stdout == "real\n"
    job.disrupt(pod)
    assert job.last(pod).status["phase"] == "Failed"
    assert known(node_ring) == before
    assert "forbidden" not in (beside.logs / "karpenter.log").read_text(encoding="utf-8")
    job.end()
    node_ring.kubectl("delete", "pod", "real", "--timeout=50s")
