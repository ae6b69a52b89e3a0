"""A Job's new Pod starts when the old one has ended, not while it is still stopping.

Kubernetes' default, TerminatingOrFailed, counts an evicted Pod as failed the moment it is asked to stop and
starts its replacement at once: two Pods work on one task for as long as the grace period lasts, and a task
finished in that time is done again. A podFailurePolicy is only accepted with `Failed`.

**What the fix does.** `TerminatingOrFailed` becomes `Failed`, in the same patch as an injected
podFailurePolicy, and also on its own where the rule pod-failure-policy is switched off or the object is exempt
from it. A webhook cannot tell a written TerminatingOrFailed from the default, so it is recorded, and applying
the manifest again works.

**Limits.** The price: a Pod on a node that is lost is not replaced until its Node object is deleted. A Job
whose Pods tolerate unreachable nodes for ever is told so. With backoffLimit 0, and where OnFailure has to stay,
nothing is changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core import failurepolicy
from webhook.core.failurepolicy import Plan
from webhook.core.patch import Put, entries, mapping
from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.workload import BATCH, Workload

UNREACHABLE: Final = "node.kubernetes.io/unreachable"


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds a Job that lets an old and a new Pod run the same task at once."""
    path = workload.at_job("podReplacementPolicy")
    policy = workload.job.get("podReplacementPolicy")
    # Unset, it is Failed beside a podFailurePolicy, else TerminatingOrFailed (Kubernetes 1.37.2
    # pkg/apis/batch/v1/defaults.go SetDefaults_Job).
    meant = policy or ("Failed" if failurepolicy.rules_of(workload) else "TerminatingOrFailed")
    if meant == "TerminatingOrFailed" and _wants_failed(workload, context):
        text = "TerminatingOrFailed starts a new Pod while the old one still runs the same task; write Failed"
        yield Finding(path, text, (Put(path, "Failed", recorded=policy is not None),))
    elif meant == "Failed" and _waits_for_ever(workload) and _wants_failed(workload, context):
        text = (
            "Failed, and the Pod tolerates unreachable nodes for ever: it is not replaced until a lost Node is deleted"
        )
        yield Finding(path, f"{text}; set tolerationSeconds", advice=True)


def _wants_failed(workload: Workload, context: Context) -> bool:
    plan = failurepolicy.plan(workload, context)
    if plan in (Plan.MALFORMED, Plan.CONTRACT, Plan.UNDECLARED):
        return False
    return bool(failurepolicy.rules_of(workload)) or failurepolicy.RULE_ID not in context.mending


def _waits_for_ever(workload: Workload) -> bool:
    """Whether Pods tolerate an unreachable node without a limit.

    Kubernetes 1.37.2 api core/v1 toleration.go `ToleratesTaint`: no key with Exists is every key, no effect is every
    effect.
    """
    return any(
        toleration.get("key") in (None, "", UNREACHABLE)
        and (toleration.get("operator") == "Exists" or toleration.get("key") == UNREACHABLE)
        and toleration.get("effect") in (None, "", "NoExecute")
        and toleration.get("tolerationSeconds") is None
        for toleration in map(mapping, entries(workload.pod, "tolerations"))
    )


RULE: Final = Rule(
    "pod-replacement-policy",
    check,
    Options,
    Level.WARN,
    fix=True,
    kinds=BATCH,
    rewrites=lambda workload: (workload.at_job("podReplacementPolicy"),),
)
