"""Karpenter beside the node: how it gets there, and how what it did to a Job is told and shown."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.karpenter import chart
from tests.karpenter import ring as karpenter
from tests.karpenter.experiments import Forced
from tests.karpenter.programs import NEWEST
from tests.lab import lane
from tests.lab.bench import PATIENCE
from tests.lab.experiment import Bar, Lane, Mark, Phase, Run, Sign
from tests.lab.history import Story
from tests.lab.record import Record
from tests.node.ring import Ring

FOR_EVER = math.inf


@contextmanager
def beside(running: Ring, folder: Path) -> Iterator[karpenter.Ring]:
    """Karpenter in the cluster of the node, to be found there as its chart leaves it. Raises karpenter.ERRORS."""
    with karpenter.running(running.plane, folder / "karpenter", has_scheduler=True) as ring:
        running.plane.create(chart.deployment(NEWEST))
        yield ring


def facts(ring: karpenter.Ring) -> dict[str, str]:
    """What the page says of it."""
    return {"Karpenter": f"v{ring.version}, as its own ServiceAccount, with machines and kubelets that KWOK simulates"}


def story(record: Record, namespace: str, name: str) -> Story:
    """What became of an experiment's Job, which has been removed since. Raises RecordError."""

    def told() -> Story | None:
        found = record.story(namespace, name)
        return found if found.seen and found.seen[-1].gone else None

    return record.until(told, f"the removal of {name} in {namespace}", PATIENCE)


def who(user: str | None) -> str:
    """A user in a word, where it is Karpenter."""
    return "Karpenter" if user == karpenter.USER else str(user)


def warning(warnings: Iterable[str], rule: str) -> str:
    """The first warning of a rule; empty without one."""
    return next((one for one in warnings if one.endswith(f"({rule})")), "")


def asked(seen: Forced) -> str:
    """In words how a Pod was told to go."""
    if seen.asked == "CREATE pods/eviction":
        return "evicted"
    return f"deleted with {seen.grace} s" + (f", {seen.disrupted}" if seen.disrupted else "")


def run(record: Record, title: str, told: Story, zero: float, ends: Sequence[str] = (), protected: float = 0) -> Run:
    """A Job's course with the nodes of its Pods.

    `ends` says in words how each of the first Pods was told to go, `protected` for how many seconds from its start
    do-not-disrupt protects a Pod.
    """
    shown = lane.run(title, told, zero, nodes=record.nodes_of(told))
    words = {f"Pod {number}": text for number, text in enumerate(ends, 1)}
    return replace(shown, lanes=tuple(_decorated(one, words.get(one.name, ""), protected) for one in shown.lanes))


def _decorated(one: Lane, words: str, protected: float) -> Lane:
    bars = tuple(part for bar in one.bars for part in _parts(bar, protected) if part.end > part.begin)
    return replace(one, bars=bars, marks=tuple(_told(mark, words) for mark in one.marks))


def _parts(bar: Bar, protected: float) -> Iterator[Bar]:
    if bar.phase is not Phase.RUNNING:
        yield bar
        return
    edge = min(bar.end, bar.begin + protected)
    yield Bar(Phase.PROTECTED, bar.begin, edge)
    yield Bar(Phase.RUNNING, edge, bar.end)


def _told(mark: Mark, words: str) -> Mark:
    return replace(mark, text=f"{words} → {mark.text}") if words and mark.sign is Sign.STATE else mark
