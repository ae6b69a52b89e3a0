"""A Job's podFailurePolicy: what its author decided, and what may be added to it.

Facts: Kubernetes 1.37.2 pkg/controller/job/pod_failure_policy.go (the first rule that matches wins; exit code 0
never matches) and pkg/apis/batch/validation/validation.go `validatePodFailurePolicy` (what a rule must look
like).
"""

import re
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import pairwise
from typing import Any, Final, Literal

from webhook.core.declaration import EXIT_CONTRACT
from webhook.core.patch import entries, mapping
from webhook.core.rule import Context
from webhook.core.workload import Workload, whole

RULE_ID: Final = "pod-failure-policy"
CONTRACT_RULE_ID: Final = "exit-code"
CONTRACTS: Final = ("nonzero-when-stopped", "guard")
MOST_RULES: Final = 20
CONDITION: Final = "DisruptionTarget"
IGNORE_DISRUPTION: Final = {"action": "Ignore", "onPodConditions": [{"type": CONDITION, "status": "True"}]}
_ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")
# At most 63 characters, a DNS subdomain before a slash (1.37.2 apimachinery pkg/util/validation `IsQualifiedName`).
_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = re.compile(
    rf"((?=[^/]{{1,253}}/){_LABEL}(\.{_LABEL})*/)?(?=.{{1,63}}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
)
_STOPPED: Final = (137, 143)  # exit codes of a program that SIGKILL or SIGTERM ended


class Plan(Enum):
    """What is to become of a podFailurePolicy."""

    INJECT = auto()  # nothing in it decides about a disrupted Pod
    DECIDED = auto()  # a rule of the author decides
    FULL = auto()  # no rule fits in any more
    CONTRACT = auto()  # backoffLimit 0 says: never run this twice
    UNDECLARED = auto()  # the operator wants a word about the program's exit code first
    MALFORMED = auto()  # Kubernetes will refuse it; that is not ours to hide


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator can set for the rule pod-failure-policy."""

    backoff_limit_zero: Literal["skip", "inject"] = field(
        default="skip",
        metadata={"says": "what happens to a Job with backoffLimit 0, which often means: never run this twice"},
    )


def rules_of(workload: Workload) -> list[Any]:
    """The author's rules; none where the policy is absent, null or empty."""
    return entries(workload.job, "podFailurePolicy", "rules")


def plan(workload: Workload, context: Context) -> Plan:
    """What is to become of the podFailurePolicy of a Job."""
    rules = rules_of(workload)
    if not _well_formed(workload, rules):
        return Plan.MALFORMED
    if decision(rules) is not None:
        return Plan.DECIDED
    if getattr(context.options.get(RULE_ID), "backoff_limit_zero", "skip") == "skip" and zero_backoff(workload):
        return Plan.CONTRACT
    if len(rules) >= MOST_RULES:
        return Plan.FULL
    return Plan.INJECT if _may_inject(workload, context) else Plan.UNDECLARED


def _may_inject(workload: Workload, context: Context) -> bool:
    when = getattr(context.options.get(CONTRACT_RULE_ID), "inject", "always")
    return when == "always" or workload.declarations.get(EXIT_CONTRACT, ((), None))[1] in CONTRACTS


def zero_backoff(workload: Workload) -> str | None:
    """The field by which a Job says that nothing runs twice; None where it does not."""
    for name in ("backoffLimit", "backoffLimitPerIndex"):
        value = workload.job.get(name)
        if whole(value) and value == 0:
            return name
    return None


def decision(rules: list[Any]) -> int | None:
    """The index of the first rule that names DisruptionTarget with status True; None without one."""
    return next((index for index, rule in enumerate(rules) if _names_disruption(rule)), None)


def _names_disruption(rule: Any) -> bool:
    # An absent or empty status is defaulted to True (Kubernetes 1.37.2 pkg/apis/batch/v1/defaults.go).
    return rule.get("onExitCodes") is None and any(
        isinstance(pattern, dict) and pattern.get("type") == CONDITION and pattern.get("status") in (None, "", "True")
        for pattern in entries(rule, "onPodConditions")
    )


def catches_stopped(rule: Any) -> bool:
    """Whether a rule can match a Pod by the exit code of a program that was stopped: 137 or 143."""
    codes = mapping(rule, "onExitCodes")
    values = entries(codes, "values")
    if codes.get("operator") == "In":
        return any(code in values for code in _STOPPED)
    return codes.get("operator") == "NotIn" and any(code not in values for code in _STOPPED)


def _well_formed(workload: Workload, rules: list[Any]) -> bool:
    policy = workload.job.get("podFailurePolicy")
    if policy is not None and not (
        isinstance(policy, dict) and (policy.get("rules") is None or isinstance(policy.get("rules"), list))
    ):
        return False
    if workload.job.get("podReplacementPolicy") not in (None, "", "Failed", "TerminatingOrFailed"):
        return False
    return len(rules) <= MOST_RULES and all(_rule_well_formed(workload, rule) for rule in rules)


def _rule_well_formed(workload: Workload, rule: Any) -> bool:
    if not isinstance(rule, dict) or rule.get("action") not in _ACTIONS:
        return False
    if rule["action"] == "FailIndex" and workload.job.get("backoffLimitPerIndex") is None:
        return False
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
    if codes is not None:
        return not conditions and _codes_well_formed(workload, codes)
    return (
        isinstance(conditions, list)
        and 0 < len(conditions) <= 20
        and all(_condition_well_formed(c) for c in conditions)
    )


def _condition_well_formed(pattern: Any) -> bool:
    return (
        isinstance(pattern, dict)
        and isinstance(pattern.get("type"), str)
        and _QUALIFIED.fullmatch(pattern["type"]) is not None
        and pattern.get("status") in (None, "", "True", "False", "Unknown")
    )


def _codes_well_formed(workload: Workload, codes: Any) -> bool:
    values = entries(codes, "values")
    if not 1 <= len(values) <= 255 or not all(whole(code) for code in values):
        return False
    if any(first >= second for first, second in pairwise(values)):
        return False
    operator, name = codes.get("operator"), codes.get("containerName")
    known = {c.name for c in (*workload.containers, *workload.starters)}
    return (operator == "NotIn" or (operator == "In" and 0 not in values)) and (name is None or name in known)
