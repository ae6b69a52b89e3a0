"""Pods of Jobs that count as successes although they were stopped, and for which nobody vouches: what a Pod tells.

The completion guard makes failures of them. Where it was not asked for, or was not reached, this finds them.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from webhook.core import guard, jobpod
from webhook.core.declaration import EXIT_CONTRACT
from webhook.core.judgement import is_going
from webhook.core.patch import at, entries, mapping
from webhook.core.ruleset import Mode, Policy
from webhook.core.workload import KINDS, PREFIX, Workload, look

Guard = Literal["absent", "missed"]  # nothing guarded the Pod, or its guard was not reached
GUARDS: Final[tuple[Guard, Guard]] = ("absent", "missed")
LONGEST: Final = 1024  # characters; more are too many for events.k8s.io (1.37.2 pkg/apis/core/validation/events.go)
# Kubernetes 1.37.2 staging api batch/v1 types.go
TRACKED: Final = "batch.kubernetes.io/job-tracking"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
_ADVICE: Final = {
    "absent": f"Nothing guarded it: write {PREFIX}{EXIT_CONTRACT}: guard on the Pod template, or let the program exit "
    f"with another code when it is stopped and write {guard.TRUSTED} there",
    "off": "The policy has switched the completion guard off for it: switch it on, or let the program exit with "
    f"another code when it is stopped and write {PREFIX}{EXIT_CONTRACT}: {guard.TRUSTED} on the Pod template",
    "missed": "It was to be guarded, and the guard was not asked: see whether the webhook could be reached, and "
    "whether it is called for this namespace",
}


@dataclass(frozen=True, slots=True)
class Stopped:
    """A Pod of a Job that was stopped and for which nobody vouches: what will still be asked when it is gone."""

    namespace: str
    name: str
    uid: str
    job: str
    job_uid: str
    index: str  # its completion index; empty where its Job is not Indexed
    cause: str
    guard: Guard
    advice: str


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at such a Pod: whether it has succeeded, and whether that certainly counts as a success of its Job."""

    pod: Stopped
    has_succeeded: bool
    counts: bool


def sight(document: dict[str, Any], policy: Policy) -> Sight | None:
    """What a Pod shows. None for a Pod that cannot count as a success undone, as it stands.

    Where the policy has switched the guard off, Pods are found all the same: nobody has said that their work was done.
    Of an exempt Pod somebody has, and gave a reason.
    """
    workload = look(document, KINDS["", "Pod"])
    phase = at(document, ("status", "phase"))
    if jobpod.owner(workload) is None or phase == "Failed" or not guard.was_stopped(workload):
        return None
    if (phase == "Succeeded" and guard.says_completed(workload)) or _is_vouched_for(workload, policy):
        return None
    # A Job that replaces Pods as soon as they are deleted has counted a failure, and let the Pod go, before it ends
    # (1.37.2 pkg/controller/job/job_controller.go `isPodFailed`, `canRemoveFinalizer`).
    is_uncounted = TRACKED in entries(document, "metadata", "finalizers")
    return Sight(_stopped(workload, policy), phase == "Succeeded", is_uncounted or not is_going(workload))


def _is_vouched_for(workload: Workload, policy: Policy) -> bool:
    if workload.annotations.get(PREFIX + EXIT_CONTRACT) == guard.TRUSTED:
        return True
    namespace = workload.namespace
    return any(jobpod.exempt(workload, guard.RULE_ID, policy, policy.ruleset_for(namespace), namespace))


def _stopped(workload: Workload, policy: Policy) -> Stopped:
    job, metadata = jobpod.owner(workload), mapping(workload.root, "metadata")
    found, advice = _guard(workload, policy)
    return Stopped(
        namespace=workload.namespace,
        name=workload.name,
        uid=str(metadata.get("uid", "")),
        job=str(at(job, ("name",), "")),
        job_uid=str(at(job, ("uid",), "")),
        index=str(workload.annotations.get(INDEX, "")),
        cause=guard.cause(workload),
        guard=found,
        advice=advice,
    )


def _guard(workload: Workload, policy: Policy) -> tuple[Guard, str]:
    """Why the guard did not act, and what is to be done about it."""
    asked = guard.is_asked_for(workload.annotations.get(guard.MARK), workload.annotations.get(PREFIX + EXIT_CONTRACT))
    if not asked:
        return "absent", _ADVICE["absent"]
    acts = guard.RULE_ID in policy.ruleset_for(workload.namespace).context.mending and policy.mode is Mode.ENFORCE
    return ("missed", _ADVICE["missed"]) if acts else ("absent", _ADVICE["off"])


def message(pod: Stopped, was_seen: bool) -> str:
    """What a person is told of a Pod: which one, why it is told, what to do. `was_seen` says whether its end was."""
    if was_seen:
        end = "its containers exited 0, so the Job counts it as a success"
    else:
        end = "its end was not seen, but the Job counts a success that no other Pod accounts for"
    text = (
        f"Pod {pod.name} was stopped ({pod.cause}) and {end}, although its work may be unfinished. {pod.advice}. "
        "Look at what it has done, and run the Job again if that is not all"
    )
    return "".join(c if c.isprintable() else "?" for c in text)[:LONGEST]
