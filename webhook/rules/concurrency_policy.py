"""A CronJob should say what happens when a run is still going as the next one is due.

Without a word, or with `Allow`, both run at once. A disruption delays a run, so that overlaps come on the very
day the cluster is drained. `Forbid` leaves the late run alone and skips the next; `Replace` deletes the running
Job, whose Pods are then stopped without DisruptionTarget and whose work is lost.

**Limits.** Whether runs may overlap is the author's to know: `Allow` is often right, and an exemption with that
reason says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.workload import Workload


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds CronJobs whose runs may overlap."""
    spec = workload.root.get("spec")
    policy = spec.get("concurrencyPolicy") if isinstance(spec, dict) else None
    if policy is None or policy in ("", "Allow"):
        yield Finding(
            ("spec", "concurrencyPolicy"),
            "Allow: runs overlap when a disruption delays one; write Forbid to skip the next run, or Replace, which "
            "stops the running Job without DisruptionTarget",
        )


RULE: Final = Rule("concurrency-policy", check, Options, Level.WARN, fix=None, kinds=frozenset({"CronJob"}))
