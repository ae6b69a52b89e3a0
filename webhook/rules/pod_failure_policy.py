"""A Job needs a podFailurePolicy that does not count Pods which were disrupted.

Without one, an evicted Pod is a failed Pod: each drain uses up one retry of backoffLimit, and with
Kubernetes' default podReplacementPolicy a second Pod starts on the same task while the first is still stopping.

**What the fix does.** A rule is put in front: Ignore Pods with the condition DisruptionTarget. It comes first
because the first rule that matches wins, and an evicted program usually ends with exit code 143 or 137, which a
FailJob rule of the author may name. The author's own rules stay, in their order. In the same step
podReplacementPolicy becomes Failed, without which Kubernetes would refuse the policy, and the Pod template is
marked `drainproof.dev/completion-guard: "on"` (see the rule completion-guard) unless its author declares
`drainproof.dev/exit-contract: nonzero-when-stopped`.

**Limits.** A rule of the author that names DisruptionTarget with status True is a decision, and nothing is
added to it. With backoffLimit 0 nothing is injected, for it often means: never run this twice; the option
`backoff-limit-zero: inject` says otherwise. A policy of 20 rules has no room for another. A plain `kubectl
delete pod`, and Karpenter's deletion by force where the rule disruption-stamp is off, carry no DisruptionTarget, so
they count as before. A program that exits 0 when it is stopped and is not guarded makes its Job Complete, whatever
the policy.
"""

from collections.abc import Iterator
from typing import Any, Final

from webhook.core import failurepolicy
from webhook.core.declaration import EXIT_CONTRACT, GUARD
from webhook.core.failurepolicy import CONDITION, IGNORE_DISRUPTION, Options, Plan
from webhook.core.guard import MARK, ON, TRUSTED
from webhook.core.guard import RULE_ID as GUARD_RULE
from webhook.core.patch import Put
from webhook.core.protection import KEY
from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.stamp import RULE_ID as STAMP_RULE
from webhook.core.workload import BATCH, PREFIX, Workload

IGNORING: Final = f"action: Ignore, onPodConditions: [{{type: {CONDITION}}}]"
REPLACEMENT_RULE: Final = "pod-replacement-policy"


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds a Job that counts disrupted Pods as failures."""
    if workload.pod.get("restartPolicy") != "Never":
        return
    path = workload.at_job("podFailurePolicy")
    match failurepolicy.plan(workload, context):
        case Plan.DECIDED:
            yield from _decided(workload, context)
        case Plan.CONTRACT:
            yield Finding(path, _contract(workload))
        case Plan.FULL:
            yield Finding(
                (*path, "rules"),
                f"there is no room for a rule that ignores {CONDITION} among {failurepolicy.MOST_RULES}, "
                "so each eviction uses up backoffLimit; merge two rules",
            )
        case Plan.UNDECLARED:
            yield Finding(
                path,
                f"no rule ignores {CONDITION}, and one is only injected where the program's exit code is declared; "
                f"declare {PREFIX}{EXIT_CONTRACT}: {' or '.join(failurepolicy.CONTRACTS)}",
            )
        case Plan.INJECT:
            yield _absent(workload, context)


def _absent(workload: Workload, context: Context) -> Finding:
    path = workload.at_job("podFailurePolicy")
    stays = workload.job.get("podReplacementPolicy") == "TerminatingOrFailed"
    if stays and REPLACEMENT_RULE not in context.mending:
        return Finding(
            path,
            f"no rule ignores {CONDITION}, and none can be added while podReplacementPolicy stays TerminatingOrFailed; "
            "write Failed",
        )
    return Finding(
        path,
        f"no rule ignores {CONDITION}, so each eviction uses up backoffLimit; put first a rule with {IGNORING}",
        tuple(_injection(workload, context)),
    )


def _injection(workload: Workload, context: Context) -> Iterator[Put]:
    path = workload.at_job("podFailurePolicy")
    if workload.job.get("podFailurePolicy") is None:
        yield Put(path, {"rules": [IGNORE_DISRUPTION]})
    else:  # a list of rules is atomic, so that a re-apply brings the author's whole list back
        yield Put((*path, "rules"), [IGNORE_DISRUPTION, *failurepolicy.rules_of(workload)], recorded=True)
    replacement = workload.job.get("podReplacementPolicy")
    yield Put(workload.at_job("podReplacementPolicy"), "Failed", recorded=replacement is not None)
    contract = workload.declarations.get(EXIT_CONTRACT, ((), ""))[1]
    if contract != TRUSTED and GUARD not in workload.declarations and GUARD_RULE in context.mending:
        yield Put(workload.at_annotation(MARK), ON)


def _contract(workload: Workload) -> str:
    field = failurepolicy.zero_backoff(workload)
    what = "an index" if field == "backoffLimitPerIndex" else "the Job"
    return (
        f"{field} is 0, so a disruption fails {what} and nothing is injected; if it may run again, "
        f"write a rule with {IGNORING}"
    )


def _decided(workload: Workload, context: Context) -> Iterator[Finding]:
    rules = failurepolicy.rules_of(workload)
    index = failurepolicy.decision(rules)
    assert index is not None  # Plan.DECIDED
    path = workload.at_job("podFailurePolicy", "rules", index)
    earlier = _catching_earlier(rules, index)
    if earlier is not None:
        yield Finding(
            workload.at_job("podFailurePolicy", "rules", earlier),
            f"{rules[earlier]['action']} also matches an evicted Pod (exit code 143 or 137) before "
            f"rules[{index}] about {CONDITION} is reached; move rules[{index}] in front",
        )
    elif rules[index]["action"] == "Count":
        yield Finding(
            path, f"Count on {CONDITION}: each disruption uses up backoffLimit; write action: Ignore if it should not"
        )
    elif (
        rules[index]["action"] in ("FailJob", "FailIndex")
        and workload.annotations.get(KEY) == "true"
        and STAMP_RULE not in context.mending
    ):
        yield Finding(
            path,
            f"{rules[index]['action']} on {CONDITION} does not fire when Karpenter at last deletes the Pod by force, "
            f'as it will with {KEY}: "true"; write a duration',
        )


def _catching_earlier(rules: list[Any], index: int) -> int | None:
    """The first rule in front of `index` that takes an evicted Pod away from it with another action."""
    action = rules[index]["action"]
    return next(
        (i for i in range(index) if rules[i]["action"] != action and failurepolicy.catches_stopped(rules[i])), None
    )


RULE: Final = Rule(
    failurepolicy.RULE_ID,
    check,
    Options,
    Level.WARN,
    fix=True,
    kinds=BATCH,
    rewrites=lambda workload: (workload.at_job("podFailurePolicy", "rules"),),
)
