"""The place with one node: a kubelet that evicts, drainproof installed, and two namespaces, one of them left out."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests import image
from tests.cluster.controlplane import KubectlError
from tests.lab import karpenter, logind, record
from tests.lab.bench import WITH, WITHOUT, Bench
from tests.node import cgroups, installation, requirements, ring
from tests.node.ring import Ring
from webhook import __version__

# The kubelet says that memory is short as soon as so much of the machine's is in use by the node.
PRESSURE_KIB: Final = 1536 * 1024
SHUTDOWN_SECONDS: Final = 30
CRITICAL_SECONDS: Final = 10  # of these, for what Kubernetes itself calls critical
INJECT: Final = "drainproof.dev/inject"
STARTUP: Final = 10  # seconds; what the policy allows a run until its program starts
PROTECTED: Final = 20  # seconds; what the policy makes of do-not-disrupt: true
POLICY: Final[Mapping[str, Any]] = {
    "apiVersion": "drainproof.dev/v1",
    "kind": "Policy",
    "mode": "enforce",
    "rules": {
        "active-deadline": {"startup": f"{STARTUP}s"},
        "disruption-stamp": {"fix": True},
        "do-not-disrupt": {"default": f"{PROTECTED}s"},
    },
}
LOWEST: Final[Mapping[str, Any]] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "first-to-go"},
    "value": -1000,
}


class LaboratoryError(Exception):
    """A machine on which the experiments cannot be done; the text says what is missing."""


ERRORS: Final = (*ring.ERRORS, image.ImageError, KubectlError, LaboratoryError)


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    """A bench of its own, gone on leaving; logs stay in `folder`. Raises ERRORS."""
    if reason := requirements.unfit() or image.missing():
        raise LaboratoryError(reason)
    archive = image.build(folder / "drainproof.tar", installation.IMAGE)
    with (
        logind.running(folder / "logind.sock") as announcer,
        ring.running(
            folder / "ring", kubelet_flags=[f"--config-dir={_settings(folder)}"], environment=announcer.environment
        ) as running,
    ):
        running.import_image(archive)
        archive.unlink()
        with karpenter.beside(running, folder) as beside:
            _prepare(running, folder)
            with record.recording(running.plane, running) as recorded:
                yield Bench(running, beside, recorded, announcer, _facts(running) | karpenter.facts(beside))


def _settings(folder: Path) -> Path:
    """A folder with what this kubelet does in another way than that of other tests."""
    (drop_in := folder / "kubelet.d").mkdir()
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "localStorageCapacityIsolation": True,
        "enforceNodeAllocatable": ["none"],  # an empty list is lost when a kubelet merges its files
        "volumeStatsAggPeriod": "5s",  # the default is a minute
        "evictionHard": {"memory.available": f"{_memory_kib() - PRESSURE_KIB}Ki"},
        "evictionPressureTransitionPeriod": "1s",
        "shutdownGracePeriod": f"{SHUTDOWN_SECONDS}s",
        "shutdownGracePeriodCriticalPods": f"{CRITICAL_SECONDS}s",
    }
    (drop_in / "10-lab.conf").write_text(json.dumps(settings), encoding="utf-8")
    return drop_in


def _memory_kib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024


def _prepare(running: Ring, folder: Path) -> None:
    """Install drainproof with its stamp and POLICY, and make the namespaces."""
    (place := folder / "installation").mkdir()
    installation.kustomization(place, components=["disruption-stamp"])
    (place / "policy.yaml").write_text(json.dumps(POLICY), encoding="utf-8")
    written = json.loads((place / "kustomization.yaml").read_text(encoding="utf-8"))
    replaced = {"name": "drainproof-policy", "namespace": installation.NAMESPACE, "behavior": "replace"}
    options = {"disableNameSuffixHash": True}
    written["configMapGenerator"] = [{**replaced, "files": ["policy.yaml"], "options": options}]
    (place / "kustomization.yaml").write_text(json.dumps(written), encoding="utf-8")
    installation.install(running, place)
    installation.poke(running, installation.CONTROLLER)  # the pair that it has made itself is there for the stamp
    installation.wait_until_ready(running, 2, installation.CONTROLLER)
    running.plane.create(LOWEST)
    for name in (WITH, WITHOUT):
        labels = {INJECT: "disabled"} if name == WITHOUT else {}
        running.plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        # Admission refuses a Pod without its ServiceAccount, which a controller makes.
        account = ("serviceaccount/default", "--namespace", name, "--for=create", "--timeout=50s")
        running.kubectl("wait", *account)


def _facts(running: Ring) -> dict[str, str]:
    """The machine and the versions, for the page."""
    node = running.plane.get("node", running.node)["status"]["nodeInfo"]
    version = subprocess.run(
        [requirements.which("runc"), "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[2]
    unified = any((one / "cgroup.controllers").exists() for one in cgroups.hierarchies())
    hierarchies = len(cgroups.hierarchies())
    return {
        "Machine": f"{os.cpu_count()} processors, {_memory_kib() / 2**20:.0f} GiB, {platform.machine()}",
        "Kernel": f"Linux {platform.release()}, cgroup {'v2' if unified and hierarchies == 1 else 'v1'}",
        "Kubernetes": f"{node['kubeletVersion']}: API server, controller manager, scheduler, kubelet, kube-proxy",
        "Container runtime": f"{node['containerRuntimeVersion'].replace('://', ' ')}, runc {version}",
        "drainproof": f"{__version__}, installed from deploy/ with its image, two replicas of webhook and controller",
    }
