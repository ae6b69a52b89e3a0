"""Mending: wishes come true one after another, on the object as it then stands, and what they replace is recorded."""

from collections.abc import Iterator, Sequence
from typing import Any

from webhook.core import record
from webhook.core.patch import MISSING, Path, Put, Step, Wish, at, grant
from webhook.core.workload import Workload, look


class Mend:
    """An object that is being mended: as it stands, the steps so far, and what they replaced."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.root: Any = workload.root
        self.steps: list[Step] = []
        self.wishes: list[Wish] = []
        self.replaced: dict[Path, Any] = {}

    def granted(self, wishes: Sequence[Wish]) -> bool:
        """Whether all of the wishes could be granted and changed something; if not, none of them is."""
        before = self.root
        if not self.take(wishes) or self.root is before:
            return False
        self.workload = look(self.root, self.workload.kind)
        self.replaced |= dict(_replaced(before, wishes))
        return True

    def take(self, wishes: Sequence[Wish]) -> bool:
        """Moves on to the object with the wishes come true; False, and nothing done, where one cannot be granted."""
        current = self.root
        steps: list[Step] = []
        for wish in wishes:
            result = grant(current, wish)
            if result is None:
                return False
            current, steps = result[0], steps + result[1]
        self.root, self.steps, self.wishes = current, self.steps + steps, [*self.wishes, *wishes]
        return True

    def recorded(self) -> bool:
        """Writes the record of what was replaced; False where the annotations would outgrow what Kubernetes takes."""
        if self.replaced and not self.take([record.written(self.root, self.replaced)]):
            return False
        return not self.steps or record.fits(self.root, self.workload.kind)


def _replaced(document: Any, wishes: Sequence[Wish]) -> Iterator[tuple[Path, Any]]:
    """What the author wrote where a wish puts another value that has to be recorded."""
    for wish in wishes:
        if isinstance(wish, Put) and wish.recorded:
            value = at(document, wish.path, MISSING)
            if value is not MISSING and value != wish.value:
                yield wish.path, value
