"""The node is a real one: it runs Pods, serves Services and is drained."""

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.node.image import BUSYBOX
from tests.node.ring import Ring

READY_SECONDS = 60
IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
OWNER = "batch.kubernetes.io/job-name"
DRAIN = ("drain", "--ignore-daemonsets", "--force", "--timeout=60s", f"--pod-selector={OWNER}=drained")


def container(script: str, **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script], **more}


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container(script)], **spec},
    }


def job(name: str, script: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [container(script)]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


def pods_of(node_ring: Ring, name: str) -> list[dict[str, Any]]:
    pods: list[dict[str, Any]] = node_ring.plane.get("pods", f"--selector={OWNER}={name}")["items"]
    return pods


def test_the_node_is_ready_soon(node_ring: Ring) -> None:
    node = node_ring.plane.get("node", node_ring.node)
    said, found = node["status"]["nodeInfo"], node_ring.programs
    assert said["kubeletVersion"] == found["kubelet"].version
    assert said["containerRuntimeVersion"] == f"containerd://{found['containerd'].version.removeprefix('v')}"
    assert "taints" not in node["spec"]
    assert node_ring.seconds < READY_SECONDS


def test_a_pod_runs_and_its_log_is_read(node_ring: Ring) -> None:
    node_ring.plane.create(pod("says", "echo hello from $(hostname); exec sleep 600"))
    node_ring.kubectl("wait", "pod/says", "--for=condition=Ready", "--timeout=50s")
    assert node_ring.kubectl("logs", "says").stdout == "hello from says\n"
    assert node_ring.kubectl("exec", "says", "--", "cat", "/proc/1/comm").stdout == "sleep\n"


def test_a_job_completes(node_ring: Ring) -> None:
    node_ring.plane.create(job("completes", "exit 0"))
    node_ring.kubectl("wait", "job/completes", "--for=condition=Complete", "--timeout=50s")


def test_the_exit_code_of_a_container_is_told(node_ring: Ring) -> None:
    node_ring.plane.create(job("fails", "exit 7", backoffLimit=0))
    node_ring.kubectl("wait", "job/fails", "--for=condition=Failed", "--timeout=50s")
    (failed,) = pods_of(node_ring, "fails")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7


@pytest.fixture(scope="module")
def service(node_ring: Ring) -> str:
    """The address of a Service whose Pod answers `served` on port 80."""
    node_ring.plane.create(pod("serves", "echo served > /tmp/index.html; exec httpd -f -p 8080 -h /tmp"))
    spec = {"selector": {"app": "serves"}, "ports": [{"port": 80, "targetPort": 8080}]}
    made = node_ring.plane.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "serves"}, "spec": spec})
    node_ring.kubectl("wait", "pod/serves", "--for=condition=Ready", "--timeout=50s")
    address: str = made["spec"]["clusterIP"]
    return address


def test_a_service_is_reached_from_the_host(service: str) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 20
    while True:
        try:
            with opener.open(f"http://{service}/", timeout=2) as answer:
                assert answer.read() == b"served\n"
                return
        except OSError:
            # kube-proxy is told of the Pod a moment after the kubelet is.
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_service_and_the_api_server_are_reached_from_a_pod_and_the_world_is_not(
    node_ring: Ring, service: str
) -> None:
    script = f"""
        until printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {service} 80 | grep served; do sleep 0.2; done
        nc -w 5 $KUBERNETES_SERVICE_HOST 443 < /dev/null && echo API server
        nc -w 5 192.0.2.1 443 < /dev/null 2>&1 | grep -o 'Network is unreachable'"""
    node_ring.plane.create(pod("calls", script, restartPolicy="Never"))
    node_ring.kubectl("wait", "pod/calls", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=50s")
    assert node_ring.kubectl("logs", "calls").stdout == "served\nAPI server\nNetwork is unreachable\n"


def test_a_drained_job_is_told_and_its_pod_says_why_and_is_replaced(node_ring: Ring) -> None:
    script = "trap 'echo told; exit 3' TERM; while :; do sleep 0.1; done"
    node_ring.plane.create(job("drained", script, backoffLimit=0, podFailurePolicy=IGNORE))
    node_ring.kubectl("wait", "job/drained", "--for=jsonpath={.status.ready}=1", "--timeout=50s")
    (running,) = pods_of(node_ring, "drained")
    name = running["metadata"]["name"]
    # Held by a finalizer, it can be looked at after its end; the drain waits until it is gone.
    hold = [{"op": "add", "path": "/metadata/finalizers/-", "value": "drainproof.dev/held"}]
    release = [{"op": "replace", "path": "/metadata/finalizers", "value": []}]
    node_ring.kubectl("patch", "pod", name, "--type=json", "--patch", json.dumps(hold))
    with ThreadPoolExecutor() as pool:
        drain = pool.submit(node_ring.kubectl, *DRAIN, node_ring.node, timeout=90)
        node_ring.kubectl("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Failed", "--timeout=50s")
        assert node_ring.kubectl("logs", name).stdout == "told\n"
        ended = node_ring.plane.get("pod", name)
        node_ring.kubectl("patch", "pod", name, "--type=json", "--patch", json.dumps(release))
        drain.result()
    (disrupted,) = [each for each in ended["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (disrupted["status"], disrupted["reason"]) == ("True", "EvictionByEvictionAPI")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    node_ring.kubectl("uncordon", node_ring.node)
    node_ring.kubectl("wait", "job/drained", "--for=jsonpath={.status.ready}=1", "--timeout=50s")
    assert node_ring.plane.get("job", "drained")["status"].get("failed", 0) == 0
    node_ring.kubectl("delete", "job", "drained", "--timeout=50s")
