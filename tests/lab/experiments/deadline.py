"""activeDeadlineSeconds ends a Job, gently and for good.

A Job with activeDeadlineSeconds 20, into which drainproof has injected the policy, works longer than that. Its program
needs 3 s to stop.

**Expected.** 20 s after the Job's startTime its Pod gets SIGTERM, and then has its grace period. The Pod is deleted
plainly, without DisruptionTarget. Once it has ended the Job is Failed with the reason DeadlineExceeded, and is not run
again.

**What it means.** A deadline is an end and no interruption: neither backoffLimit nor a policy brings the Job back.
Leave room in it for the disruptions that you expect (experiment 10).
"""

from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITH, Bench
from tests.lab.experiment import Figure, Observation, between, described, equal

DEADLINE: Final = 20
TIDYING: Final = 3
SCRIPT: Final = program.works(600, f"sleep {TIDYING}; exit 143")
JOB: Final = program.job(program.pod([program.container(SCRIPT)], 15), activeDeadlineSeconds=DEADLINE)


def observe(bench: Bench) -> Observation:
    """Waits for the deadline of a Job that would work much longer."""
    trial = bench.start(JOB, WITH, "late")
    trial.has_begun()
    story = trial.has_become("Failed")
    trial.end()
    (pod,) = story.pods
    began = bench.record.on_this_clock(story.started)
    failed, main = story.condition("Failed"), pod.main
    assert failed is not None
    assert main is not None
    term, ended = main.term, main.ended
    after = term - began if term else None
    return Observation(
        (lane.run("activeDeadlineSeconds 20, counted from the Job's startTime", story, began),),
        (
            between("SIGTERM after startTime", after, DEADLINE, DEADLINE + 6, about="about 20 s"),
            between("exit after SIGTERM", ended - term if ended and term else None, TIDYING - 0.1, TIDYING + 5),
            equal("the Job has failed because of", failed.reason, "DeadlineExceeded"),
            equal("DisruptionTarget", pod.disruption, "none"),
            equal("Pods, the stopped one with them", len(story.pods), 1),
        ),
        (Figure("the Job is Failed after startTime", failed.at - began),),
    )


EXPERIMENT: Final = described(9, __doc__, observe=observe, manifest=JOB)
