"""A PodDisruptionBudget over the Pods of Jobs blocks every drain, unless it is a whole-number minAvailable.

To turn a percentage, or a maxUnavailable, into a number, Kubernetes asks the Pods' controller how many there
should be. A Job does not answer that question, so the budget fails safe: no disruption is allowed, and a drain
waits for ever. Write `minAvailable` as a whole number, or do without: a Job whose Pods are replaced seldom needs
a budget.

**Limits.** Which Pods a budget selects is not known here. It is judged when its selector names a label that
only the Pods of Jobs carry.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from webhook.core.patch import at, entries, mapping
from webhook.core.rule import Context, Finding, Level, Rule, quoted
from webhook.core.workload import Workload, whole

# Labels that the Job controller puts on its Pods (Kubernetes 1.37.2 api batch/v1 types.go).
OF_JOBS: Final = frozenset(
    {
        "job-name",
        "controller-uid",
        "batch.kubernetes.io/job-name",
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-completion-index",
    }
)


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds budgets that Kubernetes cannot compute.

    1.37.2 pkg/controller/disruption/disruption.go `getExpectedPodCount`: a Job has no scale.
    """
    spec = mapping(workload.root, "spec")
    if not _selects_jobs(mapping(spec, "selector")):
        return
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    found = "maxUnavailable" if most is not None else "minAvailable" if least is not None and not whole(least) else ""
    if found:
        yield Finding(
            ("spec", found),
            f"{quoted(spec[found])} cannot be computed for the Pods of a Job, so no disruption is ever allowed and "
            "drains wait for ever; write a whole-number minAvailable",
        )


def _selects_jobs(selector: dict[str, Any]) -> bool:
    if OF_JOBS & mapping(selector, "matchLabels").keys():
        return True
    return any(
        at(expression, ("key",)) in OF_JOBS and at(expression, ("operator",)) in ("In", "Exists")
        for expression in entries(selector, "matchExpressions")
        if isinstance(at(expression, ("key",)), str)
    )


RULE: Final = Rule("disruption-budget", check, Options, Level.WARN, fix=None, kinds=frozenset({"PodDisruptionBudget"}))
