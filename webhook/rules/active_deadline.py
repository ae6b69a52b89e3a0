"""activeDeadlineSeconds ends a Job that never ends by itself, and leaves room for the runs that disruptions cost.

Under a podFailurePolicy that ignores disruptions, a Pod which the kubelet keeps evicting for its own fault, say for
using more memory than its node has, is replaced without end: only a deadline stops that. A deadline that is too
short, on the other hand, fails a healthy Job which was merely drained, for its clock goes on through every new
start, every stop and the Job controller's back-off of 10, 20, 40 … 600 s.

For `disruptions` of them the lower bound is `(startup + run) × (⌈completions ÷ parallelism⌉ + disruptions) + stop ×
disruptions + back-off`: one disruption costs one more run, wherever it hits. Run is what the author declares in
`drainproof.dev/max-run-duration`; stop is the declared preStop and task time where every container declares one, else
the grace period.

**What the fix does.** Off by default. With `fix: true` a Job that declares its run and has no deadline gets the
lower bound.

**Limits.** Without a declared run only the missing deadline, and one that not even a single stop fits into, are
found. The back-off is that of Pods that fail one after another; several Pods lost in one drain count as several
disruptions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from webhook.core import duration, failurepolicy
from webhook.core.declaration import RUN, declared
from webhook.core.failurepolicy import Plan
from webhook.core.grace import needs
from webhook.core.option import Duration
from webhook.core.patch import Put
from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.workload import BATCH, Workload, whole

FIELD: Final = "activeDeadlineSeconds"
FIRST_BACKOFF: Final = (
    10  # seconds (Kubernetes 1.37.2 pkg/controller/job/job_controller.go DefaultJobPodFailureBackOff)
)
LONGEST_BACKOFF: Final = 600  # seconds (MaxJobPodFailureBackOff)


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator can set."""

    disruptions: int = field(default=3, metadata={"says": "how many disruptions a deadline has to leave room for"})
    startup: Duration = field(
        default=Duration(600 * duration.SECOND), metadata={"says": "what each run takes until its program starts"}
    )


@dataclass(frozen=True, slots=True)
class Bound:
    """The shortest deadline that leaves room for some disruptions; all in seconds."""

    disruptions: int
    startup: int
    run: int
    waves: int
    stop: int

    @property
    def backoff(self) -> int:
        """What the Job controller waits in all (Kubernetes 1.37.2 pkg/controller/job/backoff_utils.go)."""
        return sum(min(FIRST_BACKOFF * 2**k, LONGEST_BACKOFF) for k in range(self.disruptions))

    @property
    def seconds(self) -> int:
        """The bound."""
        runs = (self.startup + self.run) * (
            self.waves + self.disruptions
        )  # a disruption costs one run, wherever it hits
        return runs + self.stop * self.disruptions + self.backoff

    def __str__(self) -> str:
        return (
            f"{self.waves + self.disruptions} x (start {self.startup}s + run {self.run}s) + "
            f"{self.disruptions} x stop {self.stop}s + back-off {self.backoff}s"
        )


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds Jobs without a deadline that need one, and deadlines that are too short."""
    path, deadline = workload.at_job(FIELD), workload.job.get(FIELD)
    run = declared(workload, RUN)
    if run and run.length is None:
        yield Finding(run.path, run.complaint)
    if deadline is not None and workload.pod.get(FIELD) is not None:
        yield Finding(
            workload.at_pod(FIELD),
            "the Job has one too: two clocks, and no DisruptionTarget from this one; keep the Job's",
        )
    bound = _bound(workload, options, run.length) if run and run.length is not None else None
    is_rerun = failurepolicy.plan(workload, context) is Plan.DECIDED and _ignores(workload)
    if deadline is None and is_rerun:
        yield _missing(workload, bound)
    elif whole(deadline) and (is_rerun or not failurepolicy.zero_backoff(workload)):
        text = _too_short(workload, deadline, bound)
        if text:
            yield Finding(path, f"{deadline} {text}")


def _ignores(workload: Workload) -> bool:
    rules = failurepolicy.rules_of(workload)
    index = failurepolicy.decision(rules)
    return index is not None and rules[index]["action"] == "Ignore"


def _missing(workload: Workload, bound: Bound | None) -> Finding:
    path = workload.at_job(FIELD)
    text = "it is not set, so a Pod that is evicted for its own fault, such as too much memory, is made anew for ever"
    if bound is None:
        return Finding(path, f"{text}; set a deadline")
    return Finding(path, f"{text}; set at least {bound.seconds}", (Put(path, bound.seconds),))


def _too_short(workload: Workload, deadline: int, bound: Bound | None) -> str:
    """What is wrong with a deadline; empty where nothing is."""
    grace, run = workload.grace or 0, bound.run if bound else 0
    if deadline <= grace + run:
        what = f"the declared run of {run}s and a grace period of {grace}s" if run else f"a grace period of {grace}s"
        return f"leaves no room for {what}, so one disruption fails the Job; set more than {grace + run}"
    if bound and deadline < bound.seconds:
        return (
            f"is too short for {bound.disruptions} disruptions: {bound} = {bound.seconds}; set at least {bound.seconds}"
        )
    return ""


def _bound(workload: Workload, options: Options, run: int) -> Bound:
    completions, parallelism = workload.job.get("completions"), workload.job.get("parallelism")
    together = parallelism if whole(parallelism) and parallelism > 0 else 1
    waves = -(-completions // together) if whole(completions) and completions > 0 else 1
    return Bound(options.disruptions, _seconds(options.startup), _seconds(run), waves, _stop(workload))


def _stop(workload: Workload) -> int:
    """How long a Pod takes to stop: its grace period, unless every container declares to need less.

    A native sidecar stops after the others, so that its Pod may use all of the grace period.
    """
    grace = workload.grace if workload.grace is not None else 0
    containers = needs(workload, 0)
    if workload.sidecars or not all(need.is_known for need in containers):
        return grace
    longest = max((need.total for need in containers), default=0)
    return grace if longest >= grace * duration.SECOND else _seconds(int(longest))


def _seconds(nanoseconds: int) -> int:
    return -(-nanoseconds // duration.SECOND)


RULE: Final = Rule("active-deadline", check, Options, Level.WARN, fix=False, kinds=BATCH)
