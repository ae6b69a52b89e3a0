"""With backoffLimit 0 a single deletion that is not marked as a disruption fails the whole Job.

A rule that ignores DisruptionTarget covers evictions. `kubectl delete pod`, Karpenter's deletion by force at a
NodePool's terminationGracePeriod and in node repair (but where the rule disruption-stamp is on), and the kubelet's
eviction of a Pod over its own ephemeral-storage limit carry no such condition: each counts, and with backoffLimit 0
one is enough (with backoffLimitPerIndex 0, for its index). Write 1 or more if the Job may run again. If it may not,
0 is right, and an exemption with that reason says so.

**Limits.** Where pod-failure-policy already says that nothing is injected because of backoffLimit 0, this rule
is silent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core import failurepolicy
from webhook.core.failurepolicy import Plan
from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.stamp import RULE_ID as STAMP_RULE
from webhook.core.workload import BATCH, Workload


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds Jobs that a single plain deletion fails."""
    field = failurepolicy.zero_backoff(workload)
    if field is None or _is_said(workload, context):
        return
    what = "its index" if field == "backoffLimitPerIndex" else "the Job"
    forced = "" if STAMP_RULE in context.mending else "Karpenter's deletion by force, "
    yield Finding(
        workload.at_job(field),
        f"0: the first Pod that ends without DisruptionTarget (kubectl delete, {forced}full ephemeral storage) "
        f"fails {what}; write 1 or more if it may run again",
    )


def _is_said(workload: Workload, context: Context) -> bool:
    """Whether pod-failure-policy warns of it already, for the same reason."""
    is_never = workload.pod.get("restartPolicy") == "Never"
    is_contract = failurepolicy.plan(workload, context) is Plan.CONTRACT
    return is_contract and is_never and failurepolicy.RULE_ID in context.heard


RULE: Final = Rule("backoff-limit", check, Options, Level.WARN, fix=None, kinds=BATCH)
