"""Nothing of Karpenter is left in a control plane: what it made goes, although nobody works on finalizers any more."""

import json
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tests.cluster.controlplane import ControlPlane
from tests.karpenter import accounts, chart
from tests.karpenter.programs import NEWEST, Programs

SECONDS: Final = 50  # for all of it
MADE: Final = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh")
NODES: Final = ("nodes", "--selector=karpenter.sh/nodepool")
NO_FINALIZERS: Final = json.dumps({"metadata": {"finalizers": None}})


def remove(plane: ControlPlane, found: Programs) -> None:
    """Delete the Pods on Karpenter's nodes, the nodes, NodeClaims and NodePools, the kinds and the accounts.

    Karpenter and KWOK must have ended. The Deployment of the chart goes, too, where somebody has made it. What the API
    server does not delete in time is left.
    """
    asked = _Asked(plane, time.monotonic() + SECONDS)
    nodes = asked.names(*NODES)
    now = ("--force", "--grace-period=0", "--wait=false", "--ignore-not-found")
    for node in nodes:
        asked.kubectl("delete", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}", *now)
    asked.kubectl("delete", *NODES, "--wait=false")
    for kind in MADE:
        asked.kubectl("delete", kind, "--all", "--wait=false")
    crds = ("--ignore-not-found", "-f", str(found.crds))
    # From now on none can be made that would keep the kinds.
    asked.kubectl("delete", "--wait=false", *crds)
    for kind, words in (("node", NODES), *((kind, (kind,)) for kind in MADE)):
        for name in asked.names(*words):
            asked.kubectl("patch", kind, name, "--type=merge", "--patch", NO_FINALIZERS)
    if nodes:
        asked.kubectl("delete", "leases", "-n", "kube-node-lease", "--ignore-not-found", *nodes)
    asked.kubectl("delete", *crds)
    made = [*accounts.documents(found.rights), chart.deployment(NEWEST)]
    documents = {"apiVersion": "v1", "kind": "List", "items": made}
    asked.kubectl("delete", "--ignore-not-found", "-f", "-", input=json.dumps(documents))


@dataclass(frozen=True)
class _Asked:
    """A control plane that may have gone, or may answer no more, until `end`."""

    plane: ControlPlane
    end: float

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """What kubectl prints; nothing where it fails or the time is up."""
        with suppress(subprocess.TimeoutExpired):
            left = self.end - time.monotonic()
            return self.plane.kubectl(*args, input=input, check=False, timeout=left).stdout if left > 0 else ""
        return ""

    def names(self, *words: str) -> list[str]:
        """The names of the objects that `kubectl get` finds."""
        return self.kubectl("get", *words, "-o", 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}').split()
