"""The processes of this machine, as far as /proc shows them: who descends from whom, and what one does with SIGTERM."""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

_PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
_PR_GET_CHILD_SUBREAPER: Final = 37


@contextmanager
def adopting() -> Iterator[Callable[[], None]]:
    """Makes this process the parent of every orphan below it, as PID 1 of a container is; gives what ends them."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is None or not Path("/proc/self/stat").exists():
        yield lambda: None
        return
    adopts = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield partial(_end_children, _children())
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, adopts.value, 0, 0, 0)


def _end_children(spared: set[int]) -> None:
    """Ends the children of this process, and theirs, which become its own by that."""
    while found := _children() - spared:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except PermissionError:  # it runs as another user by now
                spared |= {pid}


def catches(pid: int) -> bool | None:
    """Whether a process has a handler for SIGTERM (proc_pid_status(5), SigCgt); None where that cannot be seen."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return None
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(b"SigCgt:")]
    return bool(masks[0] >> (signal.SIGTERM - 1) & 1) if masks else None


class Entry(NamedTuple):
    """One process of the system."""

    pid: int
    alive: bool
    parent: int
    session: int


def _children() -> set[int]:
    own = os.getpid()
    return {entry.pid for entry in every() if entry.parent == own}


def every() -> Iterator[Entry]:
    """The processes of the system (proc_pid_stat(5)); none where there is no /proc."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, parent, _, session = file.read_bytes().rpartition(b")")[2].split()[:4]
            yield Entry(int(file.parent.name), state not in b"ZX", int(parent), int(session))
