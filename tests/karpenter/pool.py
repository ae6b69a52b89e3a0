"""NodePools of simulated nodes, and what keeps Pods on them and off them."""

from typing import Any, Final

NODE_CLASS: Final = "default"
POOL: Final = "karpenter.sh/nodepool"  # the label of a node and its NodeClaim
# What keeps Pods off the simulated nodes that did not ask for them.
TAINT: Final = {"key": "drainproof.test/simulated", "effect": "NoSchedule"}


def node_class() -> dict[str, Any]:
    """The KWOKNodeClass of every NodePool here."""
    group = "karpenter.kwok.sh/v1alpha1"
    return {"apiVersion": group, "kind": "KWOKNodeClass", "metadata": {"name": NODE_CLASS}, "spec": {}}


def node_pool(
    name: str, termination_grace_period: str | None = None, consolidate_after: str = "0s", **spec: Any
) -> dict[str, Any]:
    """A NodePool of on-demand nodes, each of them free to be disrupted at any time.

    `termination_grace_period` holds for nodes that are made from then on; `spec` is more of the NodePool's.
    """
    group = "karpenter.kwok.sh"
    template: dict[str, Any] = {
        "nodeClassRef": {"group": group, "kind": "KWOKNodeClass", "name": NODE_CLASS},
        "requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
        ],
        "taints": [TAINT],
        "expireAfter": "Never",
    }
    if termination_grace_period:
        template["terminationGracePeriod"] = termination_grace_period
    disruption = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": consolidate_after,
        "budgets": [{"nodes": "100%"}],
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, "disruption": disruption, **spec},
    }


def placed_on(pool: str) -> dict[str, Any]:
    """What a Pod's spec says to run on the nodes of a NodePool and nowhere else."""
    return {"nodeSelector": {POOL: pool}, "tolerations": [{**TAINT, "operator": "Exists"}]}
