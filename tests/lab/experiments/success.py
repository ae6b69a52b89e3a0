"""A program that exits 0 when it is stopped.

Where drainproof does not look, a Job has the podFailurePolicy and podReplacementPolicy that guides recommend, written
by hand. On SIGTERM its program exits 0 at once, as many frameworks do. Its Pod is evicted.

**Expected.** The kubelet reports Succeeded, the Job controller does not even look at the policy, and the Job is
Complete with its work undone: the trap. drainproof's controller finds such Jobs, and says so by an Event.

**What it means.** A policy alone makes such a program worse: without one, its Pod would have counted as failed and been
replaced. Exit with another code than 0 when work is left; `drainproof probe` shows what a program does.
"""

from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITHOUT, Bench, Trial
from tests.lab.experiment import Observation, described, equal
from tests.lab.experiments import watcher
from tests.lab.program import FINISHED

WORK: Final = 15
POD: Final = program.pod([program.container(program.works(WORK, "exit 0"))], 30)
IGNORE: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
JOB: Final = program.job(POD, podFailurePolicy={"rules": [IGNORE]}, podReplacementPolicy="Failed")


def evicted(bench: Bench, name: str) -> Trial:
    """A Job whose Pod was evicted, and which is Complete upon that."""
    trial = bench.start(JOB, WITHOUT, name)
    trial.evict(trial.has_begun())
    trial.has_become("Complete")
    return trial


def observe(bench: Bench) -> Observation:
    """Evicts the Pod, waits until the Job is Complete, and for what the controller says of it."""
    trial = evicted(bench, "trapped")
    story = trial.story
    found = watcher.claims(trial)
    trial.end()
    pod = story.pods[0]
    return Observation(
        (lane.run("With a policy, without a guard", story, pod.asked or 0),),
        (
            equal("the program has finished its work", pod.said(FINISHED) is not None, False),
            equal("the Pod is", pod.phase, "Succeeded"),
            equal("the Job is Complete all the same, with Pods", len(story.pods), 1),
            *found,
        ),
    )


EXPERIMENT: Final = described(4, __doc__, observe=observe, manifest=JOB)
