"""A Pod that tolerates Karpenter's taint is not asked to leave: its machine is taken from under it.

Karpenter marks a node that it drains with the taint `karpenter.sh/disrupted`, and neither evicts nor waits for
Pods that tolerate it. A blanket toleration, `operator: Exists` without a key, tolerates it too, often without
anybody having meant it. No SIGTERM, no grace period, no DisruptionTarget: the machine is terminated. Tolerate only the
taints that are meant, each by its key.

**Limits.** DaemonSets are exempt, for their Pods belong to the node.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.patch import entries, mapping
from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.workload import PODS, Workload

TAINT: Final = "karpenter.sh/disrupted"  # Karpenter (commit 2266468) pkg/apis/v1/taints.go, with effect NoSchedule


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds tolerations that keep a Pod from being evicted."""
    if context.without_karpenter:
        return
    for index, toleration in enumerate(entries(workload.pod, "tolerations")):
        if _tolerates(mapping(toleration)):
            blanket = "" if mapping(toleration).get("key") else "every taint, and with them "
            yield Finding(
                workload.at_pod("tolerations", index),
                f"it tolerates {blanket}{TAINT}, so that Karpenter neither evicts the Pod nor waits for it before the "
                "machine goes; name the taints that are meant",
            )


def _tolerates(toleration: dict[str, Any]) -> bool:
    """Whether a toleration matches the taint (Kubernetes 1.37.2 api core/v1 toleration.go `ToleratesTaint`)."""
    key, operator, effect = (toleration.get(name) or "" for name in ("key", "operator", "effect"))
    if effect not in ("", "NoSchedule"):
        return False
    if operator == "Exists":
        return key in ("", TAINT)
    return bool(key == TAINT and operator in ("", "Equal") and not toleration.get("value"))


RULE: Final = Rule("disrupted-toleration", check, Options, Level.WARN, fix=None, kinds=PODS - {"DaemonSet"})
