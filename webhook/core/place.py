"""Whether a Pod can run in a place, as far as its nodeSelector and its required node affinity say.

Kubernetes 1.37.2 component-helpers scheduling/corev1/nodeaffinity: terms are alternatives, the expressions of one all
hold.
"""

from enum import IntEnum
from typing import Any, Final

from webhook.core.patch import entries, mapping
from webhook.core.rule import Place
from webhook.core.workload import Workload

NODE_POOL: Final = "karpenter.sh/nodepool"
# The label by which each provider marks a Spot node, with the value that it has there.
SPOT: Final = (
    ("karpenter.sh/capacity-type", "spot"),
    ("eks.amazonaws.com/capacityType", "SPOT"),
    ("cloud.google.com/gke-spot", "true"),
    ("kubernetes.azure.com/scalesetpriority", "spot"),
)
_AFFINITY: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


class Landing(IntEnum):
    """Whether a Pod runs in a place: never, perhaps, or always."""

    NO = 0
    MAYBE = 1
    YES = 2


def landing(workload: Workload, place: Place) -> Landing:
    """Whether Pods of a workload run in a place. What nobody says is MAYBE."""
    selector = mapping(workload.pod, "nodeSelector")
    chosen = [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]
    terms = [entries(term, "matchExpressions") for term in entries(workload.pod, *_AFFINITY)] or [[]]
    return max(_all_hold([*chosen, *term], place) for term in terms)


def _all_hold(expressions: list[Any], place: Place) -> Landing:
    found = [_holds(expression, label, value) for expression in expressions for label, value in place.labels]
    if Landing.NO in found:
        return Landing.NO
    return Landing.YES if Landing.YES in found else Landing.MAYBE


def _holds(expression: Any, label: str, value: str) -> Landing:
    """What one expression says of a node whose `label` has `value`."""
    requirement = mapping(expression)
    if requirement.get("key") != label:
        return Landing.MAYBE
    values = entries(requirement, "values")
    match requirement.get("operator"):
        case "In" if value in values:
            return Landing.YES if len(values) == 1 else Landing.MAYBE
        case "NotIn" if value not in values:
            return Landing.MAYBE
        case "In" | "NotIn" | "DoesNotExist":
            return Landing.NO
        case _:
            return Landing.MAYBE
