"""What a node could leave on its host: links, addresses, routes, rules, mounts, cgroups, processes, files, settings."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.cluster import programs
from tests.node import cgroups

COMMANDS = (
    ("ip", "-oneline", "link"),
    ("ip", "-oneline", "address"),
    ("ip", "route", "show", "table", "all"),
    ("ip", "rule"),
    ("iptables-save",),
    ("ip6tables-save",),
)
# An empty table, and the chains that the kernel itself calls, stay where iptables has once looked at them.
NOISE = re.compile(r"^(#|\*|COMMIT|:\S+ (?!-))")
PASSING = re.compile(r"\[\d+:\d+\]|(valid_lft|preferred_lft|expires) \S+")
PATHS = (
    "/etc/containerd",
    "/etc/kubernetes",
    "/opt/containerd",
    "/run/containerd",
    "/run/netns",
    "/run/runc",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "vm/overcommit_memory",
)


def take() -> frozenset[str]:
    """One line for each thing; what was there before and what is there after can be compared."""
    return frozenset([*_said(), *_mounts(), *_groups(), *_processes(), *_paths(), *_settings()])


def left(before: frozenset[str], seconds: float = 5) -> list[str]:
    """What is there now and was not in `before`, other than what passes within `seconds`."""
    deadline = time.monotonic() + seconds
    while (more := take() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    return sorted(more)


def _said() -> Iterator[str]:
    for command in COMMANDS:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for line in said.splitlines():
            if not (command[0].endswith("-save") and NOISE.match(line)):
                yield f"{' '.join(command)}: {PASSING.sub('', line)}"


def _mounts() -> Iterator[str]:
    for line in cgroups.MOUNTS.read_text().splitlines():
        yield f"mount: {line}"


def _groups() -> Iterator[str]:
    for whole in cgroups.hierarchies():
        for group in whole.glob("**/"):
            yield f"cgroup: {group}"
        with suppress(FileNotFoundError):
            yield f"cgroup: {whole} lends {(whole / 'cgroup.subtree_control').read_text().strip()}"


def _processes() -> Iterator[str]:
    """The processes in another namespace than ours, and the programs of a node by their names."""
    ours = os.readlink("/proc/self/ns/pid")
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            known = {Path(word).name for word in words} & {*programs.NODE_PACKAGES, "namespace.sh", "forward.py"}
            if known or os.readlink(folder / "ns" / "pid") != ours:
                yield f"process {folder.name}: {' '.join(words)}"


def _paths() -> Iterator[str]:
    for path in PATHS:
        if os.path.exists(path):
            yield f"path: {path}"


def _settings() -> Iterator[str]:
    for name in SETTINGS:
        with suppress(FileNotFoundError):
            yield f"setting: {name} = {Path('/proc/sys', name).read_text().strip()}"
