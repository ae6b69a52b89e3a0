"""The policy that the controller goes by: that of a file, which is looked at for changes, or the default."""

from typing import Final

from webhook import observe
from webhook.core.policy import Policy
from webhook.watched import Watched

NAME: Final = "policy"
Chosen = Policy | Watched[Policy]


def in_force(chosen: Chosen) -> Policy | None:
    """The policy; None while its file could not be used even once."""
    return chosen.value if isinstance(chosen, Watched) else chosen


def look(chosen: Chosen) -> bool:
    """Takes over a changed policy, and says so. Never is there more to do at once."""
    if isinstance(chosen, Watched):
        change = chosen.reload()
        told = {"file": str(chosen.path), "problems": chosen.problems}
        observe.reloaded(NAME, chosen, change, **told)
    return False


def problem(chosen: Chosen) -> str:
    """Why there is none in force; empty where there is."""
    return chosen.remark() if isinstance(chosen, Watched) and chosen.value is None else ""
