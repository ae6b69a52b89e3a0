"""What the controller is composed of: parts with a name that run until they are told to stop."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Protocol

from webhook.controller.api import ApiError
from webhook.controller.metrics import Complaints
from webhook.observe import LOG, said

LONGEST_SECONDS: Final = 15.0  # between two tries, so that what has ended is made good within 30 seconds
ASKED_SECONDS: Final = 60.0  # the longest wait that a server may ask for


class Part(Protocol):
    """One concern of the controller. Parts know nothing of each other: they meet in the API server."""

    @property
    def name(self) -> str:
        """Its name in logs and checks."""

    def run(self, stop: Event) -> None:
        """Does its work until `stop` is set, whatever goes wrong."""

    def problem(self) -> str:
        """What is wrong with it; empty where all is well."""

    def alive(self) -> bool:
        """Whether it still comes round."""


@dataclass(slots=True)
class Rounds:
    """A part that does the same thing every few seconds while this replica leads, and backs off from errors.

    `once` says whether it is to come again soon, for it changed something.
    """

    name: str
    once: Callable[[], bool]
    seconds: float
    leads: Callable[[], bool]
    complaints: Complaints
    _problem: str = ""
    _failures: int = 0
    _changes: int = 0
    _began: float = field(default_factory=time.monotonic)

    def problem(self) -> str:
        """What went wrong in the last round."""
        return self._problem

    def alive(self) -> bool:
        """Whether a round began within the last five minutes."""
        return time.monotonic() - self._began < 300

    def run(self, stop: Event) -> None:
        """Rounds until `stop` is set. The first begins as soon as this replica leads."""
        while not stop.is_set():
            stop.wait(self.round() if self.leads() else self.standing_by())

    def standing_by(self) -> float:
        """A round of a replica that does not lead; the seconds until the next look."""
        self._began, self._problem, self._failures = time.monotonic(), "", 0
        return min(self.seconds, 1.0)

    def round(self) -> float:
        """One round; the seconds until the next."""
        self._began = time.monotonic()
        try:
            again = self.once()
        except ApiError as error:
            self.complaints.about(self.name, error)
            return self._failed(str(error), error.retry_after)
        except Exception as error:  # a fault of ours ends neither the part nor the others
            LOG.exception("part failed", extra={"fields": {"part": self.name}})
            return self._failed(repr(error), 0)
        if self._failures:
            said("part goes on", part=self.name, failures=self._failures)
        self._failures, self._problem = 0, ""
        self._changes = self._changes + 1 if again else 0
        # Whoever undoes what we do is answered ever more slowly, up to the usual pace.
        return (
            min(self.seconds, 0.05 * 2.0 ** min(self._changes, 20))
            if again
            else self.seconds * random.uniform(0.9, 1.1)
        )

    def _failed(self, problem: str, asked: float) -> float:
        self._failures += 1
        self._problem = problem
        pause = min(LONGEST_SECONDS, self.seconds * 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1.0)
        return max(pause, min(asked, ASKED_SECONDS))
