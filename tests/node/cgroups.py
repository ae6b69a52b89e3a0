"""A part of every cgroup hierarchy for one node, whichever version the machine has."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "drainproof-ring-"
LENT = "lent-"
MOUNTS = Path("/proc/self/mounts")
INHERITED = ("cpuset.mems", "cpuset.cpus")  # empty in a new group of version 1, which then takes no process
CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")  # what runc wants of version 2
SECONDS = 10


@contextmanager
def subtree(name: str) -> Iterator[dict[Path, Path]]:
    """A group `name` in each hierarchy: {group: where the hierarchy is mounted}. All of it is gone on leaving.

    What still runs in the groups has to end before; it is waited for.
    """
    groups = {whole / f"{PREFIX}{name}": whole for whole in hierarchies()}
    try:
        for group, whole in groups.items():
            group.mkdir()
            if (whole / "cgroup.controllers").exists():
                _lend(whole, group)
            for setting in INHERITED:
                if (whole / "cgroup.clone_children").exists() and (whole / setting).exists():
                    (group / setting).write_text((whole / setting).read_text())
        yield groups
    finally:
        for group in groups:
            _remove(group)


def hierarchies() -> list[Path]:
    """Where cgroup hierarchies are mounted."""
    rows = [line.split() for line in MOUNTS.read_text().splitlines()]
    mounted = [Path(where) for _, where, kind, *_ in rows if kind in ("cgroup", "cgroup2")]
    # A hierarchy may be mounted in several places; its device number tells.
    return list({place.stat().st_dev: place for place in reversed(mounted)}.values())


def sweep() -> None:
    """Remove the groups that killed rings have left."""
    for whole in hierarchies():
        for left in whole.glob(f"{PREFIX}*"):
            _remove(left)


def _lend(whole: Path, group: Path) -> None:
    """Let the group have what its hierarchy keeps back; a group LENT… remembers each, also when Python is killed."""
    had = (whole / "cgroup.subtree_control").read_text().split()
    for controller in {*CONTROLLERS} & {*(whole / "cgroup.controllers").read_text().split()} - {*had}:
        (group / f"{LENT}{controller}").mkdir()
        _switch(whole, f"+{controller}")


def _switch(whole: Path, controller: str) -> None:
    # Refused where processes stand in the way, as in a container, or where somebody else has come to use it.
    with suppress(OSError):
        (whole / "cgroup.subtree_control").write_text(controller)


def _remove(group: Path) -> None:
    """Remove a group with all below it, as soon as its processes have ended. Raises OSError after SECONDS."""
    lent = [child.name.removeprefix(LENT) for child in group.glob(f"{LENT}*")]
    deadline = time.monotonic() + SECONDS
    while group.exists():
        try:
            for child in sorted(group.glob("**/"), reverse=True):
                with suppress(FileNotFoundError):
                    child.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    for controller in lent:
        _switch(group.parent, f"-{controller}")
