"""Protection by `karpenter.sh/do-not-disrupt`: how Karpenter reads it, and what else bounds the life of a Pod."""

from collections.abc import Iterator
from typing import Any, Final

from webhook.core import duration
from webhook.core.rule import Context
from webhook.core.workload import Workload, whole

KEY: Final = "karpenter.sh/do-not-disrupt"
OLD_KEY: Final = "karpenter.sh/do-not-evict"  # read by no Karpenter since v1.0
DURATIONS_SINCE: Final = (1, 12, 0)  # Karpenter commit 501287b36; v1.11 compares with "true" only


def read(value: Any) -> tuple[int, str]:
    """The nanoseconds that a value protects for, or 0 and why it does not."""
    if not isinstance(value, str):
        return 0, "it is no text"
    if value.strip() != value:
        return 0, "there is a blank around it"
    if value.lower() == "true":
        return 0, "only true in small letters counts"
    try:
        length = duration.parse(value)
    except duration.DurationError as error:
        return 0, str(error)
    return (length, "") if length > 0 else (0, "it is not positive")


def is_before_durations(context: Context) -> bool:
    """Whether the Karpenter that runs is known to read no durations."""
    return context.karpenter is not None and context.karpenter < DURATIONS_SINCE


def age(context: Context) -> str:
    """What to say of a Karpenter that reads no durations."""
    return f"Karpenter {'.'.join(map(str, context.karpenter or ()))} reads no durations (1.12.0 does)"


def deadlines(workload: Workload) -> Iterator[tuple[int, str]]:
    """The deadlines of a Pod and its Job.

    They are safe as they stand: the Pod's clock starts with the Pod, the Job's earlier (Kubernetes 1.37.2
    pkg/controller/job/job_controller.go `pastActiveDeadline`, pkg/kubelet/active_deadline.go).
    """
    for seconds in (workload.pod.get("activeDeadlineSeconds"), workload.job.get("activeDeadlineSeconds")):
        if whole(seconds) and seconds > 0:
            yield seconds * duration.SECOND, "activeDeadlineSeconds"
