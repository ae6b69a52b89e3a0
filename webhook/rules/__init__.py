"""The rules, one module each, in the order in which they run."""

from typing import Final

from webhook.core.rule import Rule
from webhook.rules import (
    active_deadline,
    backoff_limit,
    completion_guard,
    concurrency_policy,
    disrupted_toleration,
    disruption_budget,
    disruption_stamp,
    do_not_disrupt,
    exemption,
    exit_code,
    grace_budget,
    platform_limits,
    pod_failure_policy,
    pod_replacement_policy,
    restart_policy,
    safe_to_evict,
)

RULES: Final[tuple[Rule, ...]] = (
    exemption.RULE,
    restart_policy.RULE,
    pod_failure_policy.RULE,
    pod_replacement_policy.RULE,
    completion_guard.RULE,
    exit_code.RULE,
    disruption_stamp.RULE,
    grace_budget.RULE,
    do_not_disrupt.RULE,
    active_deadline.RULE,
    backoff_limit.RULE,
    concurrency_policy.RULE,
    platform_limits.RULE,
    disrupted_toleration.RULE,
    safe_to_evict.RULE,
    disruption_budget.RULE,
)
