"""The namespaces of one node: processes, mounts and cgroups that are gone with its process 1, however that ends."""

import time
from contextlib import ExitStack
from pathlib import Path

from tests.cluster import process
from tests.cluster.process import Process
from tests.node.requirements import PATH, which

SCRIPTS = Path(__file__).parent


def start(folder: Path, log: Path, stack: ExitStack) -> list[str]:
    """Start process 1 with the folders below `folder` in place of the host's, until `stack` is closed.

    Return the words that, before a command, run it there. Raises ProcessError.
    """
    command = [which("sh"), str(SCRIPTS / "namespace.sh"), str(folder)]
    holder = process.start("namespace", command, log, {"PATH": PATH})
    stack.callback(_end, holder)
    process.wait_ready([holder], (folder / "ready").exists)
    (first,) = _children(holder.popen.pid)
    return [which("sh"), str(SCRIPTS / "enter.sh"), str(folder), str(first)]


def _end(holder: Process) -> None:
    """Kill process 1, and by the kernel's hand whatever runs beside it; return when all of it is gone."""
    first = _children(holder.popen.pid)
    process.stop(holder, seconds=0)  # unshare waits for its child and heeds no SIGTERM
    while any(_runs(pid) for pid in first):
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
