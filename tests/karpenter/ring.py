"""Karpenter beside a control plane, with a cloud and nodes that are simulated: nothing of the machine is changed.

Karpenter is the real program, and so is its ServiceAccount; KWOK plays the kubelets of the nodes that it makes.
`python -m tests.karpenter.ring` runs one, with a control plane of its own, until Ctrl-C.
"""

import json
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster import controlplane, process
from tests.cluster import programs as cluster_programs
from tests.cluster.building import ProgramError
from tests.cluster.controlplane import ControlPlane, KubectlError
from tests.cluster.process import Process
from tests.karpenter import accounts, leaving, pool, programs, record
from tests.karpenter.programs import NEWEST, Programs
from tests.karpenter.record import Record

STAGES: Final = Path(__file__).with_name("stages.yaml")
USER: Final = f"system:serviceaccount:{accounts.NAMESPACE}:{accounts.KARPENTER}"
# Whoever takes the taint from a ready node is a controller that these control planes go without.
APISERVER_FLAGS: Final = ("--disable-admission-plugins=TaintNodesByCondition",)
NODE: Final = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "canary"}}
ERRORS: Final = (ProgramError, process.ProcessError, KubectlError)


@dataclass(frozen=True)
class Ring:
    """Karpenter of `version` at work; `seconds` is how long it took until it was ready."""

    plane: ControlPlane
    version: str
    record: Record
    logs: Path
    seconds: float

    def add(self, node_pool: Mapping[str, Any]) -> None:
        """Make a NodePool, unless it is there, and wait until Karpenter takes Pods for it. Raises KubectlError."""
        self.plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(node_pool))
        name = node_pool["metadata"]["name"]
        self.plane.kubectl("wait", f"nodepool/{name}", "--for=condition=Ready", "--timeout=50s")


@contextmanager
def running(
    plane: ControlPlane, directory: Path, version: str = NEWEST, *, has_scheduler: bool = False
) -> Iterator[Ring]:
    """Start Karpenter of `version`, KWOK and, unless the plane `has_scheduler`, kube-scheduler; end them on leaving.

    The plane must have been started with APISERVER_FLAGS, as a node ring is. On leaving everything that Karpenter made
    is gone, too, within a minute. `directory` is made if missing; only logs stay in it. One ring at a time beside a
    plane. Call it from a thread that lasts. Raises ERRORS.
    """
    found = programs.find(version)
    with ExitStack() as stack:
        yield _start(plane, directory.absolute(), found, version, has_scheduler, stack)


@contextmanager
def alone(directory: Path, version: str = NEWEST) -> Iterator[Ring]:
    """As `running`, with a control plane of its own."""
    programs.find(version)
    with (
        controlplane.running(directory / "control-plane", apiserver_flags=APISERVER_FLAGS) as plane,
        running(plane, directory / "karpenter", version) as ring,
    ):
        yield ring


def _start(
    plane: ControlPlane, directory: Path, found: Programs, version: str, has_scheduler: bool, stack: ExitStack
) -> Ring:
    """Start everything in order; whatever has started is ended by `stack`, in reverse."""
    began = time.monotonic()
    if "taints" in plane.create(NODE, "--dry-run=server")["spec"]:
        raise process.ProcessError(f"new nodes would be tainted for ever; start the API server with {APISERVER_FLAGS}")
    (logs := directory / "logs").mkdir(parents=True, exist_ok=True)
    (keys := directory / "keys").mkdir(mode=0o700)
    stack.callback(shutil.rmtree, keys)
    stack.callback(leaving.remove, plane, found)
    _install(plane, found, keys)
    seen = stack.enter_context(record.recording(plane, keys))
    started: list[Process] = []

    def run(name: str, *command: str, **environment: str) -> None:
        kept = {"PATH": plane.environment["PATH"], "HOME": str(keys), "TMPDIR": str(keys), **environment}
        started.append(process.start(name, command, logs / f"{name}.log", kept))
        stack.callback(process.stop, started[-1])

    if not has_scheduler:
        scheduler = cluster_programs.find({"kube-scheduler": cluster_programs.NODE_PACKAGES["kube-scheduler"]})
        words = (f"--kubeconfig={keys / 'scheduler'}", "--leader-elect=false", "--secure-port=0")
        run("kube-scheduler", str(scheduler["kube-scheduler"].path), *words)
    run("kwok", str(found.kwok), *_kwok(found, keys))
    metrics, health = controlplane.free_ports(2)
    run("karpenter", str(found.karpenter), KUBECONFIG=str(keys / accounts.KARPENTER), **_settings(metrics, health))
    process.wait_ready(started, lambda: _is_ready(health))
    return Ring(plane, version, seen, logs, time.monotonic() - began)


def _install(plane: ControlPlane, found: Programs, keys: Path) -> None:
    """The kinds, the accounts with their kubeconfigs, and the class of simulated nodes."""
    plane.kubectl("apply", "--server-side", "-f", str(found.crds))
    plane.kubectl("wait", "--for=condition=Established", "--timeout=50s", "-f", str(found.crds))
    documents = {"apiVersion": "v1", "kind": "List", "items": accounts.documents(found.rights)}
    plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(documents))
    for name in (accounts.KARPENTER, accounts.KWOK):
        accounts.with_token(plane, name, keys / name)
    accounts.acting_as(plane, "system:kube-scheduler", keys / "scheduler")
    plane.create(pool.node_class())


def _kwok(found: Programs, keys: Path) -> Sequence[str]:
    stages = [*sorted(found.stages.glob("*.yaml")), STAGES]
    return [
        f"--kubeconfig={keys / accounts.KWOK}",
        "--manage-all-nodes=false",
        # The mark of the nodes that Karpenter's simulated cloud makes, v1.15.0 kwok/apis/v1alpha1/labels.go: a real
        # node beside them is none of KWOK's.
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        *(f"--config={file}" for file in stages),
    ]


def _settings(metrics: int, health: int) -> dict[str, str]:
    """Karpenter's, from its environment. It listens on every interface; nobody asks it to say less."""
    return {
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": accounts.NAMESPACE,
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "LOG_LEVEL": "debug",
    }


def _is_ready(port: int) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def main() -> int:
    """Run a ring until Ctrl-C, SIGTERM or SIGHUP; 1 when it cannot be had."""

    def told(ring: Ring) -> None:
        ring.add(pool.node_pool("default"))
        print(f"export KUBECONFIG={ring.plane.kubeconfig}", flush=True)
        print(f"Karpenter {ring.version} is ready after {ring.seconds:.1f} s; Ctrl-C ends it", file=sys.stderr)

    return process.hold("drainproof-karpenter-", alone, told, ERRORS)


if __name__ == "__main__":
    sys.exit(main())
