"""A real node on this machine beside a control plane: containerd, kubelet, kube-proxy and a scheduler.

Needs root, Linux and a few packages of Debian. Of the host it uses loopback and a bridge of its own.
`python -m tests.node.ring` runs one until Ctrl-C.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from tests.cluster import controlplane, process, programs
from tests.cluster.controlplane import ControlPlane
from tests.cluster.process import Process
from tests.cluster.programs import Program
from tests.node import accounts, cgroups, configuration, image, namespace, network, requirements
from tests.node.accounts import NODE
from tests.node.configuration import SERVER_PORT, SOCKET, Place

FORWARD = Path(__file__).with_name("forward.py")
READY = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'


class ImageError(Exception):
    """An archive that the node does not take; the text is containerd's."""


# What `running` raises where there can be no ring.
ERRORS = (
    requirements.RequirementError,
    network.NetworkError,
    programs.ProgramError,
    process.ProcessError,
    ImageError,
)


@dataclass(frozen=True)
class Ring:
    """A running cluster with one node.

    `address` is where Pods reach the host; `seconds` is how long it took until the node was ready; `enter` are
    the words that run a command among the node's mounts and processes; `pod_logs` is where the host finds the
    logs of containers, as NAMESPACE_POD_UID/CONTAINER/RESTART.log.
    """

    plane: ControlPlane
    node: str
    address: str
    seconds: float
    enter: Sequence[str]
    programs: Mapping[str, Program]
    pod_logs: Path

    @property
    def kubectl(self) -> Callable[..., subprocess.CompletedProcess[str]]:
        """As ControlPlane.kubectl."""
        return self.plane.kubectl

    def import_image(self, archive: Path) -> None:
        """Give the node the images of an archive, docker's or OCI's. Raises ImageError.

        A Pod names them with their domain, as docker.io/local/busybox:1, and with a tag other than `latest`.
        """
        _import(self.enter, self.programs, archive)


@contextmanager
def running(
    directory: Path, *, kubelet_flags: Sequence[str] = (), environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Ring]:
    """Start a control plane and a node, ready for Pods with image.BUSYBOX, and end them on leaving.

    `directory` is made if missing; only logs stay, in `logs` and `control-plane/logs`. It may not lie below
    /run, /var/lib or /var/log. `kubelet_flags` come last and so win; `environment` is added to that of the
    node's programs. One ring at a time on a machine: another one is waited for. Call it from a thread that lasts.
    Raises ERRORS.
    """
    requirements.check()
    found = programs.find(programs.NODE_PACKAGES)
    with ExitStack() as stack:
        stack.enter_context(network.alone())
        network.sweep()
        cgroups.sweep()
        yield _start(directory.absolute(), found, kubelet_flags, environment, stack)


def _start(
    directory: Path,
    found: Mapping[str, Program],
    kubelet_flags: Sequence[str],
    added: Mapping[str, str],
    stack: ExitStack,
) -> Ring:
    """Start everything in order; whatever has started is ended by `stack`, in reverse."""
    began = time.monotonic()
    (logs := directory / "logs").mkdir(parents=True, exist_ok=True)
    place = _place(directory / "node", stack)
    # containerd finds its shim on PATH.
    path = f"{found['containerd-shim-runc-v2'].path.parent}:{requirements.PATH}"
    environment = {"PATH": path, "HOME": str(place.folder), "TMPDIR": str(place.folder), **added}
    started: list[Process] = []

    def run(name: str, *command: str) -> None:
        started.append(process.start(name, command, logs / f"{name}.log", environment))
        stack.callback(process.stop, started[-1])

    def program(name: str, *words: str, among: Sequence[str] = ()) -> None:
        run(name, *among, str(found[name].path), *words)

    enter = namespace.start(place.folder, logs / "namespace.log", stack)
    program("containerd", f"--config={place.settings / 'containerd.toml'}", among=enter)
    flags = accounts.write(place.keys, place.address)
    plane = stack.enter_context(controlplane.running(directory / "control-plane", apiserver_flags=flags))
    accounts.write_kubeconfigs(place.keys, plane.server, plane.ca)
    run("forward", sys.executable, "-I", "-S", str(FORWARD), place.address, str(SERVER_PORT), plane.server)
    plane.create(_endpoints(place.address))
    program("kube-scheduler", *configuration.scheduler(place))
    stack.callback(network.remove_chains)
    program("kube-proxy", f"--config={place.settings / 'kube-proxy.json'}")
    process.wait_ready(started, lambda: (place.folder / "run" / "containerd" / "containerd.sock").exists())
    _import(enter, found, _busybox(place.folder))
    program("kubelet", *configuration.kubelet(place), *kubelet_flags, among=enter)
    process.wait_ready(started, lambda: network.leads_to(f"{place.address}:{SERVER_PORT}"))
    process.wait_ready(started, lambda: _is_ready(plane))
    pod_logs = place.folder / "log" / "pods"
    return Ring(plane, NODE, place.address, time.monotonic() - began, enter, found, pod_logs)


def _place(folder: Path, stack: ExitStack) -> Place:
    """What the node has of the host's files, network and cgroups."""
    folder.mkdir(mode=0o700)
    stack.callback(shutil.rmtree, folder)
    for name in ("keys", "settings", "run", "lib", "log"):
        (folder / name).mkdir()
    pods = network.free_range()
    bridge, address = stack.enter_context(network.bridge(pods))
    groups = stack.enter_context(cgroups.subtree(bridge))
    (folder / "cgroups").write_text("".join(f"{own} {whole}\n" for own, whole in groups.items()), encoding="utf-8")
    place = Place(folder, bridge, address, str(pods), requirements.plugins())
    configuration.write(place)
    return place


def _endpoints(address: str) -> dict[str, object]:
    """How Pods reach the API server by the Service `kubernetes`: nobody else writes its endpoints."""
    labels = {"kubernetes.io/service-name": "kubernetes"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": "default", "name": "kubernetes", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "https", "port": SERVER_PORT, "protocol": "TCP"}],
    }


def _busybox(folder: Path) -> Path:
    image.write(folder / "busybox.tar", requirements.busybox())
    return folder / "busybox.tar"


def _import(enter: Sequence[str], found: Mapping[str, Program], archive: Path) -> None:
    words = [str(found["ctr"].path), f"--address={SOCKET}", "--namespace=k8s.io", "images", "import", str(archive)]
    done = subprocess.run([*enter, *words], capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise ImageError(f"{archive}: ctr images import: {done.stderr.strip()}")


def _is_ready(plane: ControlPlane) -> bool:
    return plane.kubectl("get", "node", NODE, "-o", READY, check=False).stdout == "True"


def main() -> int:
    """Run a ring until Ctrl-C, SIGTERM or SIGHUP; 1 when it cannot be had."""

    def told(ring: Ring) -> None:
        print(f"export KUBECONFIG={ring.plane.kubeconfig}", flush=True)
        print(f"{ring.node} is ready after {ring.seconds:.1f} s; Ctrl-C ends it", file=sys.stderr, flush=True)

    return process.hold("drainproof-ring-", running, told, ERRORS)


if __name__ == "__main__":
    sys.exit(main())
