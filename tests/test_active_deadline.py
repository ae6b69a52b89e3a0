"""The shortest deadline that is asked for, held against the Job controller's clock, simulated.

The simulation is written from the controller's source (Kubernetes 1.37.2 pkg/controller/job), not from the rule. With
podReplacementPolicy Failed a Pod holds its place until it has ended (job_controller.go `manageJob`). A new Pod waits
for the back-off: 10 s, doubled for each failure since the last success, ignored ones too, at most 600 s, from the end
of the last failure (backoff_utils.go `newBackoffRecord`); with backoffLimitPerIndex each index has its own
(`getRemainingTimePerIndex`). Times are whole milliseconds.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from webhook.core import duration
from webhook.core.option import Duration
from webhook.core.patch import Put
from webhook.core.rule import Context
from webhook.core.workload import view
from webhook.rules import active_deadline
from webhook.rules.active_deadline import Bound, Options

MILLI: Final = 1000  # milliseconds of a second
SCHEDULES: Final = 1000


@dataclass(frozen=True)
class Shape:
    """A Job and what its author and operator state of it; lengths are in seconds."""

    disruptions: int
    startup: int
    run: int
    stop: int
    parallelism: int = 1
    completions: int | None = 1  # None: the Pods share a queue, and one success is enough
    per_index: bool = False

    @property
    def waves(self) -> int:
        """How often all places are taken when nothing goes wrong."""
        return -(-self.completions // self.parallelism) if self.completions else 1

    @property
    def life(self) -> int:
        """The longest that an undisturbed Pod is there, in milliseconds."""
        return (self.startup + self.run) * MILLI


@dataclass(frozen=True)
class Fate:
    """What becomes of one Pod, in milliseconds: how long it is there, and whether it then has done its work."""

    life: int
    succeeds: bool = True


Fates = Callable[[int], Fate]
"""Given how many Pods went before, what becomes of the next one."""


@dataclass
class Controller:
    """The state of one Job as its controller sees it."""

    shape: Shape
    fates: Fates
    now: int = 0
    made: int = 0
    alive: list[tuple[int, bool, int]] = field(default_factory=list)  # a heap: when it ends, how, which index
    succeeded: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)  # since the last success, by index
    failed_at: dict[int, int] = field(default_factory=dict)

    def finish(self) -> int:
        """When the Job is Complete."""
        while True:
            due = self.fill()
            if not self.alive and not self.free():
                return self.now
            self.now = min([*(pod[0] for pod in self.alive[:1]), *due])
            self.reap()

    def free(self) -> int:
        """How many more Pods are wanted; one that is being stopped still holds its place."""
        if self.shape.completions is None:
            return 0 if self.succeeded else self.shape.parallelism - len(self.alive)
        wanted = min(self.shape.parallelism, self.shape.completions - len(self.succeeded))
        return wanted - len(self.alive)

    def fill(self) -> list[int]:
        """Makes the Pods that may be made now; when the others may be."""
        held = {index for _, _, index in self.alive} | self.succeeded
        open_indexes = (index for index in range(len(held) + self.shape.parallelism) if index not in held)
        chosen = [index for index, _ in zip(open_indexes, range(self.free()), strict=False)]
        due = []
        for index in chosen:
            moment = self.allowed(index)
            if moment > self.now:
                due.append(moment)
                continue
            fate = self.fates(self.made)
            self.made += 1
            heapq.heappush(self.alive, (self.now + fate.life, not fate.succeeds, index))
        return due

    def clock(self, index: int) -> int:
        """Whose failures count for an index: its own, or those of all."""
        return index if self.shape.per_index else -1

    def allowed(self, index: int) -> int:
        """When the back-off lets a Pod be made."""
        count = self.failures.get(self.clock(index), 0)
        wait = min(10 * 2 ** (count - 1), 600) * MILLI if count else 0
        return self.failed_at.get(self.clock(index), 0) + wait

    def reap(self) -> None:
        """Takes note of the Pods that end now: successes first, so that a failure at the same time still counts."""
        while self.alive and self.alive[0][0] <= self.now:
            _, failed, index = heapq.heappop(self.alive)
            clock = self.clock(index)
            if failed:
                self.failures[clock] = self.failures.get(clock, 0) + 1
                self.failed_at[clock] = self.now
            else:
                self.succeeded.add(index if self.shape.completions else self.made)
                self.failures.pop(clock, None)


def asked(shape: Shape) -> int:
    """The deadline that the rule asks for, in seconds."""
    ignoring = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec: dict[str, Any] = {"podFailurePolicy": {"rules": [ignoring]}, "parallelism": shape.parallelism}
    if shape.completions is not None:
        spec["completions"] = shape.completions
    declared = {"max-run-duration": f"{shape.run}s", "max-task-duration": f"{shape.stop}s"}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": shape.stop + 7,
        "containers": [{"name": "worker"}],
    }
    annotations = {f"drainproof.dev/{name}": text for name, text in declared.items()}
    spec["template"] = {"metadata": {"annotations": annotations}, "spec": pod}
    workload = view({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": spec})
    assert workload is not None
    options = Options(shape.disruptions, Duration(shape.startup * duration.SECOND))
    [finding] = active_deadline.check(workload, options, Context())
    [wish] = finding.wishes
    assert isinstance(wish, Put)
    assert isinstance(wish.value, int)
    return wish.value


def drawn(dice: random.Random, kind: str) -> Shape:
    """A random Job; short runs let the back-off count, and nine disruptions in a row reach its longest wait."""
    parallelism = dice.choice([1, 1, 2, 3, 5, 8])
    completions = None if kind == "a shared queue" else dice.randint(1, 3 * parallelism)
    startup, run, stop = dice.choice([0, 1, 30, 600]), dice.choice([1, 2, 45, 900, 7200]), dice.choice([0, 1, 30, 400])
    per_index = kind == "back-off by index"
    return Shape(dice.randint(0, 9), startup, run, stop, parallelism, completions, per_index)


def hostile(dice: random.Random, shape: Shape) -> Fates:
    """Random fates with at most the disruptions that the Job has to survive, the worst moments among them."""
    left = shape.disruptions
    eager = dice.choice([0.0, 0.2, 0.5, 1.0])  # how likely a Pod is disrupted
    after = dice.choice([0, 0, (shape.completions or 1) - 1])  # none before so many Pods: kept for the last of them
    full = dice.random() < 0.5  # whether every Pod takes all the time that it may

    def fate(made: int) -> Fate:
        nonlocal left
        life = shape.life if full else dice.randint(1, shape.life)
        if left == 0 or made < after or dice.random() >= eager:
            return Fate(life)
        left -= 1
        moment = dice.choice([life - 1, life - 1, 0, min(shape.startup * MILLI, life - 1), dice.randrange(life)])
        stop = dice.choice([shape.stop * MILLI, dice.randint(0, shape.stop * MILLI)])
        in_time = moment + stop >= life and dice.random() < 0.2  # it ends its work while it is being stopped
        return Fate(life) if in_time else Fate(moment + stop, succeeds=False)

    return fate


def worst(shape: Shape) -> Fates:
    """All disruptions hit the last task, each one just before its end; what runs beside it is done at once."""
    tasks = shape.completions or 1
    first = tasks - (tasks % shape.parallelism or shape.parallelism)  # the first Pod of the last wave

    def fate(made: int) -> Fate:
        if made < first:
            return Fate(shape.life)
        beside = shape.completions is not None and first < made < tasks
        if beside:
            return Fate(1)
        hits = 0 if made == first else made - tasks + 1
        is_last = hits >= shape.disruptions
        return Fate(shape.life) if is_last else Fate(shape.life - 1 + shape.stop * MILLI, succeeds=False)

    return fate


@pytest.mark.parametrize("kind", ["one back-off for all", "back-off by index", "a shared queue"])
def test_a_job_that_is_disrupted_as_often_as_was_said_ends_in_time(kind: str) -> None:
    for seed in range(SCHEDULES):
        dice = random.Random(f"{kind} {seed}")
        shape = drawn(dice, kind)
        took = Controller(shape, hostile(dice, shape)).finish()
        assert took <= asked(shape) * MILLI, f"seed {seed}: {shape} took {took} ms"


@pytest.mark.parametrize("stop", [1, 30, 400])
@pytest.mark.parametrize("disruptions", [0, 1, 3, 9])
@pytest.mark.parametrize(
    ("parallelism", "completions", "per_index"), [(1, 1, False), (3, 3, False), (5, 2, True), (1, None, False)]
)
def test_in_one_wave_a_second_less_is_too_little(
    parallelism: int, completions: int | None, per_index: bool, disruptions: int, stop: int
) -> None:
    shape = Shape(disruptions, 600, 900, stop, parallelism, completions, per_index)
    took = Controller(shape, worst(shape)).finish()
    assert (asked(shape) - 1) * MILLI < took <= asked(shape) * MILLI


def needed(shape: Shape) -> int:
    """What is enough for any schedule, in seconds.

    By the time j × (startup + run) each place has begun j + 1 tasks; a disruption sets one place back by at most one
    life and one stop, and everybody by at most one back-off. So it costs one life, however many waves there are.
    """
    lives = (shape.startup + shape.run) * (shape.waves + shape.disruptions)
    waits = sum(min(10 << count, 600) for count in range(shape.disruptions))
    return lives + shape.stop * shape.disruptions + waits


def test_a_disruption_costs_one_life_and_no_schedule_costs_more() -> None:
    for seed in range(SCHEDULES):
        dice = random.Random(seed)
        shape = drawn(dice, dice.choice(["one back-off for all", "back-off by index"]))
        assert Controller(shape, hostile(dice, shape)).finish() <= needed(shape) * MILLI <= asked(shape) * MILLI
        assert Controller(shape, worst(shape)).finish() <= needed(shape) * MILLI


@pytest.mark.parametrize(("parallelism", "completions"), [(1, 1), (1, 5), (2, 6), (3, 7), (10, 100)])
def test_the_worst_schedule_costs_all_of_that(parallelism: int, completions: int) -> None:
    shape = Shape(3, 600, 3600, 30, parallelism, completions)
    took = Controller(shape, worst(shape)).finish()
    assert (needed(shape) - 1) * MILLI < took <= needed(shape) * MILLI


@pytest.mark.parametrize("kind", ["one back-off for all", "back-off by index", "a shared queue"])
def test_the_simulated_controller_leaves_nothing_undone(kind: str) -> None:
    for seed in range(100):
        dice = random.Random(f"undone {kind} {seed}")
        shape = drawn(dice, kind)
        controller = Controller(shape, hostile(dice, shape))
        controller.finish()
        assert len(controller.succeeded) >= (shape.completions or 1)
        assert controller.made <= (shape.completions or shape.parallelism) + shape.disruptions


def test_the_simulated_back_off_doubles_up_to_ten_minutes_and_starts_anew_after_a_success() -> None:
    controller = Controller(Shape(9, 0, 1, 0), lambda _: Fate(1))
    waits = []
    for count in range(9):
        controller.failures = {-1: count}
        waits.append(controller.allowed(0) // MILLI)
    assert waits == [0, 10, 20, 40, 80, 160, 320, 600, 600]
    controller.alive = [(0, False, 0)]
    controller.reap()
    assert controller.allowed(1) == 0


def test_the_sum_is_the_one_that_the_message_shows() -> None:
    bound = Bound(disruptions=3, startup=600, run=900, waves=1, stop=30)
    assert (bound.backoff, bound.seconds) == (70, 1500 * 4 + 30 * 3 + 70)
    assert str(bound) == "4 x (start 600s + run 900s) + 3 x stop 30s + back-off 70s"
