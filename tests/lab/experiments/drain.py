"""A drain without a policy.

The program of a Job needs 20 s to stop. Its Pod is evicted where drainproof does not look.

**Expected.** The Job controller counts the Pod as failed at the eviction, while it still runs, and makes another one
after its first back-off of 10 s. Until the old one has ended, both work on the same task.

**What it means.** Without a policy a drain uses up backoffLimit, and two Pods may write the same output at the same
time.
"""

from typing import Any, Final

from tests.lab import lane, program
from tests.lab.bench import WITHOUT, Bench
from tests.lab.experiment import Claim, Figure, Observation, between, described, equal
from tests.lab.history import Story

TIDYING: Final = 20
WORK: Final = 15
FIRST_BACKOFF: Final = 10  # 1.37.2 pkg/controller/job/job_controller.go DefaultJobPodFailureBackOff
LATE: Final = 6  # seconds that a busy machine may take on top
EARLY: Final = 1.1  # Kubernetes writes when something ended in whole seconds


def job(tidying: int) -> dict[str, Any]:
    """A Job that works for WORK seconds, and needs some to stop."""
    return program.job(program.pod([program.container(program.works(WORK, f"sleep {tidying}; exit 143"))], 60))


JOB: Final = job(TIDYING)


def after_backoff(text: str, seconds: float) -> Claim:
    """The claim that something came after the first back-off."""
    return between(text, seconds, FIRST_BACKOFF - EARLY, FIRST_BACKOFF + LATE, about="about 10 s")


def evicted(bench: Bench, name: str) -> Story:
    """Evicts the Pod where drainproof does not look; the story until the old Pod has ended beside the new one."""
    trial = bench.start(JOB, WITHOUT, name)
    trial.evict(trial.has_begun())
    trial.has_begun(2)
    trial.has_ended()
    story = trial.until(lambda story: story.count("failed"), "the Pod is counted")
    trial.end()
    return story


def observe(bench: Bench) -> Observation:
    """Evicts the Pod, and looks on until the old one has ended."""
    story = evicted(bench, "drained")
    old, new = story.pods[:2]
    asked, begun = old.asked or 0, new.said("begins") or 0
    overlap = (old.main.ended or 0) - begun if old.main else 0
    return Observation(
        (lane.run("Without drainproof", story, asked),),
        (
            after_backoff("the replacement is created after the eviction", new.created - asked),
            between("old and new program run side by side", overlap, 1, TIDYING, about="several seconds"),
            equal("failed", story.count("failed"), 1),
        ),
        (Figure("replacement after the eviction", new.created - asked), Figure("both at work", overlap)),
    )


EXPERIMENT: Final = described(2, __doc__, observe=observe, manifest=JOB)
