"""The completion guard: a Pod of a Job that was stopped and exited 0 has not, for all that is known, done its work.

Facts: Kubernetes 1.37.2 pkg/kubelet/kubelet_pods.go `getPhase` (a Pod that was stopped is Succeeded where each of its
regular containers exited 0, sidecars aside), pkg/controller/job/job_controller.go (the phase alone decides; a
podFailurePolicy is asked about Failed Pods only).
"""

from collections.abc import Iterator
from typing import Final

from webhook.core import failurepolicy, jobpod
from webhook.core.declaration import EXIT_CONTRACT, GUARD
from webhook.core.judgement import is_going
from webhook.core.mend import Mend
from webhook.core.patch import Put, at, entries
from webhook.core.rule import quoted, sentence
from webhook.core.ruleset import Policy
from webhook.core.verdict import Verdict
from webhook.core.workload import PREFIX, Workload

RULE_ID: Final = "completion-guard"
MARK: Final = PREFIX + GUARD
ON: Final = "on"
OFF: Final = "off"
REASON: Final = "StoppedBeforeCompletion"
COMPLETED: Final = "completed"  # the termination message of a program that did finish
TRUSTED, GUARDED = failurepolicy.CONTRACTS
MESSAGE_PATH: Final = "/dev/termination-log"  # 1.37.2 api core/v1 types.go TerminationMessagePathDefault


def is_asked_for(mark: object, contract: object) -> bool:
    """Whether a mark and an exit contract (None: not written) together ask for the guard."""
    return contract != TRUSTED and (mark == ON or (mark != OFF and contract == GUARDED))


def guarded(workload: Workload, policy: Policy, namespace: str) -> Verdict:
    """What is made of the status that is reported for a Pod: a success that is not to be believed becomes a failure."""
    ruleset = policy.ruleset_for(namespace)
    left = _believed(workload) or ("" if RULE_ID in ruleset.context.mending else "off")
    exempt = () if left else tuple(jobpod.exempt(workload, RULE_ID, policy, ruleset, namespace))
    if left or exempt:
        return Verdict(workload.root, exempt=exempt, left=left or "exempt")
    mend = Mend(workload)
    mend.take(tuple(_failure(workload)))
    return Verdict(mend.root, tuple(mend.steps), tuple(mend.wishes), mended=(RULE_ID,))


def _believed(workload: Workload) -> str:
    """Why a status is taken as it is reported; empty where it is a success that nobody vouches for."""
    if at(workload.root, ("status", "phase")) != "Succeeded":
        return "phase"
    if jobpod.owner(workload) is None:
        return "owner"
    if not was_stopped(workload):
        return "undisturbed"
    if not is_asked_for(workload.annotations.get(MARK), workload.annotations.get(PREFIX + EXIT_CONTRACT)):
        return "unguarded"
    return "completed" if says_completed(workload) else ""


def was_stopped(workload: Workload) -> bool:
    """Whether a Pod was disrupted and told to stop, not only about to be: preemption marks a Pod before it deletes it.

    A kubelet that evicts, or whose node shuts down, stops a Pod without deleting it (1.37.2
    pkg/kubelet/eviction/eviction_manager.go, nodeshutdown: reason TerminationByKubelet).
    """
    return any(
        is_going(workload) or at(one, ("reason",)) == "TerminationByKubelet" for one in jobpod.disruptions(workload)
    )


def says_completed(workload: Workload) -> bool:
    """Whether the main container of a Pod ended with the message of a program that did finish."""
    main = workload.main
    return main is not None and any(
        at(status, ("name",)) == main.name
        and str(at(status, ("state", "terminated", "message"), "")).strip() == COMPLETED
        for status in entries(workload.root, "status", "containerStatuses")
    )


def _failure(workload: Workload) -> Iterator[Put]:
    yield Put(("status", "phase"), "Failed")
    yield Put(("status", "reason"), REASON)
    yield Put(("status", "message"), _message(workload))


def cause(workload: Workload) -> str:
    """Why a Pod that was stopped was, in the word of who did it."""
    return str(at(jobpod.disruptions(workload)[0], ("reason",)) or failurepolicy.CONDITION)[:40]


def _message(workload: Workload) -> str:
    text = f"It was stopped ({cause(workload)}) and exited 0, so its work may be unfinished and it counts as failed"
    main = workload.main
    if main is None:  # no Pod that was ever stored
        return sentence((), text, RULE_ID)
    written = quoted(main.spec.get("terminationMessagePath") or MESSAGE_PATH).strip('"')
    return sentence(
        (), f"{text}; a finished program writes {COMPLETED} to {written} of container {quoted(main.name)}", RULE_ID
    )
