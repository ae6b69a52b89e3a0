"""Run the demo and turn whatever ends it into one sentence and an exit code. KEEP=1 leaves it running until Ctrl-C."""

import signal
import subprocess
import sys
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130  # what a shell reports for SIGINT


class Interruption:
    """The signals that end the demo: the first one interrupts, and those after it only wait for the end."""

    came = False

    def expect(self) -> None:
        """Interrupt on the next signal, also where a shell has started us in the background with SIGINT ignored."""
        self._answer(self._interrupt)

    def ignore(self) -> None:
        """Let nothing disturb the clearing up."""
        self._answer(signal.SIG_IGN)

    def _answer(self, handler: "signal._HANDLER") -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.came = True
        self.ignore()
        raise KeyboardInterrupt


def main() -> int:
    """Run the demo: 0 when all came out as claimed, 1 when something did not or does not start, 130 after a signal."""
    interruption = Interruption()
    interruption.expect()
    try:
        failed = _run(interruption)
    except KeyboardInterrupt:
        failed = ""
    with suppress(OSError):  # the terminal may be the reason for the end
        if interruption.came:
            print("\nInterrupted: what had been started is stopped, and nothing is left behind.", file=sys.stderr)
        elif failed:
            print(f"\n{failed}", file=sys.stderr)
    return INTERRUPTED if interruption.came else bool(failed)


def _run(interruption: Interruption) -> str:
    """Why the demo failed; empty where it did not."""
    # Here, so that Ctrl-C in the second that these take is answered too.
    from tests.cluster.controlplane import KubectlError  # noqa: PLC0415
    from tests.cluster.demo import play  # noqa: PLC0415
    from tests.cluster.process import ProcessError  # noqa: PLC0415
    from tests.cluster.programs import ProgramError  # noqa: PLC0415

    try:
        return play.play(interruption.ignore)
    except ProgramError as error:
        return f"error: {error}"
    except (ProcessError, KubectlError, subprocess.TimeoutExpired) as error:
        return f"error: {error}\nNothing is left running. Try again; if it ends the same way, report these lines."
    except OSError as error:
        return f"error: {error}\nNothing is left running. Put that right, and try again."


if __name__ == "__main__":
    sys.exit(main())
