"""What Karpenter did to a Job is told until its removal, and shown with the nodes and what was protected."""

from typing import Any, Final

from tests.lab import karpenter
from tests.lab.experiment import Bar, Lane, Mark, Phase, Sign
from tests.lab.history import OWNER, Seen
from tests.lab.record import Record

GOING: Final = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pod(uid: str, phase: str, **metadata: Any) -> dict[str, Any]:
    named = {"name": f"job-{uid}", "namespace": "with", "uid": uid, "labels": {OWNER: "job"}}
    return {"metadata": {**named, **metadata}, "spec": {"nodeName": "node-a"}, "status": {"phase": phase}}


def recorded() -> Record:
    record = Record()
    record.jobs["with", "job"] = [Seen(1, {"status": {}}), Seen(60, {"status": {"failed": 1}}, gone=True)]
    record.pods["a"] = [Seen(2, pod("a", "Pending")), Seen(10, pod("a", "Running"))]
    record.pods["a"] += [Seen(40, pod("a", "Running", **GOING)), Seen(41, pod("a", "Failed", **GOING))]
    record.pods["b"] = [Seen(50, pod("b", "Pending")), Seen(61, pod("b", "Pending", **GOING))]
    record.pods["c"] = [Seen(62, pod("c", "Pending"))]
    record.nodes["node-a"] = [Seen(5, {"metadata": {}}), Seen(70, {"metadata": GOING}, gone=True)]
    return record


def test_what_becomes_of_a_job_ends_with_its_removal() -> None:
    told = karpenter.story(recorded(), "with", "job")
    assert told.told == 60
    assert [one.uid for one in told.pods] == ["a", "b"]
    assert [one.asked for one in told.pods] == [40, None]


def test_a_picture_shows_nodes_what_was_protected_and_how_pods_were_told_to_go() -> None:
    record = recorded()
    told = karpenter.story(record, "with", "job")
    node, first, second, _job = karpenter.run(record, "With", told, 10, ["evicted"], protected=20).lanes
    assert node == Lane("Node 1", (Bar(Phase.HELD, -5, 50),))
    protected = (Bar(Phase.WAITING, -8, 0), Bar(Phase.PROTECTED, 0, 20), Bar(Phase.RUNNING, 20, 31))
    assert first == Lane("Pod 1", protected, (Mark(Sign.ASKED, 30), Mark(Sign.STATE, 31, "evicted → Failed")))
    assert second == Lane("Pod 2", (Bar(Phase.WAITING, 40, 50),))


def test_what_protects_for_ever_does_so_until_the_end() -> None:
    record = recorded()
    told = karpenter.story(record, "with", "job")
    _node, first, *_ = karpenter.run(record, "With", told, 10, protected=karpenter.FOR_EVER).lanes
    assert first.bars[1:] == (Bar(Phase.PROTECTED, 0, 31),)
    assert first.marks[-1] == Mark(Sign.STATE, 31, "Failed")
