"""Pods of a Job need `restartPolicy: Never`, the only one that Kubernetes takes beside a podFailurePolicy.

With `OnFailure` the kubelet restarts a failed container inside its Pod. That does not help when a node goes
away: the Pod goes with it, the Job counts a failure, and drains that are nobody's fault use up backoffLimit.

**What the fix does.** `OnFailure` becomes `Never`, and a warning says what changes: each failure is a new Pod
that counts toward backoffLimit, and emptyDir volumes start empty. It is done where that is safe: one regular
container, and nothing kept in an emptyDir (or a generic ephemeral volume) that an init container does not fill
anew. Where it is not safe the Job stays as it is, no policy is injected, and the warning says why. A Job
without `restartPolicy` (which a webhook cannot tell from `Always`) would be refused by Kubernetes; it gets
`Never`, and a warning to write it.

**Limits.** Pods, Deployments and the like are never touched. With backoffLimit 0 and no rule of the author
about disruptions, `OnFailure` stays. In a CronJob a missing `restartPolicy` cannot be mended, for Kubernetes
refuses the CronJob before it makes a Job.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from webhook.core import failurepolicy
from webhook.core.failurepolicy import Plan
from webhook.core.patch import Put, at, entries, mapping
from webhook.core.rule import Context, Finding, Level, Rule, quoted
from webhook.core.workload import BATCH, Workload

REFUSED: Final = "it is Always or not set, which Kubernetes refuses in a Job"


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator can set."""

    on_failure: Literal["convert-when-safe", "convert", "keep"] = field(
        default="convert-when-safe",
        metadata={"says": "whether OnFailure becomes Never: where that is safe, always, or not at all"},
    )
    missing: Literal["never", "reject"] = field(
        default="never",
        metadata={"says": "whether a missing restartPolicy becomes Never, or is left for Kubernetes to refuse"},
    )


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds a Job whose Pods are not `restartPolicy: Never` although a podFailurePolicy asks for it."""
    policy = workload.pod.get("restartPolicy")
    if policy is None or policy in ("", "Always"):
        yield _missing(workload, options, context)
    elif policy == "OnFailure" and _is_in_the_way(workload, context):
        yield _on_failure(workload, options)


def _is_in_the_way(workload: Workload, context: Context) -> bool:
    """Whether a podFailurePolicy is there, or would be injected."""
    plan = failurepolicy.plan(workload, context)
    if plan in (Plan.CONTRACT, Plan.MALFORMED, Plan.UNDECLARED):
        return False
    return bool(failurepolicy.rules_of(workload)) or failurepolicy.RULE_ID in context.mending


def _never(workload: Workload) -> tuple[Put, ...]:
    return (Put(workload.at_pod("restartPolicy"), "Never", recorded=True),)


def _missing(workload: Workload, options: Options, context: Context) -> Finding:
    path = workload.at_pod("restartPolicy")
    text = f"{REFUSED}; write restartPolicy: Never"
    if options.missing == "reject" or (workload.is_deferred and not context.rewrites_cron_jobs):
        return Finding(path, text)
    return Finding(path, text, _never(workload), f"{REFUSED}; it becomes Never; write restartPolicy: Never")


def _on_failure(workload: Workload, options: Options) -> Finding:
    path = workload.at_pod("restartPolicy")
    reason = _unsafe(workload)
    if options.on_failure == "keep" or (reason and options.on_failure == "convert-when-safe"):
        kept = f"OnFailure stays, for {reason}" if reason and options.on_failure != "keep" else "OnFailure stays"
        return Finding(
            path, f"{kept}; evictions use up backoffLimit; write Never if a new Pod for each failure is fine"
        )
    becomes = "its Jobs get Never" if workload.is_deferred else "becomes Never"
    lost = f"and {reason}, which each Pod loses" if reason else "and emptyDir starts empty"
    return Finding(
        path,
        "OnFailure keeps podFailurePolicy out, so evictions use up backoffLimit; write restartPolicy: Never",
        _never(workload),
        f"OnFailure; {becomes}: no restarts inside a Pod, each failure is a new Pod that counts toward backoffLimit, "
        f"{lost}",
    )


def _unsafe(workload: Workload) -> str:
    """Why a new Pod cannot stand in for a restarted container; empty where it can."""
    if len(workload.containers) > 1:
        return f"{len(workload.containers)} containers rely on restarts inside the Pod"
    filled = {name for container in workload.fillers for name in _mounted(container.spec)}
    for container in workload.containers:
        for name in _mounted(container.spec):
            if name in _scratch(workload) and name not in filled:
                return f"container {quoted(container.name)} keeps files in emptyDir {quoted(name)}"
    return ""


def _mounted(container: Any) -> list[Any]:
    return [at(mount, ("name",)) for mount in entries(container, "volumeMounts")]


def _scratch(workload: Workload) -> list[Any]:
    """The volumes that live and die with a Pod."""
    volumes = entries(workload.pod, "volumes")
    return [at(volume, ("name",)) for volume in volumes if mapping(volume).keys() & {"emptyDir", "ephemeral"}]


RULE: Final = Rule(
    "restart-policy",
    check,
    Options,
    Level.WARN,
    fix=True,
    kinds=BATCH,
    rewrites=lambda workload: (workload.at_pod("restartPolicy"),),
)
