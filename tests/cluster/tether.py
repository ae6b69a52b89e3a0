"""Turn into another program that the kernel kills as soon as the Python that started it is gone.

Run as a script: `tether.py PARENT PROGRAM ARGUMENT...`. A hook between fork and exec (`preexec_fn`) would do
the same, but Python 3.12 warns about it in a process with threads, and warnings are errors here.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h; it outlives execve


def main(parent: int, command: list[str]) -> None:
    """Replace this process by `command`, whose first word is a path; exit 1 when `parent` is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        # The parent may have died before the line above: then no signal comes.
        if os.getppid() != parent:
            sys.exit(1)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
