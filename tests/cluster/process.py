"""Child processes that never outlive this one: start, wait until ready, stop."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TETHER = Path(__file__).with_name("tether.py")
TAIL_LINES = 20
T = TypeVar("T")


class ProcessError(Exception):
    """A process that ended by itself, or was not ready in time; the text shows the end of its log."""


class PortTakenError(ProcessError):
    """A process that ended because somebody else listens on its port."""


@dataclass(frozen=True)
class Process:
    """A started program; `log` is where its stdout and stderr go."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path | None = None) -> Process:
    """Start `command` (its first word is a path) with exactly `env`, output appended to `log`.

    It gets a session of its own, so that Ctrl-C reaches only Python, and it is killed when the *thread* that
    calls this ends (that is how Linux counts a parent's death): call it from a thread that lasts.
    """
    tethered = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid()), *command]
    with log.open("ab") as output:
        popen = subprocess.Popen(
            tethered,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    return Process(name, popen, log)


def stop(process: Process, seconds: float = 10) -> None:
    """Send SIGTERM and wait up to `seconds`, then SIGKILL; on return the process is gone and reaped.

    Whatever the program started itself, and left in its session, gets SIGKILL. An interruption (a second
    Ctrl-C) only shortens the wait.
    """
    try:
        process.popen.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.popen.wait(seconds)
    finally:
        _kill_session(process.popen)


def _kill_session(popen: subprocess.Popen[bytes]) -> None:
    # Linux gives out the number of a group again only once the group is empty; ProcessLookupError says it is.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(popen.pid, signal.SIGKILL)
    popen.wait()


def wait_ready(started: Sequence[Process], ready: Callable[[], bool], seconds: float = 60) -> None:
    """Return once `ready()` holds and every process in `started` runs.

    Raises PortTakenError or ProcessError for a process that ended, and ProcessError for the last of `started`
    when `seconds` have passed.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        check_running(started)
        if time.monotonic() > deadline:
            raise ProcessError(f"{started[-1].name} was not ready after {seconds:.0f} s; {tail(started[-1])}")
        time.sleep(0.05)
    check_running(started)


def check_running(started: Sequence[Process]) -> None:
    """Raise PortTakenError or ProcessError for the first of `started` that has ended."""
    for process in started:
        code = process.popen.poll()
        if code is not None:
            shown = tail(process)
            kind = PortTakenError if "address already in use" in shown else ProcessError
            raise kind(f"{process.name} ended with exit code {code}; {shown}")


def tail(process: Process) -> str:
    """The last lines of the log with a heading, for the text of an error."""
    lines = process.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n  ".join([f"the end of {process.log}:", *(lines or ["(the log is empty)"])])


def end_by_signal() -> None:
    """Have SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt.

    SIGINT too: a shell script starts what it puts in the background with SIGINT ignored.
    """
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)


def hold(
    prefix: str,
    running: Callable[[Path], AbstractContextManager[T]],
    told: Callable[[T], None],
    errors: tuple[type[Exception], ...],
) -> int:
    """Keep what runs in a folder of its own until Ctrl-C, SIGTERM or SIGHUP; the exit code, 1 when it cannot be had.

    `told` says how to use it, once it runs; `errors` are those that `running` raises.
    """
    end_by_signal()
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder, running(Path(folder)) as held:
            told(held)
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except errors as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
