"""A Pod of a Job: which Job it is of, whether it is disrupted, and what exempts it."""

from collections.abc import Iterator
from typing import Any

from webhook.core import failurepolicy
from webhook.core.judgement import exemptions
from webhook.core.patch import at, entries
from webhook.core.ruleset import Policy, Ruleset
from webhook.core.verdict import Exempted
from webhook.core.workload import KINDS, Workload, look


def owner(pod: Workload) -> Any:
    """The reference to the Job that controls a Pod; None where none does."""
    return next(filter(_is_job, entries(pod.root, "metadata", "ownerReferences")), None)


def _is_job(reference: Any) -> bool:
    group = str(at(reference, ("apiVersion",), "")).rpartition("/")[0]
    return at(reference, ("controller",)) is True and (group, at(reference, ("kind",))) == ("batch", "Job")


def disruptions(pod: Workload) -> list[Any]:
    """The conditions that say that a Pod is disrupted: one at most, in what the API server accepts."""
    conditions = entries(pod.root, "status", "conditions")
    return [
        one for one in conditions if (at(one, ("type",)), at(one, ("status",))) == (failurepolicy.CONDITION, "True")
    ]


def exempt(pod: Workload, rule: str, policy: Policy, ruleset: Ruleset, namespace: str) -> Iterator[Exempted]:
    """The exemptions from a rule of a Pod, or of its Job as far as a Pod tells of it: that is the Job's name."""
    job = look({"metadata": {"name": at(owner(pod), ("name",))}}, KINDS["batch", "Job"])
    for one in (pod, job):
        yield from (found for found in exemptions(one, policy, ruleset, namespace) if found.rule in ("*", rule))
