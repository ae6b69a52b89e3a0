"""OnFailure does not help against a drain.

The program of a Job with restartPolicy OnFailure first fails by itself; then its Pod is evicted. The Pod of the same
Job is evicted where drainproof looks.

**Expected.** After a failure of its own the program is started again in the same Pod. After the eviction it is not: the
Job controller makes a new Pod, and counts the old one as failed. With drainproof the Job gets restartPolicy Never and
a policy, and nothing counts as failed.

**What it means.** A restart in place mends a program, not a node that goes. Only a new Pod helps against that, and only
with Never can the Job controller tell the two apart.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITH, WITHOUT, Bench
from tests.lab.experiment import Observation, described, equal
from tests.lab.history import BEGINS, Pod

SCRIPT: Final = f"trap 'say fails; exit 1' USR1; {program.works(20, 'exit 143')}"
JOB: Final = program.job(program.pod([program.container(SCRIPT)], 30, restartPolicy="OnFailure"))


def observe(bench: Bench) -> Observation:
    """Lets a program fail by itself, then evicts its Pod; beside it, evicts one that drainproof has mended."""
    with ThreadPoolExecutor() as pool:
        kept, mended = pool.submit(_kept, bench), pool.submit(_mended, bench)
        return kept.result() + mended.result()


def _kept(bench: Bench) -> Observation:
    trial = bench.start(JOB, WITHOUT, "on-failure")
    trial.run(trial.has_begun(), "kill", "-USR1", "1")
    trial.until(lambda story: _starts(story.pods[0]) == 2, "the program is started again in its Pod")
    trial.evict(trial.story.pods[0])
    trial.has_ended()
    trial.has_begun(2)
    story = trial.until(lambda story: story.count("failed"), "the Pod is counted")
    trial.end()
    old = story.pods[0]
    return Observation(
        (lane.run("Without drainproof: restartPolicy OnFailure", story, old.asked or 0),),
        (
            equal("starts in the first Pod: after a failure of its own, not after the eviction", _starts(old), 2),
            equal("new Pods after the eviction", len(story.pods) - 1, 1),
            equal("failed", story.count("failed"), 1),
        ),
    )


def _mended(bench: Bench) -> Observation:
    trial = bench.start(JOB, WITH, "on-failure")
    trial.evict(trial.has_begun())
    trial.has_begun(2)
    story = trial.end()
    policy = story.seen[-1].object["spec"]["template"]["spec"]["restartPolicy"]
    return Observation(
        (lane.run("With drainproof: made Never", story, story.pods[0].asked or 0),),
        (
            equal("with drainproof: restartPolicy", policy, "Never"),
            equal("with drainproof: failed", story.count("failed"), 0),
        ),
    )


def _starts(pod: Pod) -> int:
    return sum(one.said(BEGINS) is not None for one in pod.containers)


EXPERIMENT: Final = described(13, __doc__, observe=observe, manifest=JOB)
