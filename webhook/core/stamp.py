"""The disruption stamp: a Pod of a Job that is deleted by force is marked as disrupted before it goes.

Facts: Karpenter v1.15.0 pkg/controllers/node/termination/terminator/eviction.go `forceDelete` (at the end of a node's
grace period a Pod is deleted plainly, with its UID for a precondition); Kubernetes 1.37.2
pkg/controller/job/pod_failure_policy.go (a podFailurePolicy knows a disruption by the condition alone) and
pkg/apis/core/v1 types.go (conditions of a Pod are merged by their type).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from webhook.core import failurepolicy, jobpod
from webhook.core.mend import Mend
from webhook.core.patch import Put, at, entries
from webhook.core.rule import quoted, sentence
from webhook.core.ruleset import Policy, Ruleset, matches
from webhook.core.verdict import Verdict
from webhook.core.workload import Json, Workload

RULE_ID: Final = "disruption-stamp"
REASON: Final = "DeletionByKarpenter"
# A DNS subdomain (1.37.2 apimachinery pkg/api/validation/generic.go); anything else may lead to another object.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Options:
    """Whose deletions are disruptions."""

    users: tuple[str, ...] = field(
        default=("system:serviceaccount:*:karpenter",),
        metadata={"says": "the names of the users, as globs, whose deletions of Pods are disruptions"},
    )


def stamped(pod: Workload, user: str, policy: Policy, namespace: str) -> Verdict:
    """What is made of a Pod that `user` deletes, but for the time of its condition."""
    ruleset = policy.ruleset_for(namespace)
    left = next(_reasons(pod, user, ruleset), "") if _is_named(pod, namespace) else "unnamed"
    exempt = () if left else tuple(jobpod.exempt(pod, RULE_ID, policy, ruleset, namespace))
    if left or exempt:
        return Verdict(pod.root, exempt=exempt, left=left or "exempt")
    others = [one for one in entries(pod.root, "status", "conditions") if at(one, ("type",)) != failurepolicy.CONDITION]
    mend = Mend(pod)
    mend.take((Put(("status", "conditions"), [*others, condition(user)]),))
    return Verdict(mend.root, tuple(mend.steps), tuple(mend.wishes), mended=(RULE_ID,))


def _is_named(pod: Workload, namespace: str) -> bool:
    """Whether it is certain which Pod it is: a call that changes it names it, and holds for no other."""
    uid, name = (at(pod.root, ("metadata", key)) for key in ("uid", "name"))
    return bool(uid) and all(_NAME.fullmatch(str(text)) for text in (name, namespace))


def _reasons(pod: Workload, user: str, ruleset: Ruleset) -> Iterator[str]:
    """Why a deletion stays what it is. One that only cuts the grace of a Pod short counts like any other."""
    if jobpod.owner(pod) is None:
        yield "owner"
    if jobpod.disruptions(pod):
        yield "disrupted"
    if at(pod.root, ("status", "phase")) in _ENDED:
        yield "finished"
    if RULE_ID not in ruleset.context.mending:
        yield "off"
    elif not matches(ruleset.settings[RULE_ID].options.users, user):
        yield "user"


def condition(user: str) -> Json:
    """The condition that says that a Pod is disrupted by a deletion of `user`."""
    text = f"{quoted(user, 100)} deletes it by force, without an eviction; that is a disruption, no failure of its own"
    message = sentence((), text, RULE_ID)
    return {"type": failurepolicy.CONDITION, "status": "True", "reason": REASON, "message": message}


def patch(pod: Any, user: str, now: datetime) -> Json:
    """The strategic merge patch of the Pod's status. The API server refuses it for another Pod of the same name."""
    moment = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [{**condition(user), "lastTransitionTime": moment}]
    return {"metadata": {"uid": at(pod, ("metadata", "uid"))}, "status": {"conditions": conditions}}
