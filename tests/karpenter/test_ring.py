"""What Karpenter does to Pods of Jobs, with our webhook and without it: seen on the real one, all of it at once."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import pytest

from tests.karpenter import chart, drainproof, experiments
from tests.karpenter.experiments import Anew, Forced, Protection
from tests.karpenter.programs import BEFORE_DURATIONS, NEWEST
from tests.karpenter.ring import USER, Ring
from tests.karpenter.subject import Setting

# The first test waits for every experiment that it needs.
pytestmark = pytest.mark.timeout(900)

WITH: Final = "with"
WITHOUT: Final = "without"
LIMIT: Final = 30
DEADLINE: Final = 90
POLICY: Final[Mapping[str, Any]] = {
    "rules": {"do-not-disrupt": {"default": "20s"}},
    "platform": {"nodepools": {"forced-with": f"{LIMIT}s", "defied-with": f"{LIMIT}s"}},
}
Seen = Callable[[str], Any]


@pytest.fixture(scope="module")
def settings(
    rings: dict[str, Ring], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Setting]]:
    """Where experiments run, by the version of Karpenter and WITH or WITHOUT our webhook."""
    with ExitStack() as stack:
        for version, ring in rings.items():
            for namespace in (WITH, WITHOUT):
                ring.plane.kubectl("create", "namespace", namespace)
            policy = {**POLICY, "karpenter": {"version": version}}
            folder = tmp_path_factory.mktemp("drainproof")
            stack.enter_context(drainproof.working(ring.plane, folder, WITH, policy))
        yield {(version, arm): Setting(ring, arm) for version, ring in rings.items() for arm in (WITH, WITHOUT)}


@pytest.fixture(scope="module")
def seen(settings: dict[tuple[str, str], Setting]) -> Iterator[Seen]:
    """What comes of each experiment, by its name: all of them run at once."""
    with ThreadPoolExecutor(16) as pool:
        started = _start(pool, settings)
        yield lambda name: started[name].result()


def _start(pool: ThreadPoolExecutor, settings: Mapping[tuple[str, str], Setting]) -> dict[str, Future[Any]]:
    started: dict[str, Future[Any]] = {}

    def start(name: str, run: Callable[..., Any], *words: Any, version: str = NEWEST, **more: Any) -> None:
        arm = WITH if name.endswith("-with") else WITHOUT
        started[name] = pool.submit(run, settings[version, arm], name, *words, **more)

    start("day", experiments.protection, "1d")
    start("held", experiments.protection, "true", enough=started["day"].done)
    start("short", experiments.protection, "20s")
    start("true-with", experiments.protection, "true")
    start("old-hours-with", experiments.protection, "4h", version=BEFORE_DURATIONS)
    done = started["old-hours-with"].done
    start("old-true-with", experiments.protection, "true", enough=done, version=BEFORE_DURATIONS)
    for arm in ("", "-with"):
        start(f"forced{arm}", experiments.forced, limit=LIMIT, grace=300)
        start(f"defied{arm}", experiments.forced, "4h", limit=LIMIT, grace=300)
        start(f"anew{arm}", experiments.anew, "10s", deadline=DEADLINE)
    start("waited", experiments.forced, "true", limit=LIMIT, grace=5)
    start("drained", experiments.forced, limit=LIMIT, grace=5)
    return started


def test_karpenter_makes_a_node_for_a_pod_and_has_every_right_that_it_asks_for(
    seen: Seen, rings: dict[str, Ring]
) -> None:
    assert [each.what for each in seen("drained").moments if each.who == USER and "kwok-" in each.what]
    for ring in rings.values():
        assert "forbidden" not in (ring.logs / "karpenter.log").read_text(encoding="utf-8")


def test_a_pod_protected_by_true_holds_its_node_while_another_is_replaced(seen: Seen) -> None:
    held, other = seen("held"), seen("day")
    assert (held.stored, held.replaced, held.failed) == ("true", None, 0)
    assert held.watched > other.replaced


def test_a_duration_protects_until_karpenter_says_that_it_has_elapsed(seen: Seen) -> None:
    short: Protection = seen("short")
    assert short.elapsed is not None
    assert short.replaced is not None
    assert short.elapsed + 1 >= 20  # the Pod's clock has whole seconds
    assert short.elapsed < short.replaced
    assert short.evicted_by == USER
    assert [*short.machines] == ["c-8x-amd64-linux", "c-1x-amd64-linux"]


def test_a_day_written_as_1d_protects_nothing(seen: Seen) -> None:
    day: Protection = seen("day")
    assert day.replaced is not None
    assert day.elapsed is None
    assert day.evicted_by == USER


def test_an_eviction_counts_toward_the_back_off_limit_without_our_webhook(seen: Seen) -> None:
    assert seen("short").failed == seen("day").failed == 1


def test_what_our_webhook_makes_of_true_ends_and_the_eviction_does_not_count(seen: Seen) -> None:
    mended: Protection = seen("true-with")
    assert mended.stored == "20s"
    assert any("it becomes 20s" in warning for warning in mended.warnings)
    assert mended.elapsed is not None
    assert mended.replaced is not None
    assert mended.failed == 0


def test_a_duration_protects_nothing_from_karpenter_1_11_2(seen: Seen) -> None:
    hours: Protection = seen("old-hours-with")
    assert (hours.stored, hours.elapsed) == ("4h", None)
    assert hours.replaced is not None
    assert hours.evicted_by == USER
    assert any('"4h" protects nothing' in warning for warning in hours.warnings)


def test_true_is_left_for_karpenter_1_11_2_where_a_duration_would_take_the_protection_away(seen: Seen) -> None:
    held: Protection = seen("old-true-with")
    assert (held.stored, held.replaced) == ("true", None)
    assert held.watched > seen("old-hours-with").replaced


@pytest.mark.parametrize("name", ["forced", "forced-with", "defied", "defied-with"])
def test_a_pod_with_more_grace_than_its_node_pool_grants_is_deleted_at_once(seen: Seen, name: str) -> None:
    forced: Forced = seen(name)
    assert (forced.asked, forced.user) == ("DELETE pods", USER)
    assert forced.after < LIMIT / 2
    assert forced.grace is not None
    assert abs(LIMIT - forced.after - forced.grace) <= 2  # both ends are whole seconds to Karpenter
    assert forced.exit_code == 143


@pytest.mark.parametrize("name", ["forced", "forced-with", "defied", "defied-with"])
def test_such_a_deletion_is_no_disruption_to_the_job_and_counts(seen: Seen, name: str) -> None:
    forced: Forced = seen(name)
    assert (forced.disrupted, forced.failed) == (None, 1)


def test_an_ordinary_drain_by_karpenter_is_an_eviction_and_a_disruption(seen: Seen) -> None:
    drained: Forced = seen("drained")
    assert (drained.asked, drained.grace) == ("CREATE pods/eviction", None)
    assert (drained.user, drained.disrupted) == (USER, "EvictionByEvictionAPI")


def test_do_not_disrupt_holds_until_the_grace_period_would_no_longer_fit(seen: Seen) -> None:
    waited: Forced = seen("waited")
    assert (waited.asked, waited.disrupted) == ("DELETE pods", None)
    assert waited.after > LIMIT - 5 - 2
    # Not all of the 5 s is left: Karpenter looks at such a Pod again after 0.1, 0.2, 0.4 and so on up to 10 s
    # (v1.15.0 terminator/eviction.go evictionQueueMaxDelay), so that it may be late even for the limit, and grant 1 s.
    assert waited.grace is not None
    assert 1 <= waited.grace <= 5


def test_our_webhook_had_warned_of_both(seen: Seen) -> None:
    at_once = "300 is not below the 30s of NodePool"
    assert any(at_once in said and "platform-limits" in said for said in seen("forced-with").warnings)
    assert any(at_once in said and "do-not-disrupt" in said for said in seen("defied-with").warnings)


@pytest.mark.parametrize("name", ["anew", "anew-with"])
def test_a_duration_starts_anew_with_each_pod_and_the_deadline_of_the_job_does_not(seen: Seen, name: str) -> None:
    anew: Anew = seen(name)
    assert anew.stored == "10s"
    assert [*anew.asked] == [USER, USER]
    assert all(held > 10 - 1 for held in anew.held)  # the Pod's clock has whole seconds
    assert anew.reason == "DeadlineExceeded"
    assert DEADLINE <= anew.ended < DEADLINE + 15


def test_the_evictions_before_the_deadline_count_only_without_our_webhook(seen: Seen) -> None:
    # The Pod that the deadline ends counts in either case, if there was one at that moment.
    assert seen("anew").failed >= 2
    assert seen("anew-with").failed <= 1


def test_the_deployment_of_the_chart_says_the_version_in_a_label(rings: dict[str, Ring]) -> None:
    made = rings[NEWEST].plane.create(chart.deployment(NEWEST), "--dry-run=server")
    assert made["metadata"]["labels"]["app.kubernetes.io/version"] == NEWEST
