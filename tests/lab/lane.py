"""Lanes of a picture, made from what became of a Job and its Pods. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tests.lab.experiment import Bar, Lane, Mark, Phase, Run, Sign
from tests.lab.history import TERMINAL, Container, Pod, Seen, Story

JOB: Final = "Job"


def run(
    title: str,
    story: Story,
    zero: float,
    *,
    end: float | None = None,
    nodes: Mapping[str, Sequence[Seen]] = MappingProxyType({}),
) -> Run:
    """One Job's course of events; `zero` and `end`, where the picture ends, are on the story's clock.

    `nodes` are those to be shown too, by their names, with what was seen of them.
    """
    until = (story.told if end is None else end) - zero
    pods = [lane for number, pod in enumerate(story.pods, 1) for lane in _pod(f"Pod {number}", pod, zero, until)]
    machines = [_node(f"Node {number}", seen, zero, until) for number, seen in enumerate(nodes.values(), 1) if seen]
    return Run(title, (*machines, *pods, *_job(story, zero, until)))


def _node(name: str, seen: Sequence[Seen], zero: float, until: float) -> Lane:
    asked = next((one.at - zero for one in seen if "deletionTimestamp" in one.object["metadata"]), None)
    gone = next((one.at - zero for one in seen if one.gone), until)
    marks = [] if asked is None else [Mark(Sign.ASKED, asked)]
    return Lane(name, (Bar(Phase.HELD, seen[0].at - zero, gone),), tuple(marks))


def _pod(name: str, pod: Pod, zero: float, until: float) -> Iterator[Lane]:
    if pod.created - zero > until:
        return
    if not any(one.began for one in pod.containers):
        yield _unstarted(name, pod, zero, until)
        return
    starts = {one.name: one.restart for one in pod.containers}
    last = max(one.ended or 0 for one in pod.containers)
    for one in pod.containers:
        title = (f"{name}: {one.name}" if len(starts) > 1 else name) + (", again" if one.restart else "")
        shown = _container(title, pod, one, zero, until, is_last=one.ended == last)
        asked = _asked(pod, zero) if one.restart == starts[one.name] else ()
        yield replace(shown, marks=(*asked, *shown.marks))


def _unstarted(name: str, pod: Pod, zero: float, until: float) -> Lane:
    """A Pod without any container: one that waits, or that its kubelet refuses, or that only kwok looks after."""
    end = min(until, (pod.ended or pod.gone or until + zero) - zero)
    begin = end if pod.running is None else min(end, pod.running - zero)
    bars = [Bar(Phase.WAITING, pod.created - zero, begin), Bar(Phase.RUNNING, begin, end)]
    marks = [*_asked(pod, zero), *([Mark(Sign.STATE, end, pod.state)] if pod.ended or pod.gone else [])]
    return Lane(name, tuple(bar for bar in bars if bar.end > bar.begin), tuple(marks))


def _container(name: str, pod: Pod, one: Container, zero: float, until: float, *, is_last: bool) -> Lane:
    end = min(until, (until + zero if one.ended is None else one.ended) - zero)
    began = end if one.began is None else one.began - zero
    stop = min(end, end if one.term is None else one.term - zero)
    hook = min(stop, stop if one.pre_stop is None else one.pre_stop[0] - zero)
    hooked = stop if one.pre_stop is None else min(stop, (one.pre_stop[1] or stop + zero) - zero)
    created = (pod.created if not one.restart else (one.began or pod.created)) - zero
    bars = [
        Bar(Phase.WAITING, created, min(began, end)),
        Bar(Phase.RUNNING, began, hook),
        Bar(Phase.PRE_STOP, hook, hooked),
        Bar(Phase.RUNNING, hooked, stop),
        Bar(Phase.STOPPING, stop, end),
    ]
    marks = tuple(_ends(pod, one, zero, until, is_last=is_last))
    return Lane(name, tuple(bar for bar in bars if bar.end - bar.begin > 0.005), marks)


def _asked(pod: Pod, zero: float) -> Iterator[Mark]:
    if pod.asked is not None:
        yield Mark(Sign.ASKED, pod.asked - zero)


def _ends(pod: Pod, one: Container, zero: float, until: float, *, is_last: bool) -> Iterator[Mark]:
    if one.term is not None and one.term - zero <= until:
        yield Mark(Sign.TERM, one.term - zero)
    if one.ended is not None and one.ended - zero <= until:
        state = f" → {pod.state}" if is_last and pod.phase in TERMINAL else ""
        sign = Sign.EXIT if one.killed is None else Sign.KILL
        yield Mark(sign, one.ended - zero, f"exit {one.code}{state}")


def _job(story: Story, zero: float, until: float) -> Iterator[Lane]:
    counts = [(story.reached("failed", number), f"failed {number}") for number in range(1, story.count("failed") + 1)]
    ends = [(found.at, kind) for kind in ("Complete", "Failed") if (found := story.condition(kind))]
    marks = [Mark(Sign.STATE, at - zero, text) for at, text in (*counts, *ends) if at is not None]
    shown = tuple(mark for mark in sorted(marks, key=lambda mark: mark.at) if mark.at <= until)
    if shown:
        yield Lane(JOB, (), shown)
