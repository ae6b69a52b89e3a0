"""Three drains in a row, and a deadline with room for them.

A Job of 18 s declares that in `drainproof.dev/max-run-duration`. Its Pod is evicted three times, each time when a
third of the run is done: once with the activeDeadlineSeconds that the warning of
[active-deadline](rules/active-deadline.md) asks for (the policy here lets a run take 10 s until its program starts),
and once with a second less than the back-off and the runs alone must take on the fastest of machines.

**Expected.** The Job controller waits 10, 20 and 40 s after the end of a Pod, although none counts as failed. The bound
suffices; the shorter deadline fails a healthy Job that was merely drained.

That not a second of the bound is too much is held by a simulation of the Job controller's clock in the tests: a real
run has starts and stops that are shorter than those it has to reckon with.

**What it means.** Disruptions that are not counted still take time, and a deadline has to have room for them: three
cost 70 s of back-off and up to three more runs.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.lab import lane, program
from tests.lab.bench import WITH, Bench, Trial
from tests.lab.experiment import Figure, Observation, between, described, equal
from tests.lab.history import Story
from tests.lab.program import MAX_RUN

RUN: Final = 18
UNTIL_EVICTED: Final = 6  # seconds of a run that are done at least when it is evicted
GRACE: Final = 5
BACKOFFS: Final = (10, 20, 40)
# What three disruptions cost at the very least, on a machine on which nothing else takes any time.
LEAST: Final = sum(BACKOFFS) + len(BACKOFFS) * UNTIL_EVICTED + RUN
EARLY: Final = 1.1  # Kubernetes writes when something ended in whole seconds
LATE: Final = 6
THIRD: Final = "has done a third"
SET: Final = re.compile(r"set at least (\d+) ?.*\(active-deadline\)")


def job(deadline: int | None) -> dict[str, Any]:
    """A Job that declares its run, with a deadline or without."""
    script = (
        f"trap 'say SIGTERM; exit 143' TERM; say begins; sleep {UNTIL_EVICTED} & wait $!; say {THIRD}; "
        f"sleep {RUN - UNTIL_EVICTED} & wait $!; say finished"
    )
    more = {"activeDeadlineSeconds": deadline} if deadline else {}
    return program.job(program.pod([program.container(script)], GRACE), {MAX_RUN: f"{RUN}s"}, **more)


def observe(bench: Bench) -> Observation:
    """Runs two Jobs at a time, one with the deadline that drainproof names, one with less than this must take."""
    warned = " ".join(bench.ask(job(None), WITH).warnings)
    named = SET.search(warned)
    assert named is not None, warned
    bound = int(named[1])
    with ThreadPoolExecutor() as pool:
        enough = pool.submit(_disrupted, bench, "deadline-enough", bound)
        short = pool.submit(_disrupted, bench, "deadline-short", LEAST - 1)
        passed, failed = enough.result(), short.result()
    return _passed(bench, passed, bound) + _failed(bench, failed)


def _disrupted(bench: Bench, name: str, deadline: int) -> Story:
    trial = bench.start(job(deadline), WITH, name)
    for number in range(1, len(BACKOFFS) + 1):
        trial.evict(trial.has_begun(number, THIRD))
    story = _end(trial)
    trial.end()
    return story


def _end(trial: Trial) -> Story:
    return trial.until(lambda story: story.condition("Complete") or story.condition("Failed"), "the Job's end", 180)


def _passed(bench: Bench, story: Story, bound: int) -> Observation:
    began, complete = bench.record.on_this_clock(story.started), story.condition("Complete")
    gaps = [
        new.created - old.main.ended
        for old, new in zip(story.pods, story.pods[1:], strict=False)
        if old.main and old.main.ended
    ]
    waits = [
        between(f"wait after disruption {number}", gap, wait - EARLY, wait + LATE, about=f"about {wait} s")
        for number, (gap, wait) in enumerate(zip(gaps, BACKOFFS, strict=False), 1)
    ]
    return Observation(
        (lane.run(f"activeDeadlineSeconds {bound}, the bound", story, began),),
        (
            equal("waits between a Pod's end and the next Pod", len(waits), len(BACKOFFS)),
            *waits,
            equal(f"with activeDeadlineSeconds {bound}, as drainproof asks, the Job is", _ending(story), "Complete"),
            equal("failed", story.count("failed"), 0),
        ),
        (
            *(Figure(f"wait after disruption {number}", gap) for number, gap in enumerate(gaps, 1)),
            *([Figure("all of the Job", complete.at - began)] if complete else []),
            Figure("the bound of active-deadline", bound),
            Figure("back-off and runs alone", LEAST),
        ),
    )


def _failed(bench: Bench, story: Story) -> Observation:
    began = bench.record.on_this_clock(story.started)
    text = f"with activeDeadlineSeconds {LEAST - 1}, a second less than back-off and runs, the Job is"
    return Observation(
        (lane.run(f"activeDeadlineSeconds {LEAST - 1}", story, began),),
        (equal(text, _ending(story), "Failed: DeadlineExceeded"),),
    )


def _ending(story: Story) -> str:
    failed = story.condition("Failed")
    return f"Failed: {failed.reason}" if failed else "Complete"


EXPERIMENT: Final = described(10, __doc__, observe=observe, manifest=job(None))
