"""kubectl delete pod is no disruption.

drainproof has injected the policy into a Job. Its Pod is deleted with `kubectl delete pod`, and its program exits 1.

**Expected.** A plain deletion sets no DisruptionTarget, so the policy does not match: failed 1. The Job goes on in a
new Pod for as long as backoffLimit lasts.

**What it means.** To move a Pod without having it counted, evict it: `kubectl drain` does, also for a single one with
`--pod-selector`.
"""

from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITH, Bench
from tests.lab.experiment import Observation, described, equal

JOB: Final = program.job(program.pod([program.container(program.works(15, "sleep 2; exit 1"))], 30))


def observe(bench: Bench) -> Observation:
    """Deletes the Pod of a Job into which drainproof injected the policy."""
    trial = bench.start(JOB, WITH, "deleted")
    trial.delete(trial.has_begun())
    trial.has_begun(2)
    story = trial.until(lambda story: story.count("failed"), "the Pod is counted")
    trial.end()
    pod = story.pods[0]
    return Observation(
        (lane.run("With drainproof", story, pod.asked or 0),),
        (
            equal("DisruptionTarget", pod.disruption, "none"),
            equal("exit code", pod.main.code if pod.main else None, 1),
            equal("failed", story.count("failed"), 1),
        ),
    )


EXPERIMENT: Final = described(6, __doc__, observe=observe, manifest=JOB)
