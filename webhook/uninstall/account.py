"""Says what becomes of each object, as it happens, and counts it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from webhook.controller.api import ApiError, Thing
from webhook.report.finding import printable


@dataclass(slots=True)
class Account:
    """What was done. `gone` has the uids of what was removed, and of what its finalizers still hold."""

    say: Callable[[str], None]
    complain: Callable[[str], None]
    is_dry: bool = False
    gone: dict[Thing, str] = field(default_factory=dict)
    removed: int = 0
    problems: int = 0

    def is_removed(self, thing: Thing, uid: str) -> None:
        """An object was removed, or would be."""
        self.gone[thing] = uid
        self.removed += 1
        self.say(f"{'would remove' if self.is_dry else 'removed'} {thing}")

    def stays(self, thing: Thing, why: str) -> None:
        """An object is left as it is."""
        self.say(f"{thing} stays: {printable(why)}")

    def lasts(self, thing: Thing, why: str) -> None:
        """An object is being removed, and is still there."""
        self.problems += 1
        self.complain(f"{thing} is still there: {printable(why)}")

    def could_not(self, error: ApiError) -> None:
        """A call was not done."""
        self.problems += 1
        self.complain(f"could not {printable(str(error))}")
