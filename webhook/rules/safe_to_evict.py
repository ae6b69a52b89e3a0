"""A Job that keeps its node from being scaled down needs a deadline.

`cluster-autoscaler.kubernetes.io/safe-to-evict: "false"` keeps a node from being scaled down for as long as the
Pod is there. That is fine for a Job which ends. One that hangs holds its node, and its bill, until somebody
notices: activeDeadlineSeconds bounds that.

**Limits.** The annotation does not stop a drain or an upgrade, and only the exact text `false` counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.workload import BATCH, Workload

KEY: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DEADLINE: Final = "activeDeadlineSeconds"


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds Jobs that hold a node without end."""
    bounded = workload.job.get(DEADLINE) is not None or workload.pod.get(DEADLINE) is not None
    if workload.annotations.get(KEY) == "false" and not bounded:
        yield Finding(
            workload.at_annotation(KEY),
            f'"false" keeps the node from being scaled down for as long as the Pod hangs; set {DEADLINE} on the Job',
        )


RULE: Final = Rule("safe-to-evict", check, Options, Level.WARN, fix=None, kinds=BATCH)
