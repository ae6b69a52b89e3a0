"""What documents state about the cluster: Karpenter's version, and what its platforms grant a Pod that has to go."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from webhook.core import duration
from webhook.core.option import Duration
from webhook.core.patch import Path
from webhook.core.place import SPOT
from webhook.core.reading import Reader
from webhook.core.rule import Context, Place, quoted
from webhook.core.ruleset import Facts, node_pool

PLATFORMS: Final = {"spot": SPOT, "cluster-autoscaler": (), "node-shutdown": ()}
VERSION: Final = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")


def context(reader: Reader, document: dict[str, Any]) -> Context:
    """What a policy document states about the cluster."""
    cron_jobs = reader.section(("cronJobs",), document.get("cronJobs"))
    reader.known(("cronJobs",), cron_jobs, ("fix",))
    karpenter = reader.section(("karpenter",), document.get("karpenter"))
    reader.known(("karpenter",), karpenter, ("version",))
    version = karpenter.get("version", "auto")
    return Context(
        rewrites_cron_jobs=reader.value(("cronJobs",), cron_jobs, "fix", bool, False),
        karpenter=None
        if version in ("auto", "none")
        else _version(reader, ("karpenter", "version"), version, "auto, none, or "),
        without_karpenter=version == "none",
        places=tuple(_places(reader, reader.section(("platform",), document.get("platform")))),
    )


def _version(reader: Reader, path: Path, given: Any, also: str = "") -> tuple[int, int, int] | None:
    match = VERSION.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        reader.complain(path, f"{quoted(given)} is not allowed; write {also}a version such as 1.12.0")
        return None
    return int(match[1]), int(match[2]), int(match[3])


def _places(reader: Reader, platform: dict[str, Any]) -> Iterable[Place]:
    reader.known(("platform",), platform, (*PLATFORMS, "nodepools"))
    for name, labels in PLATFORMS.items():
        seconds = _seconds(reader, ("platform",), platform, name)
        if seconds is not None:
            yield Place(name, seconds, labels)
    if platform.get("nodepools") != "auto":
        for name, seconds in _node_pools(reader, ("platform", "nodepools"), platform.get("nodepools")):
            yield node_pool(name, seconds)


def _seconds(reader: Reader, path: Path, given: Mapping[Any, Any], name: str) -> int | None:
    length = reader.value(path, given, name, Duration, None)
    return None if length is None else int(length) // duration.SECOND


def _node_pools(reader: Reader, path: Path, given: Any) -> Iterable[tuple[str, int]]:
    pools = {str(name): limit for name, limit in reader.section(path, given).items()}
    for name in pools:
        seconds = _seconds(reader, path, pools, name)
        if seconds is not None:
            yield name, seconds


def facts(reader: Reader, given: Any) -> Facts:
    """What a facts document states."""
    document = reader.head(given, "Facts", ("apiVersion", "kind", "karpenter", "nodepools"))
    karpenter = reader.section(("karpenter",), document.get("karpenter"))
    reader.known(("karpenter",), karpenter, ("version",))
    version = karpenter.get("version")
    return Facts(
        None if version is None else _version(reader, ("karpenter", "version"), version),
        tuple(_node_pools(reader, ("nodepools",), document.get("nodepools"))),
    )
