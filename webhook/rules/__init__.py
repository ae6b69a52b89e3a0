"""The rules, one module each, in the order in which they run."""

from typing import Final

from webhook.core.rule import Rule
from webhook.rules import (
    do_not_disrupt,
    exemption,
    grace_budget,
    pod_failure_policy,
    pod_replacement_policy,
    restart_policy,
)

RULES: Final[tuple[Rule, ...]] = (
    exemption.RULE,
    restart_policy.RULE,
    pod_failure_policy.RULE,
    pod_replacement_policy.RULE,
    grace_budget.RULE,
    do_not_disrupt.RULE,
)
