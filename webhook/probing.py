"""Runs a command, stops it as a kubelet would, and notes what happened when.

Kubernetes 1.37.2 pkg/kubelet/kuberuntime/kuberuntime_container.go `killContainer`: the preStop hook runs for at
most the grace period, which is then shorter by the hook's whole seconds; SIGTERM follows, and SIGKILL when the
rest is used up, which is 2 s at least (kuberuntime_manager.go `minimumGracePeriodInSeconds`). SIGTERM goes to the
main process alone. When that ends, everything else in the container ends by SIGKILL.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final, Literal

from webhook import processes

SHORTEST_GRACE: Final = 1.0  # seconds; pkg/kubelet/pod_workers.go `calculateEffectiveGracePeriod`
_TICK: Final = 0.005  # seconds between two looks at the processes
_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Stage = Literal["running", "preStop", "SIGTERM", "SIGKILL"]
Process = subprocess.Popen[bytes]


class StoppedError(Exception):
    """A signal ended the probe itself; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class OtherUserError(Exception):
    """The command runs as another user by now, and cannot be sent a signal."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run, and when it is to be stopped. Times are in seconds."""

    command: Sequence[str]
    after: float = 5.0
    grace: float = 30.0
    pre_stop: Sequence[str] = ()
    least: float = 2.0  # between SIGTERM and SIGKILL, whatever preStop took


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, in seconds after the start."""

    seconds: float
    what: str


@dataclass(frozen=True, slots=True)
class Hook:
    """What a preStop command did: its seconds, and its exit code (None: it did not end, or could not run)."""

    seconds: float
    exit_code: int | None
    ended: bool


@dataclass(frozen=True, slots=True)
class Seen:
    """What a command did. Times are in seconds."""

    stage: Stage  # what had been done to it when it ended
    exit_code: int  # as the status of a container gives it: 128 and the number of the signal, if one ended it
    signal: str | None
    ran: float  # from its start to its end
    took: float | None  # from SIGTERM to its end
    allowed: float  # from SIGTERM to SIGKILL
    handler: bool | None  # whether it caught SIGTERM when that came; None: unknown
    left: int  # processes of its session that it left running
    pre_stop: Hook | None
    timeline: list[Event] = field(default_factory=list)


def run(plan: Plan, tell: Callable[[Event], None] = lambda _: None) -> Seen:
    """Runs, stops and watches a command; `tell` hears of each event at once. Call it in the main thread.

    The command's output goes to file descriptor 2, and its input is empty, as a container's is. No process that it
    started is left when this returns or raises, those that went into a session of their own included on Linux.
    Raises OSError where the command cannot be run, and StoppedError where a signal ends the probe.
    """
    with _noted() as signals, processes.adopting() as others:
        probe = _Probe(plan, tell, signals)
        try:
            return probe.seen()
        finally:
            probe.clear()
            others()


@dataclass(slots=True)
class _Ending:
    """How a command was stopped, so far."""

    stage: Stage = "running"
    hook: Hook | None = None
    handler: bool | None = None
    allowed: float = 0.0
    asked: float | None = None


class _Probe:
    """One command from its start to its end."""

    def __init__(self, plan: Plan, tell: Callable[[Event], None], signals: list[int]) -> None:
        self.plan = plan
        self.tell = tell
        self.signals = signals
        self.timeline: list[Event] = []
        self.processes: list[Process] = []  # the main one, and the hook's
        self.begun = 0.0

    def seen(self) -> Seen:
        main = self.start(self.plan.command)
        self.begun = time.monotonic()
        self.note(f"start: {shlex.join(self.plan.command)}")
        ending = _Ending()
        if not self.wait(self.plan.after, main):
            self.stop(main, ending)
        self.wait(float("inf"), main)
        end = time.monotonic()
        left = sum(other.session == main.pid != other.pid and other.alive for other in processes.every())
        self.clear()
        status = main.wait()
        name = _name(-status) if status < 0 else None
        self.note(f"ended by {name} (exit code {_code(status)})" if name else f"exit code {status}")
        return Seen(
            stage=ending.stage,
            exit_code=_code(status),
            signal=name,
            ran=round(end - self.begun, 3),
            took=round(end - ending.asked, 3) if ending.asked else None,
            allowed=ending.allowed,
            handler=ending.handler,
            left=left,
            pre_stop=ending.hook,
            timeline=self.timeline,
        )

    def stop(self, main: Process, ending: "_Ending") -> None:
        """Stops the command as a kubelet would, and keeps in `ending` how."""
        grace = max(self.plan.grace, SHORTEST_GRACE)
        if self.plan.pre_stop:
            ending.stage = "preStop"
            ending.hook = self.hook(main, grace)
        ending.allowed = max(self.plan.least, grace - int(ending.hook.seconds if ending.hook else 0))
        if _ended(main):
            return
        ending.stage, ending.handler, ending.asked = "SIGTERM", processes.catches(main.pid), time.monotonic()
        self.note(f"SIGTERM; SIGKILL in {ending.allowed:g} s")
        try:
            os.kill(main.pid, signal.SIGTERM)
        except PermissionError:
            raise OtherUserError from None
        if not self.wait(ending.allowed, main):
            ending.stage = "SIGKILL"
            self.note("SIGKILL")
            os.killpg(main.pid, signal.SIGKILL)

    def hook(self, main: Process, grace: float) -> Hook:
        """Runs preStop. A hook that fails or takes too long changes nothing but the time that is left."""
        begun = time.monotonic()
        self.note(f"preStop: {shlex.join(self.plan.pre_stop)}")
        try:
            hook = self.start(self.plan.pre_stop)
        except OSError as error:
            self.note(f"preStop cannot run, which a kubelet passes over: {error.strerror}")
            return Hook(0.0, None, ended=True)
        self.wait(grace, hook, main)
        seconds = time.monotonic() - begun
        if _ended(hook):
            code = _code(hook.wait())
            self.note(f"preStop ends with exit code {code}")
            return Hook(round(seconds, 3), code, ended=True)
        if not _ended(main):
            self.note("preStop is not waited for any longer")
        return Hook(round(seconds, 3), None, ended=False)

    def start(self, words: Sequence[str]) -> Process:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
        self.processes.append(process)
        return process

    def wait(self, seconds: float, *processes: Process) -> bool:
        """Waits until one of the processes has ended; whether one has. Raises StoppedError."""
        until = time.monotonic() + seconds
        while not any(map(_ended, processes)):
            if self.signals:
                raise StoppedError(self.signals[0])
            rest = until - time.monotonic()
            if rest <= 0:
                return False
            time.sleep(min(_TICK, rest))
        return True

    def note(self, what: str) -> None:
        self.timeline.append(Event(round(time.monotonic() - self.begun, 3), what))
        self.tell(self.timeline[-1])

    def clear(self) -> None:
        """Ends the processes that were started, and their groups, which keep their numbers until then."""
        for process in self.processes:
            if process.returncode is None:
                with contextlib.suppress(PermissionError):  # another user's
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def _ended(process: Process) -> bool:
    """Whether a process has ended. It is left to be waited for, so that its number goes to no other process."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _name(number: int) -> str:
    """A signal's name; most of the real-time signals have none."""
    return next((known.name for known in signal.Signals if known == number), f"signal {number}")


def _code(status: int) -> int:
    return 128 - status if status < 0 else status


@contextmanager
def _noted() -> Iterator[list[int]]:
    """Notes the signals that are to end the probe, so that it can clean up first.

    Their actions in what is started are the default ones, whatever they are here: a handler ends with exec.
    """
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in _ENDS}
    before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, no exit code is kept
    blocked = signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)
    try:
        yield noted
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, action in before.items():
            signal.signal(number, action or signal.SIG_DFL)
