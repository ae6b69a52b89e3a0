"""What the last Karpenter that reads no durations does to Pods of Jobs that our webhook has looked at.

What the newest one does, with our webhook and without it, is in tests/lab.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.karpenter import drainproof, experiments
from tests.karpenter.experiments import Protection
from tests.karpenter.programs import BEFORE_DURATIONS
from tests.karpenter.ring import USER, Ring
from tests.karpenter.subject import Setting

# The first test waits for both experiments.
pytestmark = pytest.mark.timeout(600)

NAMESPACE: Final = "with"


@pytest.fixture(scope="module")
def setting(old_ring: Ring, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """Where our webhook works, and knows the version."""
    old_ring.plane.kubectl("create", "namespace", NAMESPACE)
    policy = {"karpenter": {"version": BEFORE_DURATIONS}}
    with drainproof.working(old_ring.plane, tmp_path_factory.mktemp("drainproof"), NAMESPACE, policy):
        yield Setting(old_ring, NAMESPACE)


@pytest.fixture(scope="module")
def seen(setting: Setting) -> dict[str, Protection]:
    """What comes of each value of do-not-disrupt, both at once."""
    with ThreadPoolExecutor() as pool:
        hours = pool.submit(experiments.protection, setting, "hours", "4h")
        held = pool.submit(experiments.protection, setting, "held", "true", hours.done)
        return {"4h": hours.result(), "true": held.result()}


def test_a_duration_protects_nothing_from_karpenter_1_11_2(seen: dict[str, Protection]) -> None:
    hours = seen["4h"]
    assert (hours.stored, hours.elapsed) == ("4h", None)
    assert hours.replaced is not None
    assert hours.evicted_by == USER
    assert [*hours.machines] == ["c-8x-amd64-linux", "c-1x-amd64-linux"]
    assert any('"4h" protects nothing' in warning for warning in hours.warnings)


def test_true_is_left_for_karpenter_1_11_2_where_a_duration_would_take_the_protection_away(
    seen: dict[str, Protection],
) -> None:
    held, hours = seen["true"], seen["4h"]
    assert (held.stored, held.replaced) == ("true", None)
    assert hours.replaced is not None
    assert held.watched > hours.replaced


@pytest.mark.usefixtures("seen")
def test_it_has_every_right_that_it_asks_for(old_ring: Ring) -> None:
    assert "forbidden" not in (old_ring.logs / "karpenter.log").read_text(encoding="utf-8")
