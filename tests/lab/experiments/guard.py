"""The same program, guarded.

The program of experiment 4 in a Job without any policy, where drainproof looks: it injects the policy, and with it the
mark of the [completion guard](rules/completion-guard.md). The program of a second Job has really finished when it is
stopped, and writes `completed` to /dev/termination-log.

**Expected.** The success that the kubelet reports for the stopped Pod is stored as Failed, with the reason
StoppedBeforeCompletion. The policy ignores it, a new Pod runs to its end, and only then is the Job Complete. The Pod
that said `completed` stays Succeeded.

**What it means.** Work may be done twice but is never lost, and a program that did finish can say so.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITH, Bench
from tests.lab.experiment import Observation, contains, described, equal
from tests.lab.experiments import success
from tests.lab.program import FINISHED

JOB: Final = program.job(success.POD)
SAYS_SO: Final = program.works(success.WORK, "echo -n completed > /dev/termination-log; exit 0")
COMPLETED: Final = program.job(program.pod([program.container(SAYS_SO)], 30))


def observe(bench: Bench) -> Observation:
    """Evicts the Pods of both Jobs; beside them, for comparison, that of experiment 4."""
    with ThreadPoolExecutor() as pool:
        beside = pool.submit(success.evicted, bench, "trapped-beside")
        silent, telling = pool.submit(_silent, bench), pool.submit(_telling, bench)
        unguarded = beside.result().end()
        shown = lane.run("With a policy, without a guard", unguarded, unguarded.pods[0].asked or 0)
        return Observation((shown,)) + silent.result() + telling.result()


def _silent(bench: Bench) -> Observation:
    trial = bench.start(JOB, WITH, "guarded")
    trial.evict(trial.has_begun())
    story = trial.has_become("Complete")
    trial.end()
    first, last = story.pods[0], story.pods[-1]
    return Observation(
        (lane.run("Guarded", story, first.asked or 0),),
        (
            equal("the stopped Pod is", first.state, "Failed (StoppedBeforeCompletion)"),
            contains("with the message", first.message, "(completion-guard)"),
            equal("Pods", len(story.pods), 2),
            equal("the last one has finished its work", last.said(FINISHED) is not None, True),
            equal("failed", story.count("failed"), 0),
        ),
    )


def _telling(bench: Bench) -> Observation:
    trial = bench.start(COMPLETED, WITH, "says-so")
    trial.evict(trial.has_begun())
    story = trial.has_become("Complete")
    trial.end()
    first = story.pods[0]
    return Observation(
        (lane.run("Guarded, and the program says that it has completed", story, first.asked or 0),),
        (
            equal("with the termination message completed, the stopped Pod is", first.state, "Succeeded"),
            equal("and the Job Complete with Pods", len(story.pods), 1),
        ),
    )


EXPERIMENT: Final = described(5, __doc__, observe=observe, manifest=JOB)
