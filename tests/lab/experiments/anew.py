"""A duration starts anew with each Pod, a deadline does not.

A Job has activeDeadlineSeconds 90, and its Pods do-not-disrupt `10s`. As soon as its first Pod runs, its node is to go
(the NodeClaim is deleted), and so is the node of the second one. This is done without drainproof and with it. In the
picture 0 is the start of the Job.

**Expected.** Each Pod is protected for 10 s of its own run, and then evicted. The deadline counts from the start of the
Job, whichever Pod runs: at 90 s the Job fails with DeadlineExceeded, and the third Pod goes with it. The evictions
count as failed only without drainproof.

**What it means.** Do-not-disrupt says how long a node may be held by one run, activeDeadlineSeconds how long all runs
together may take, back-off included. One cannot do the work of the other.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.karpenter import experiments, subject
from tests.lab import karpenter
from tests.lab.bench import WITH, WITHOUT, Bench
from tests.lab.experiment import Claim, Figure, Observation, between, described, equal

PROTECTED: Final = 10
DEADLINE: Final = 90
LATE: Final = 15
JOB: Final = subject.job("anew", f"{PROTECTED}s", activeDeadlineSeconds=DEADLINE)


def observe(bench: Bench) -> Observation:
    """Takes two nodes from each of two Jobs, and waits for their deadline."""
    with ThreadPoolExecutor() as pool:
        without = pool.submit(_observed, bench, "Without drainproof", WITHOUT, "anew")
        with_policy = pool.submit(_observed, bench, "With drainproof", WITH, "anew-with")
        return without.result() + with_policy.result()


def _observed(bench: Bench, title: str, namespace: str, name: str) -> Observation:
    seen = experiments.anew(bench.setting(namespace), name, f"{PROTECTED}s", deadline=DEADLINE)
    told = karpenter.story(bench.record, namespace, name)
    zero = bench.record.on_this_clock(told.started)
    return Observation(
        (karpenter.run(bench.record, title, told, zero, ["evicted"] * len(seen.held), PROTECTED),),
        (
            *(
                between(
                    f"{title}: Pod {number} is told to go after a run of",
                    held,
                    PROTECTED - 2,  # the Pod's clock has whole seconds, and it is told later that it runs
                    PROTECTED + 2 * LATE,
                    about=f"{PROTECTED} s at least",
                )
                for number, held in enumerate(seen.held, 1)
            ),
            equal(f"{title}: by", " and ".join(map(karpenter.who, seen.asked)), "Karpenter and Karpenter"),
            equal(f"{title}: the Job fails with", seen.reason, "DeadlineExceeded"),
            between(f"{title}: after", seen.ended, DEADLINE, DEADLINE + LATE, about=f"{DEADLINE} s from its start"),
            _count(title, seen.failed, has_policy=namespace == WITH),
        ),
        (*(Figure(f"{title}: run of Pod {number}", held) for number, held in enumerate(seen.held, 1)),),
    )


def _count(title: str, failed: int, *, has_policy: bool) -> Claim:
    """The Pod that the deadline ends counts in either case, if there is one at that moment."""
    if has_policy:
        return Claim(f"{title}: failed", "at most 1, the Pod that the deadline ends", str(failed), failed <= 1)
    return Claim(f"{title}: failed", "at least 2, the Pods that were evicted", str(failed), failed >= 2)


EXPERIMENT: Final = described(12, __doc__, observe=observe, manifest=JOB)
