"""Karpenter deletes by force.

The Pod of a Job asks for a grace period of 300 s on a NodePool whose terminationGracePeriod is 30 s, and the node is
taken away: its NodeClaim is deleted, as it is when a node expires. This is done where drainproof does not look, without
a podFailurePolicy and with the one that guides recommend, and where drainproof looks, with its
[stamp](rules/disruption-stamp.md). For comparison, the node is taken from a Pod with a grace period of 5 s.

**Expected.** Karpenter evicts the Pod with 5 s. The one with 300 s it deletes, and gives it what is left of its 30 s.
Such a deletion sets no DisruptionTarget, so the Pod counts as failed, with a policy as without one. With the stamp the
Pod carries DisruptionTarget with the reason DeletionByKarpenter before it is deleted, and does not count.

**What it means.** A podFailurePolicy alone does not help against a node that has to be gone in time; the stamp does.
The Pod still gets 30 s at most, of 300: set a grace period below the limit of the NodePool.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from tests.karpenter import experiments, subject
from tests.karpenter.experiments import Forced
from tests.lab import karpenter
from tests.lab.bench import WITH, WITHOUT, Bench
from tests.lab.experiment import Claim, Figure, Observation, between, described, equal
from tests.lab.experiments.success import IGNORE

LIMIT: Final = 30
GRACE: Final = 300
SHORT: Final = 5
BY_HAND: Final = {"podFailurePolicy": {"rules": [IGNORE]}, "podReplacementPolicy": "Failed"}
JOB: Final = subject.job("forced", grace=GRACE)


def observe(bench: Bench) -> Observation:
    """Takes the node from four Pods at once."""
    with ThreadPoolExecutor() as pool:
        runs = (
            pool.submit(_deleted, bench, "Without drainproof", WITHOUT, "forced", None),
            pool.submit(_deleted, bench, "With a policy, without the stamp", WITHOUT, "forced-policy", None, **BY_HAND),
            pool.submit(_deleted, bench, "With drainproof and its stamp", WITH, "forced-stamp", "DeletionByKarpenter"),
            pool.submit(_evicted, bench),
        )
        first, second, third, fourth = (run.result() for run in runs)
        return first + second + third + fourth


def _deleted(bench: Bench, title: str, namespace: str, name: str, disrupted: str | None, **spec: Any) -> Observation:
    seen = experiments.forced(bench.setting(namespace), name, limit=LIMIT, grace=GRACE, **spec)
    return (
        shown(bench, title, namespace, name, seen)
        + Observation(claims=at_once(title, seen, LIMIT))
        + counted(title, seen, disrupted)
    )


def _evicted(bench: Bench) -> Observation:
    title = f"For comparison, a grace period of {SHORT} s"
    seen = experiments.forced(bench.setting(WITHOUT), "short-grace", limit=LIMIT, grace=SHORT)
    return shown(bench, title, WITHOUT, "short-grace", seen) + Observation(
        claims=(
            equal(f"{title}: Karpenter's request is", _request(seen), "CREATE pods/eviction by Karpenter"),
            equal(f"{title}: DisruptionTarget", seen.disrupted, "EvictionByEvictionAPI"),
        )
    )


def shown(bench: Bench, title: str, namespace: str, name: str, seen: Forced, protected: float = 0) -> Observation:
    """The picture, in which 0 is when the Pod is told to go."""
    told = karpenter.story(bench.record, namespace, name)
    zero = told.pods[0].asked or 0
    return Observation((karpenter.run(bench.record, title, told, zero, [karpenter.asked(seen)], protected),))


def at_once(title: str, seen: Forced, limit: int) -> tuple[Claim, ...]:
    """That Karpenter deleted a Pod as soon as its node had to go, with what was left of the limit."""
    left = seen.grace
    return (
        equal(f"{title}: Karpenter's request is", _request(seen), "DELETE pods by Karpenter"),
        between(f"{title}: it comes after the deletion of the node", seen.after, 0, limit / 2, about="at once"),
        between(
            f"{title}: the time until then and the grace that the Pod gets",
            None if left is None else seen.after + left,
            limit - 3,  # both ends are whole seconds to Karpenter, and its request takes a while
            limit + 2,
            about=f"the {limit} s of the NodePool",
        ),
    )


def counted(title: str, seen: Forced, disrupted: str | None) -> Observation:
    """Whether the Pod counts: only where nothing has marked it as disrupted."""
    return Observation(
        claims=(
            equal(f"{title}: DisruptionTarget", seen.disrupted or "none", disrupted or "none"),
            equal(f"{title}: failed", seen.failed, 0 if disrupted else 1),
        ),
        figures=(Figure(f"{title}: grace", seen.grace or 0),),
    )


def _request(seen: Forced) -> str:
    return f"{seen.asked} by {karpenter.who(seen.user)}"


EXPERIMENT: Final = described(7, __doc__, observe=observe, manifest=JOB)
