"""Whether a Job counts a Pod as a success whose end nobody saw, as far as its books tell.

Facts: Kubernetes 1.37.2 pkg/controller/job/job_controller.go `trackJobStatusAndRemoveFinalizers` (a Pod is noted as
uncounted, then lets go of its finalizer, then counts; of an Indexed Job the index is noted instead) and `isPodFailed`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from webhook.core.patch import at, entries, mapping
from webhook.core.undone import INDEX, TRACKED, Stopped
from webhook.core.workload import whole


def counts(job: Mapping[str, Any], pods: Iterable[Any], pod: Stopped, has_succeeded: bool, gone: int) -> bool:
    """Whether `job` counts `pod` as a success, for all that can be known.

    `pods` are those of the Job that are there, read after `job`. `has_succeeded` says that the Pod was seen to, and
    `gone` is how many others were, of those that are there no more.
    """
    uncounted = mapping(job, "status", "uncountedTerminatedPods")
    if pod.uid in entries(uncounted, "succeeded"):
        return True
    if pod.uid in entries(uncounted, "failed"):
        return False
    if has_succeeded and at(job, ("spec", "podReplacementPolicy")) == "Failed":
        return True
    others = [one for one in pods if at(one, ("metadata", "uid")) != pod.uid and _has_counted(one, uncounted)]
    if at(job, ("spec", "completionMode")) == "Indexed":
        return _is_among(pod.index, at(job, ("status", "completedIndexes"))) and not any(
            at(one, ("metadata", "annotations", INDEX)) == pod.index for one in others
        )
    succeeded = at(job, ("status", "succeeded"))
    total = (succeeded if whole(succeeded) else 0) + len(entries(uncounted, "succeeded"))
    return total > len(others) + gone


def _has_counted(pod: Any, uncounted: Any) -> bool:
    """Whether a Pod is among the successes of its Job."""
    if at(pod, ("status", "phase")) != "Succeeded":
        return False
    noted = at(pod, ("metadata", "uid")) in entries(uncounted, "succeeded")
    return noted or TRACKED not in entries(pod, "metadata", "finalizers")


def _is_among(index: str, ranges: Any) -> bool:
    """Whether an index is in a text such as 0,2-4."""
    parts = ranges.split(",") if isinstance(ranges, str) else []
    spans = [(_number(one.partition("-")[0]), _number(one.rpartition("-")[2])) for one in parts]
    return any(0 <= first <= _number(index) <= last for first, last in spans)


def _number(text: str) -> int:
    """A whole number that is written out; -1 for anything else."""
    return int(text) if text.isdecimal() and len(text) < 12 else -1
