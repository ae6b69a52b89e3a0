"""Evaluate: an object and a policy in, a verdict out."""

from dataclasses import replace
from typing import Any

from webhook.core import guard as completion
from webhook.core import record
from webhook.core import stamp as disruption
from webhook.core.judgement import Judgement, is_going
from webhook.core.mend import Mend
from webhook.core.ruleset import Mode, Policy
from webhook.core.verdict import Exempted, Notice, RuleError, Verdict
from webhook.core.workload import Workload, look, view

__all__ = ["Exempted", "Notice", "RuleError", "Verdict", "foresee", "guard", "mutate", "stamp", "validate"]


def mutate(document: Any, policy: Policy, old: Any = None, namespace: str = "") -> Verdict:
    """What mutation makes of an object that is created, or of one that is updated from `old`.

    `namespace` is where the object goes if it does not say so itself.
    """
    workload = view(document)
    if workload is None:
        return Verdict(document, left="kind")
    if not workload.is_mended:
        verdict = Verdict(document, left="judged only")
    elif old is not None:
        verdict = _put_back(workload, old, policy)
    elif workload.is_deferred and not policy.ruleset.context.rewrites_cron_jobs:
        verdict = Verdict(document, left="judged only")
    else:
        verdict = Judgement(policy, workload, workload.namespace or namespace).mended()
    return _marked(verdict, policy)


def validate(document: Any, policy: Policy, old: Any = None, namespace: str = "") -> Verdict:
    """What is to be said of an object as it stands; with `old`, only what the update brought in.

    A CronJob is judged by what its Jobs will be like, and so is, under a policy that only monitors, what it would mend.
    """
    workload = view(document)
    if workload is None:
        return Verdict(document, left="kind")
    place = workload.namespace or namespace
    if workload.is_deferred:
        verdict = _foreseen(workload, policy, place)
    elif workload.is_mended and policy.mode is Mode.MONITOR and old is None:
        verdict = _standing(Judgement(policy, workload, place).mended(), workload, policy, place)
    else:
        verdict = Judgement(policy, workload, place).judged()
    return _marked(_without_known(verdict, old, policy, namespace), policy)


def foresee(document: Any, policy: Policy, namespace: str = "") -> Verdict:
    """What both webhooks together make of an object that is created: mended first, then judged."""
    workload = view(document)
    if workload is None:
        return Verdict(document, left="kind")
    return _marked(_foreseen(workload, policy, workload.namespace or namespace), policy)


def guard(document: Any, policy: Policy, namespace: str = "") -> Verdict:
    """What is made of a Pod whose status is being updated: the old status does not matter."""
    pod = _pod(document)
    if pod is None:
        return Verdict(document, left="kind")
    return _marked(completion.guarded(pod, policy, pod.namespace or namespace), policy)


def stamp(document: Any, policy: Policy, user: str, namespace: str = "") -> Verdict:
    """What is made of a Pod that `user` is about to delete, so that its Job does not count the failure."""
    pod = _pod(document)
    if pod is None:
        return Verdict(document, left="kind")
    return _marked(disruption.stamped(pod, user, policy, pod.namespace or namespace), policy)


def _pod(document: Any) -> Workload | None:
    workload = view(document)
    return workload if workload and workload.kind.name == "Pod" else None


def _foreseen(workload: Workload, policy: Policy, namespace: str) -> Verdict:
    if not workload.is_mended:
        return Judgement(policy, workload, namespace).judged()
    mended = Judgement(policy, workload, namespace).mended()
    return replace(mended, notices=mended.notices + _standing(mended, workload, policy, namespace).notices)


def _standing(mended: Verdict, workload: Workload, policy: Policy, namespace: str) -> Verdict:
    """What is still to be said of an object once it is mended."""
    return Judgement(policy, look(mended.object, workload.kind), namespace).judged()


def _without_known(verdict: Verdict, old: Any, policy: Policy, namespace: str) -> Verdict:
    """The verdict without what the old object already had: an update answers only for what it changes."""
    if old is None or not verdict.notices:
        return verdict
    known = {(notice.rule, notice.message) for notice in validate(old, policy, namespace=namespace).notices}
    return replace(verdict, notices=tuple(n for n in verdict.notices if (n.rule, n.message) not in known))


def _put_back(workload: Workload, old: Any, policy: Policy) -> Verdict:
    mend = Mend(workload)
    if not is_going(workload):
        mend.take(record.put_back(workload, old, policy.ruleset.rules[workload.kind.name]))
    return Verdict(mend.root, tuple(mend.steps), tuple(mend.wishes), left="update")


def _marked(verdict: Verdict, policy: Policy) -> Verdict:
    return replace(verdict, monitored=True) if policy.mode is Mode.MONITOR else verdict
