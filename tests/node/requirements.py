"""What a machine must have for a node, and where its commands are."""

import os
import re
import shutil
import sys
from pathlib import Path

from tests.node import image

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
BUSYBOXES = (Path("/bin/busybox"), Path("/usr/bin/busybox"))
# The package of Debian that has a command.
PACKAGES = {"ip": "iproute2", "iptables": "iptables", "runc": "runc", "nsenter": "util-linux", "mount": "mount"}
# Root in a container may lack them; the numbers are those of linux/capability.h.
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}


class RequirementError(Exception):
    """A machine without what a node needs; the text says what is missing."""


def unfit() -> str | None:
    """Why this user cannot have a node here, for the skipping of a test; None for root on Linux."""
    if sys.platform != "linux":
        return "a node needs Linux"
    if os.geteuid() != 0:
        return "a node needs root: containerd, runc and kube-proxy change mounts, cgroups and iptables"
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    lacking = [name for name, bit in CAPABILITIES.items() if held and not int(held[1], 16) >> bit & 1]
    return f"a node needs {' and '.join(lacking)}, which root lacks here" if lacking else None


def check() -> None:
    """Raise RequirementError, with the packages of Debian that are missing."""
    if reason := unfit():
        raise RequirementError(reason)
    packages = [package for command, package in PACKAGES.items() if shutil.which(command, path=PATH) is None]
    if not any((folder / "bridge").exists() for folder in PLUGINS):
        packages.append("containernetworking-plugins")
    if not any(path.exists() and image.is_static(path) for path in BUSYBOXES):
        packages.append("busybox-static")
    if packages:
        raise RequirementError(
            f"the node needs what is not on this machine: apt-get install --no-install-recommends {' '.join(packages)}"
        )


def which(command: str) -> str:
    """The path of a command of the system."""
    return shutil.which(command, path=PATH) or command


def plugins() -> Path:
    """The folder of the CNI plugins."""
    return next(folder for folder in PLUGINS if (folder / "bridge").exists())


def busybox() -> Path:
    """A busybox that runs without any other file."""
    return next(path for path in BUSYBOXES if path.exists() and image.is_static(path))
