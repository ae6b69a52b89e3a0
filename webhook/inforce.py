"""The policy that is in force where nobody gives another."""

from functools import cache

from webhook.core import policy
from webhook.core.policy import Policy
from webhook.rules import RULES


@cache
def by_default() -> Policy:
    """The default policy, read once."""
    return policy.default(RULES)
