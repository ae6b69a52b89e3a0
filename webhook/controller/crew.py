"""Runs the parts of the controller side by side, and ends them in order."""

import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from webhook.controller.lease import Lease
from webhook.controller.part import Part
from webhook.observe import LOG, said

END_SECONDS: Final = 5.0  # for what is under way when a signal comes
LAST_SECONDS: Final = 10.0  # after that, for giving up the Lease, and for a drain


@dataclass(frozen=True, slots=True)
class Crew:
    """All parts: those that work, the election of who does, which ends after them, and those that only answer.

    These drain, and no other replica has to wait for that before it may lead.
    """

    election: Lease
    parts: Sequence[Part]
    answering: Sequence[Part] = ()

    def until_signalled(self) -> None:
        """Runs everything until SIGTERM or SIGINT; a second signal ends the process at once."""
        stop = Event()

        def stopping(number: int, _frame: object) -> None:
            stop.set()
            signal.signal(number, signal.SIG_DFL)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stopping)
        self.run(stop)

    def run(self, stop: Event) -> None:
        """Runs everything until `stop` is set; then the parts end, and the Lease is given up after them."""
        given_up = Event()
        answering = [_started(part, stop) for part in self.answering]
        working = [_started(part, stop) for part in self.parts]
        electing = _started(self.election, given_up)
        stop.wait()
        said("stopping")
        _joined(working, END_SECONDS)
        given_up.set()
        _joined([electing, *answering], LAST_SECONDS)


def _started(part: Part, stop: Event) -> Thread:
    def run() -> None:
        try:
            part.run(stop)
        except Exception:  # its check of liveness will fail; the other parts go on
            LOG.exception("part ended", extra={"fields": {"part": part.name}})

    thread = Thread(target=run, name=part.name, daemon=True)
    thread.start()
    return thread


def _joined(threads: Iterable[Thread], seconds: float) -> None:
    """Waits until all threads have ended, `seconds` at most."""
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            said("part does not end", part=thread.name, seconds=seconds)
