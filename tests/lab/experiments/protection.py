"""do-not-disrupt: true, a duration, and what looks like one.

The Pod of a Job runs alone on a machine of eight processors and needs half of one, so that Karpenter would like to put
it on a smaller one. `karpenter.sh/do-not-disrupt` is `true`, `20s` or `1d`, where drainproof does not look, and `true`
where it does; for a Job without any known limit the policy here has 20 s. In the picture 0 is the start of the run.

**Expected.** `true` holds the node for as long as the Pod runs. `20s` holds it for 20 s at least; when Karpenter has
noticed that they are over it says so by an Event (DoNotDisruptGracePeriodElapsed), and it replaces the node. `1d` is no
duration to Go and protects nothing at all. drainproof warns of `1d`; it makes 20 s of `true`, and the eviction at their
end is not counted. Karpenter looks at all nodes in turn and makes sure before it acts, so that an eviction may come a
good while after protection has ended.

**What it means.** Write a Go duration that is longer than the run, such as `24h`. A Karpenter before v1.12 reads no
durations, and drainproof leaves `true` alone there: tests/karpenter/test_ring.py has v1.11.2 at work.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.karpenter import experiments, subject
from tests.karpenter.experiments import Protection
from tests.lab import karpenter
from tests.lab.bench import WITH, WITHOUT, Bench
from tests.lab.experiment import Claim, Figure, Observation, between, contains, described, equal
from tests.lab.node import PROTECTED

LARGE: Final = "c-8x-amd64-linux"
SMALL: Final = "c-1x-amd64-linux"
# Karpenter looks at all nodes every 10 s, and 15 s after it has found something once more before it acts, one thing at
# a time (v1.15.0 pkg/controllers/disruption controller.go pollingPeriod, consolidation.go commandValidationDelay).
LATE: Final = 240
JOB: Final = subject.job("short", f"{PROTECTED}s")


def observe(bench: Bench) -> Observation:
    """Lets four Pods run, and watches them until all but one are replaced."""
    setting = bench.setting(WITHOUT)
    with ThreadPoolExecutor() as pool:
        day = pool.submit(experiments.protection, setting, "day", "1d")
        short = pool.submit(experiments.protection, setting, "short", f"{PROTECTED}s")
        mended = pool.submit(experiments.protection, bench.setting(WITH), "mended", "true")
        others = (day, short, mended)
        held = pool.submit(experiments.protection, setting, "held", "true", lambda: all(one.done() for one in others))
        return (
            _held(bench, held.result(), max(one.result().watched for one in others))
            + _short(bench, short.result())
            + _day(bench, day.result())
            + _mended(bench, mended.result())
        )


def _held(bench: Bench, seen: Protection, others: float) -> Observation:
    return _shown(bench, '"true"', WITHOUT, "held", seen, karpenter.FOR_EVER) + Observation(
        claims=(
            equal('"true": the node is replaced', seen.replaced is not None, False),
            Claim(
                '"true": watched',
                f"for longer than any other node was held, {others:.0f} s",
                f"{seen.watched:.0f} s",
                seen.watched > others,
            ),
        )
    )


def _short(bench: Bench, seen: Protection) -> Observation:
    title = f'"{PROTECTED}s"'
    return _shown(bench, title, WITHOUT, "short", seen, seen.elapsed or 0) + Observation(
        claims=(
            *_elapses(title, seen),
            equal(f"{title}: machines", " and then ".join(seen.machines), f"{LARGE} and then {SMALL}"),
            equal(f"{title}: failed", seen.failed, 1),
        ),
        figures=(Figure(f"{title}: elapsed", seen.elapsed or 0), Figure(f"{title}: evicted", seen.replaced or 0)),
    )


def _day(bench: Bench, seen: Protection) -> Observation:
    document = subject.job("day", "1d")
    return _shown(bench, '"1d"', WITHOUT, "day", seen, 0) + Observation(
        claims=(
            equal('"1d": evicted by', karpenter.who(seen.evicted_by), "Karpenter"),
            equal('"1d": DoNotDisruptGracePeriodElapsed', seen.elapsed is not None, False),
            equal('"1d": failed', seen.failed, 1),
            contains(
                '"1d": where drainproof looks, it warns',
                karpenter.warning(bench.ask(document, WITH).warnings, "do-not-disrupt"),
                '"1d" protects nothing',
            ),
        ),
        figures=(Figure('"1d": evicted', seen.replaced or 0),),
    )


def _mended(bench: Bench, seen: Protection) -> Observation:
    title = '"true" with drainproof'
    return _shown(bench, title, WITH, "mended", seen, seen.elapsed or 0) + Observation(
        claims=(
            equal(f"{title}: stored as", seen.stored, f"{PROTECTED}s"),
            contains(
                f"{title}: it says so", karpenter.warning(seen.warnings, "do-not-disrupt"), f"it becomes {PROTECTED}s"
            ),
            *_elapses(title, seen),
            equal(f"{title}: failed", seen.failed, 0),
        ),
        figures=(Figure(f"{title}: evicted", seen.replaced or 0),),
    )


def _elapses(title: str, seen: Protection) -> tuple[Claim, ...]:
    least = PROTECTED - 2  # the Pod's clock has whole seconds, and it is told later that it runs
    return (
        between(
            f"{title}: DoNotDisruptGracePeriodElapsed", seen.elapsed, least, PROTECTED + LATE, about="20 s or later"
        ),
        between(f"{title}: evicted", seen.replaced, int(seen.elapsed or least), PROTECTED + LATE, about="after that"),
        equal(f"{title}: evicted by", karpenter.who(seen.evicted_by), "Karpenter"),
    )


def _shown(bench: Bench, title: str, namespace: str, name: str, seen: Protection, protected: float) -> Observation:
    """The picture, in which 0 is the beginning of the Pod's run."""
    told = karpenter.story(bench.record, namespace, name)
    ends = ["evicted"] if seen.evicted_by else []
    run = karpenter.run(bench.record, f"do-not-disrupt: {title}", told, told.pods[0].running or 0, ends, protected)
    return Observation((run,))


EXPERIMENT: Final = described(11, __doc__, observe=observe, manifest=JOB)
