"""What authors declare about their programs in annotations."""

from dataclasses import dataclass
from typing import Any, Final

from webhook.core import duration
from webhook.core.patch import Path
from webhook.core.rule import quoted
from webhook.core.workload import Container, Workload

TASK: Final = "max-task-duration"
PRE_STOP: Final = "pre-stop-duration"
RUN: Final = "max-run-duration"
EXIT_CONTRACT: Final = "exit-contract"
GUARD: Final = "completion-guard"
MENDED: Final = "mended"
IGNORE: Final = "ignore"


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared duration: where it stands, and its length in nanoseconds (None: its text is no duration)."""

    path: Path
    value: Any
    length: int | None

    @property
    def complaint(self) -> str:
        """What to say of a declaration that is no duration."""
        return f"{quoted(self.value)} is no duration, so nothing is checked with it; write one such as 25s or 1m30s"


def declared(workload: Workload, name: str, container: Container | None = None) -> Declared | None:
    """The declaration `name`, for one container where that is given; None where the author made none.

    A declaration without a container's name speaks of the main container.
    """
    found = workload.declarations.get(f"{name}.{container.name}") if container else None
    if found is None and (container is None or container == workload.main):
        found = workload.declarations.get(name)
    return Declared(found[0], found[1], length(found[1])) if found else None


def length(value: Any) -> int | None:
    """Nanoseconds of a declared duration: a Go duration or whole seconds, never negative; None for anything else."""
    if not isinstance(value, str):
        return None
    if value.isascii() and value.isdigit() and len(value) < 12:
        return int(value) * duration.SECOND
    try:
        found = duration.parse(value)
    except duration.DurationError:
        return None
    return found if found >= 0 else None
