"""The node's part of the host's network: one bridge with its addresses and routes, and the rules of kube-proxy."""

import json
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from tests.cluster.flags import SERVICE_RANGE

PREFIX = "dpr-"  # of every bridge: what a killed run leaves is known by it
LOCK = "\0drainproof-node-ring"
# Kept for benchmarks of network devices (RFC 2544), so nobody's own network.
RANGES = IPv4Network("198.18.0.0/15")
COMMANDS = ("iptables", "ip6tables")


class NetworkError(Exception):
    """A network of the host's in which no ring has room; the text says why."""


@contextmanager
def alone() -> Iterator[None]:
    """Hold what only one ring at a time can have: kube-proxy's chains have fixed names.

    The lock is a socket without a file: it has the extent of the chains, and the kernel drops it with the process.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        told = False
        while not _bound(lock):
            if not told:
                print("[ring] another ring runs on this machine: waiting", file=sys.stderr, flush=True)
            told = True
            time.sleep(0.5)
        yield


def _bound(lock: socket.socket) -> bool:
    try:
        lock.bind(LOCK)
    except OSError:
        return False
    return True


def sweep() -> None:
    """Remove what a killed ring has left. Raises NetworkError for chains that are somebody else's."""
    left = [link.name for link in Path("/sys/class/net").glob(f"{PREFIX}*")]
    for bridge in left:
        remove_bridge(bridge)
    if left:
        remove_chains()
    if any(_chains(command) for command in COMMANDS):
        raise NetworkError(
            "iptables has chains of a kube-proxy (KUBE-...) on this machine; those of a ring would replace them"
        )


def free_range() -> IPv4Network:
    """256 addresses that no route of this machine knows. Raises NetworkError, also for the range of Services."""
    routed = [IPv4Network(route["dst"]) for route in _routes()]
    services = IPv4Network(SERVICE_RANGE)
    if any(services.overlaps(route) for route in routed):
        raise NetworkError(f"this machine has a route for {services}, which the ring needs for its Services")
    free = [each for each in RANGES.subnets(new_prefix=24) if not any(each.overlaps(route) for route in routed)]
    if not free:
        raise NetworkError(f"this machine has routes for all of {RANGES}, where Pods would get their addresses")
    return secrets.choice(free)


def _routes() -> list[dict[str, Any]]:
    routes: list[dict[str, Any]] = json.loads(_run("ip", "-4", "-json", "route", "show", "table", "all") or "[]")
    return [route for route in routes if route["dst"] not in ("default", "0.0.0.0/0")]


@contextmanager
def bridge(pods: IPv4Network) -> Iterator[tuple[str, str]]:
    """A bridge for `pods` with the first of their addresses: its name and that address. It is gone on leaving."""
    name, address = f"{PREFIX}{secrets.token_hex(4)}", str(pods[1])
    try:
        # Without an address of its own it would change to that of the lowest of its ports with every Pod.
        hardware = ":".join(["0a", "58", *(f"{octet:02x}" for octet in pods[1].packed)])
        _run("ip", "link", "add", name, "address", hardware, "type", "bridge")
        # For what comes from this bridge only: from one Pod to another by way of a Service.
        Path(f"/proc/sys/net/ipv4/conf/{name}/forwarding").write_text("1")
        _run("ip", "address", "add", f"{address}/{pods.prefixlen}", "dev", name)
        _run("ip", "link", "set", name, "up")
        # For a machine without a default route; and what no rule of kube-proxy catches stays here.
        _run("ip", "route", "add", SERVICE_RANGE, "dev", name)
        yield name, address
    finally:
        remove_bridge(name)


def remove_bridge(name: str) -> None:
    """Remove a bridge and what is plugged into it; one that is not there is no error."""
    for link in [*(port.name for port in Path(f"/sys/class/net/{name}/brif").glob("*")), name]:
        # The kernel removes a Pod's end with the Pod, maybe at this very moment.
        with suppress(NetworkError):
            _run("ip", "link", "delete", link)


def remove_chains() -> None:
    """Remove every chain KUBE-... and every rule that jumps to one; `kube-proxy --cleanup` would also load ip_vs."""
    for command in COMMANDS:
        removal = _removal(_run(f"{command}-save"))
        if removal:
            _run(f"{command}-restore", "--noflush", "--wait", input=removal)


def leads_to(endpoint: str) -> bool:
    """Whether kube-proxy has written rules for `endpoint`; it calls itself healthy before."""
    return f"--to-destination {endpoint}\n" in _run("iptables-save", "--table", "nat")


def _removal(saved: str) -> str:
    """What `iptables-restore` has to be told to remove the chains KUBE-... from what `iptables-save` says."""
    lines: list[str] = []
    for table in re.findall(r"^\*.*?^COMMIT$", saved, re.MULTILINE | re.DOTALL):
        chains = re.findall(r"^:(KUBE-\S+) ", table, re.MULTILINE)
        jumps = re.findall(r"^-A ((?!KUBE-).* -j KUBE-.*)$", table, re.MULTILINE)
        if chains:
            head, *_ = table.splitlines()
            flushed = [f":{chain} - [0:0]" for chain in chains]
            lines += [head, *flushed, *(f"-D {jump}" for jump in jumps), *(f"-X {chain}" for chain in chains), "COMMIT"]
    return "\n".join([*lines, ""]) if lines else ""


def _chains(command: str) -> list[str]:
    return re.findall(r"^:(KUBE-\S+) ", _run(f"{command}-save"), re.MULTILINE)


def _run(*command: str, input: str = "") -> str:
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout
