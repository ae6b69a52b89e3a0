"""The hook and the task share one grace period.

A Job whose program needs 30 s for its task after SIGTERM has a preStop hook of 5 s and a grace period of 20 s. Its Pod
is deleted where drainproof does not look. Then the same Job is asked for where it does.

**Expected.** The hook runs first and takes 5 s of the 20. SIGTERM comes after it, and SIGKILL (exit code 137) about
15 s later, in the middle of the task. The rule [grace-budget](rules/grace-budget.md) refuses this Job.

**What it means.** A grace period has to be longer than hook and task together. Declare what the task takes in
`drainproof.dev/max-task-duration`: a Job that cannot keep to it is refused, with the number to write.
"""

from typing import Final

from tests.lab import lane, program
from tests.lab.bench import WITH, WITHOUT, Bench
from tests.lab.experiment import Figure, Observation, between, contains, described, equal
from tests.lab.program import MAX_TASK

GRACE: Final = 20
HOOK: Final = 5
TASK: Final = 30
LATE: Final = 5  # seconds that a busy machine may take on top

JOB: Final = program.job(
    program.pod(
        [
            program.container(
                f"trap 'say SIGTERM; for i in $(seq {TASK}); do sleep 1; say works; done; exit 0' TERM; "
                "say begins; sleep 600 & wait $!",
                lifecycle=program.pre_stop(HOOK),
            )
        ],
        GRACE,
    ),
    {MAX_TASK: f"{TASK}s"},
    backoffLimit=0,
)


def observe(bench: Bench) -> Observation:
    """Deletes the Pod where drainproof does not look, and asks for the Job where it does."""
    trial = bench.start(JOB, WITHOUT, "grace")
    trial.delete(trial.has_begun())
    pod = trial.has_ended()
    story = trial.end()
    main, asked = pod.main, pod.asked or 0
    assert main is not None
    term, killed = main.term or 0, main.killed
    refused = bench.ask(JOB, WITH).error.partition("denied the request: ")[2]
    after = killed - term if killed else None
    return Observation(
        (lane.run("Without drainproof", story, asked),),
        (
            between("SIGTERM after the deletion", term - asked, HOOK - 0.5, HOOK + LATE, about="about 5 s"),
            between("SIGKILL after SIGTERM", after, GRACE - HOOK - 1, GRACE - HOOK + LATE, about="about 15 s"),
            between(
                "SIGKILL after the deletion",
                killed - asked if killed else None,
                GRACE - 0.5,
                GRACE + LATE,
                about="about 20 s",
            ),
            equal("exit code", main.code, 137),
            contains("the same Job with drainproof is refused", refused, "(grace-budget)"),
        ),
        (
            Figure("SIGTERM after the deletion", term - asked),
            Figure("the program's last sign of life after the deletion", main.words[-1].at - asked),
            Figure("SIGKILL after the deletion", (killed or 0) - asked),
        ),
    )


EXPERIMENT: Final = described(1, __doc__, observe=observe, manifest=JOB)
