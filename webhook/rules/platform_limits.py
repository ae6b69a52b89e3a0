"""A grace period is worth what the platform grants, whatever the Pod asks for.

A Spot instance is gone two minutes after its notice, cluster-autoscaler waits ten minutes, a node that shuts
down grants what its kubelet is configured for, and a Karpenter NodePool with a terminationGracePeriod deletes a
Pod whose grace period is not below it at the very start of a drain, without DisruptionTarget. The policy states
what is true of the cluster in `platform`; nothing is guessed.

What counts is the declared preStop and task time where there is one, else the grace period. A place that the
Pod's nodeSelector or required node affinity excludes is left out; where neither says anything the message says
"may".

**Limits.** Taints are not known here, so tolerations do not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core import duration
from webhook.core.grace import needs
from webhook.core.place import Landing, landing
from webhook.core.protection import KEY
from webhook.core.rule import Context, Finding, Level, Place, Rule
from webhook.core.workload import PODS, Workload

FIELD: Final = "terminationGracePeriodSeconds"


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set here; the limits stand in `platform`."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds Pods that ask for more time to stop than a place grants where they may run."""
    grace = workload.grace
    if grace is None or not context.places:
        return
    declared = [need.total for need in needs(workload, 0) if need.task is not None]
    for place in context.places:
        lands = landing(workload, place)
        if lands and place.node_pool:
            yield from _node_pool(workload, grace, place, lands, context)
        elif lands and (max(declared) if declared else grace * duration.SECOND) > place.grants * duration.SECOND:
            asked = "the declared preStop and task take longer" if declared else f"{grace} is longer"
            text = f"{asked} than the {place.grants}s that {place.name} grants, where the Pod {_runs(lands)}"
            yield Finding(workload.at_pod(FIELD), f"{text}; make do with less, or keep it off there")


def _node_pool(workload: Workload, grace: int, place: Place, lands: Landing, context: Context) -> Iterator[Finding]:
    if grace < place.grants:
        return
    if KEY in workload.annotations and "do-not-disrupt" in context.heard:
        return  # that rule says it, with what it does to the protection
    text = f"{grace} is not below the {place.grants}s of {place.name}, where the Pod {_runs(lands)}"
    yield Finding(workload.at_pod(FIELD), f"{text}: a drain deletes it at once, without DisruptionTarget; set less")


def _runs(lands: Landing) -> str:
    return "runs" if lands is Landing.YES else "may run"


RULE: Final = Rule("platform-limits", check, Options, Level.WARN, fix=None, kinds=PODS)
