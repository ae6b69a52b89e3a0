"""What became of a Pod is put together from the watch, the runtime and the program; and lanes show it."""

from typing import Any

from tests.lab import history, lane
from tests.lab.experiment import Bar, Lane, Mark, Phase, Sign
from tests.lab.history import Act, Seen, Story, Word


def pod(phase: str, *, identity: str = "", earlier: str = "", **more: Any) -> dict[str, Any]:
    last = {"lastState": {"terminated": {"containerID": f"containerd://{earlier}"}}} if earlier else {}
    one = {"name": "main", **last, **({"containerID": f"containerd://{identity}"} if identity else {})}
    metadata = {"name": "job-abc", "namespace": "lab", "uid": "1", **more.pop("metadata", {})}
    return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": [one], **more}}


CONDITION = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicted"}
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
SEEN = (
    Seen(10, pod("Pending")),
    Seen(12, pod("Running", identity="a")),
    Seen(20, pod("Running", identity="a", metadata=GOING, conditions=[CONDITION])),
    Seen(41, pod("Failed", identity="a", metadata=GOING, conditions=[CONDITION], reason="Evicted")),
    Seen(42, pod("Failed", identity="a", metadata=GOING, conditions=[CONDITION], reason="Evicted"), gone=True),
)
WORDS = (Word(11.5, "main", 0, "begins"), Word(25, "main", 0, "SIGTERM"))
ACTS = {"a": (Act(11, "a"), Act(20.1, "hook"), Act(24.9, "hook", 0), Act(40, "a", 137)), "other": (Act(1, "other"),)}
TOLD = history.pod(SEEN, WORDS, ACTS)


def test_a_pod_is_told_from_its_creation_to_its_removal() -> None:
    assert (TOLD.created, TOLD.running, TOLD.asked, TOLD.ended, TOLD.gone) == (10, 12, 20, 41, 42)
    assert TOLD.disrupted == history.Condition(20, "EvictionByEvictionAPI", "evicted")
    assert TOLD.state == "Failed (Evicted)"


def test_a_container_is_told_with_its_hook_and_its_end() -> None:
    (main,) = TOLD.containers
    assert (main.began, main.pre_stop, main.term, main.ended, main.code) == (11, (20.1, 24.9), 25, 40, 137)
    assert main.killed == 40
    assert TOLD.said("begins") == 11.5
    assert TOLD.main is main


def test_a_program_that_ends_by_itself_is_not_killed() -> None:
    told = history.pod(SEEN, WORDS, {"a": (Act(11, "a"), Act(40, "a", 3))})
    assert told.main is not None
    assert (told.main.code, told.main.killed, told.main.pre_stop) == (3, None, None)


def test_each_start_in_the_same_pod_is_a_container_of_its_own() -> None:
    seen = (Seen(1, pod("Running", identity="a")), Seen(5, pod("Running", identity="b", earlier="a")))
    words = (Word(2, "main", 0, "begins"), Word(6, "main", 1, "begins"))
    first, second = history.pod(seen, words, {"a": (Act(2, "a"), Act(3, "a", 1)), "b": (Act(5, "b"),)}).containers
    assert (first.restart, first.ended, first.said("begins")) == (0, 3, 2)
    assert (second.restart, second.ended, second.said("begins")) == (1, None, 6)


def test_a_start_that_was_never_seen_alive_is_known_from_the_next_one() -> None:
    (only,) = (Seen(5, pod("Running", identity="b", earlier="a")),)
    assert [one.code for one in history.pod((only,), (), {"a": (Act(1, "a"), Act(2, "a", 7))}).containers] == [7, None]


def job(at: float, **status: Any) -> Seen:
    return Seen(at, {"metadata": {"name": "job"}, "status": status})


FAILED = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": ""}]
STORY = Story("job", (TOLD,), (job(9), job(21, failed=1), job(43, failed=1, conditions=FAILED)), 50)


def test_a_job_is_told_by_its_numbers_and_conditions() -> None:
    assert (STORY.count("failed"), STORY.count("succeeded")) == (1, 0)
    assert (STORY.reached("failed", 1), STORY.reached("failed", 2)) == (21, None)
    assert STORY.condition("Failed") == history.Condition(43, "DeadlineExceeded", "")
    assert STORY.condition("Complete") is None


def test_a_lane_shows_a_pod_from_waiting_to_its_end_and_the_job_below() -> None:
    shown = lane.run("Without", STORY, 20)
    first, last = shown.lanes
    assert first.name == "Pod 1"
    assert [(bar.phase, round(bar.begin, 1), round(bar.end, 1)) for bar in first.bars] == [
        (Phase.WAITING, -10, -9),
        (Phase.RUNNING, -9, 0.1),
        (Phase.PRE_STOP, 0.1, 4.9),
        (Phase.RUNNING, 4.9, 5),
        (Phase.STOPPING, 5, 20),
    ]
    assert first.marks == (Mark(Sign.ASKED, 0), Mark(Sign.TERM, 5), Mark(Sign.KILL, 20, "exit 137 → Failed (Evicted)"))
    assert last == Lane("Job", (), (Mark(Sign.STATE, 1, "failed 1"), Mark(Sign.STATE, 23, "Failed")))


def test_a_lane_ends_where_the_picture_does() -> None:
    first, last = lane.run("Without", STORY, 20, end=22).lanes
    assert first.bars[-1] == Bar(Phase.PRE_STOP, first.bars[-1].begin, 2)
    assert first.marks == (Mark(Sign.ASKED, 0),)
    assert last.marks == (Mark(Sign.STATE, 1, "failed 1"),)


def test_a_pod_that_no_runtime_tells_of_is_shown_by_its_phases() -> None:
    seen = [Seen(one.at, {**one.object, "status": {"phase": one.object["status"]["phase"]}}, one.gone) for one in SEEN]
    shown = lane.run("Karpenter", Story("job", (history.pod(seen, (), {}),), (), 50), 20).lanes
    bars = (Bar(Phase.WAITING, -10, -8), Bar(Phase.RUNNING, -8, 21))
    assert shown == (Lane("Pod 1", bars, (Mark(Sign.ASKED, 0), Mark(Sign.STATE, 21, "Failed"))),)


def test_nodes_have_lanes_of_their_own() -> None:
    node: dict[str, Any] = {"metadata": {"name": "node-a"}}
    seen = (Seen(5, node), Seen(30, {"metadata": GOING}), Seen(45, {"metadata": GOING}, gone=True))
    first, *_ = lane.run("Karpenter", STORY, 20, nodes={"node-a": seen}).lanes
    assert first == Lane("Node 1", (Bar(Phase.HELD, -15, 25),), (Mark(Sign.ASKED, 10),))


def test_containers_of_one_pod_have_lanes_with_their_names() -> None:
    status = [{"name": name, "containerID": f"containerd://{name}"} for name in ("main", "sidecar")]
    seen = (Seen(1, {**pod("Succeeded"), "status": {"phase": "Succeeded", "containerStatuses": status}}),)
    acts = {name: (Act(2, name), Act(end, name, 0)) for name, end in (("main", 8), ("sidecar", 9))}
    first, second = lane.run("", Story("job", (history.pod(seen, (), acts),), (), 50), 0).lanes
    assert [one.name for one in (first, second)] == ["Pod 1: main", "Pod 1: sidecar"]
    assert (first.marks, second.marks) == (
        (Mark(Sign.EXIT, 8, "exit 0"),),
        (Mark(Sign.EXIT, 9, "exit 0 → Succeeded"),),
    )
