"""A verdict: what came of an object, and what is said about it."""

from dataclasses import dataclass
from typing import Any

from webhook.core.patch import Path, Step, Wish
from webhook.core.rule import Level


class RuleError(Exception):
    """A rule that raised: a bug of ours, never of the object's."""

    def __init__(self, rule: str) -> None:
        self.rule = rule
        super().__init__(f"the rule {rule} raised")


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that the author, or the operator, is told."""

    rule: str
    level: Level
    path: Path
    message: str


@dataclass(frozen=True, slots=True)
class Exempted:
    """An exemption that took effect: from which rule (`*`: from all of them), and why."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of an object.

    `steps` lead from the object received to `object`, and `wishes` say the same apart from that object. `mended` names
    the rules that changed something; `left` says why no rule looked at the object at all. A verdict that is `monitored`
    says only what would have been done.
    """

    object: Any
    steps: tuple[Step, ...] = ()
    wishes: tuple[Wish, ...] = ()
    notices: tuple[Notice, ...] = ()
    mended: tuple[str, ...] = ()
    exempt: tuple[Exempted, ...] = ()
    left: str = ""
    monitored: bool = False

    @property
    def denied(self) -> tuple[Notice, ...]:
        """The notices for which the object is refused."""
        return tuple(notice for notice in self.notices if notice.level is Level.DENY)

    @property
    def warned(self) -> tuple[Notice, ...]:
        """The notices that come with an object that is let through."""
        return tuple(notice for notice in self.notices if notice.level is Level.WARN)
