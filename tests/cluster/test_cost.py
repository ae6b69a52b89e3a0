"""What the guard's configuration costs everybody else: reports of kubelets side by side, with it and without."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import deployment, jobpods, responder
from tests.cluster.controlplane import ControlPlane
from tests.cluster.jobpods import condition, pod
from tests.cluster.responder import Responder
from tests.cluster.test_calls import REQUESTS, counted, listed
from webhook.controller.api import Api, Thing, connect

NAMESPACE: Final = "costs"
GUARD: Final = "completions.guard.drainproof.dev"
PODS: Final = 50
BLOCK: Final = 100
PAIRS: Final = 10  # of blocks: 1,000 reports with the configuration, and 1,000 without
EVALUATED: Final = "apiserver_admission_match_condition_evaluation_seconds"


def configuration(there: Responder) -> dict[str, Any]:
    """The shipped configuration with only the guard in it."""
    mutating = deployment.configurations(there.endpoint)[0]
    mutating["webhooks"] = [webhook for webhook in mutating["webhooks"] if webhook["name"] == GUARD]
    return mutating


def report(number: int) -> dict[str, Any]:
    """What a kubelet says of a guarded Pod of a Job: most run on, some end undisturbed, some fail, some are to stop."""
    ready = {"type": "Ready", "status": "True" if number % 2 else "False"}
    status = {"phase": "Running", "message": f"report {number}", "conditions": [ready]}
    special: dict[int, dict[str, Any]] = {
        7: {"phase": "Succeeded"},
        8: {"phase": "Failed", "conditions": [condition("TerminationByKubelet")]},
        9: {"conditions": [ready, condition("EvictionByEvictionAPI")]},
    }
    return {"status": {**status, **special.get(number % 10, {})}}


@dataclass
class Bench:
    """Pods, and how long each report of them took, by whether the configuration was there."""

    plane: ControlPlane
    api: Api
    there: Responder
    seconds: dict[bool, list[float]] = field(default_factory=lambda: {True: [], False: []})
    sent: int = 0

    def block(self, guarded: bool) -> None:
        """Sends 100 reports, one after the other on one connection."""
        for _ in range(BLOCK):
            place = f"/api/v1/namespaces/{NAMESPACE}/pods/pod-{self.sent % PODS}"
            body = report(self.sent)
            begun = time.perf_counter()
            self.api.merge(Thing(place, "status"), body)
            self.seconds[guarded].append(time.perf_counter() - begun)
            self.sent += 1

    def would_call(self, plane: ControlPlane) -> bool:
        """Whether a report that is for the guard reaches it: a dry run."""
        before = len(self.there.heard)
        status = {"phase": "Succeeded", "conditions": [condition("TerminationByKubelet")]}
        place = Thing(f"/api/v1/namespaces/{NAMESPACE}/pods/canary", "status")
        self.api._call("PATCH", "patch", place, {"status": status}, "merge", {"dryRun": "All"})
        del plane
        return len(self.there.heard) > before

    @contextmanager
    def registered(self) -> Iterator[None]:
        """The configuration in force; on leaving it no longer is."""
        with deployment.registered(self.plane, [configuration(self.there)], self.would_call):
            yield
        end = time.monotonic() + 30
        while self.would_call(self.plane):
            assert time.monotonic() < end

    def told(self) -> str:
        """The times side by side."""
        with_it, without = (statistics.median(self.seconds[guarded]) for guarded in (True, False))
        totals = [sum(self.seconds[guarded]) for guarded in (True, False)]
        return (
            f"{len(self.seconds[True])} reports with the guard's configuration and as many without: "
            f"{totals[0]:.2f} s and {totals[1]:.2f} s, ratio {totals[0] / totals[1]:.3f}; "
            f"medians {with_it * 1000:.2f} ms and {without * 1000:.2f} ms, ratio {with_it / without:.3f}"
        )


@pytest.fixture
def bench(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Bench]:
    jobpods.namespace(control_plane, NAMESPACE)
    owner = jobpods.owner(control_plane, NAMESPACE)
    names = ["canary", *(f"pod-{number}" for number in range(PODS))]
    control_plane.kubectl("create", "-f", "-", input=listed([pod(NAMESPACE, name, owner) for name in names]))
    with responder.responding(tmp_path) as there:
        yield Bench(control_plane, connect(control_plane.kubeconfig), there)
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def test_1000_ordinary_reports_cause_no_call_and_their_times_are_told(
    bench: Bench, tell: Callable[[str], None]
) -> None:
    """The times are not judged: on a machine that does other things too, they are what they are."""
    before = state(bench.plane)
    for pair in range(PAIRS):
        for guarded in (pair % 2 == 0, pair % 2 == 1):  # each comes second as often: the machine is warmer then
            with bench.registered() if guarded else nullcontext():
                bench.block(guarded)
    calls, evaluations, seconds = (now - then for now, then in zip(state(bench.plane), before, strict=True))
    tell(f"{bench.told()}; conditions evaluated {evaluations:.0f} times, {seconds / evaluations * 1e6:.0f} µs each")
    assert [len(times) for times in bench.seconds.values()] == [PAIRS * BLOCK] * 2
    assert set(bench.there.names()) == {"canary"}
    assert calls == len(bench.there.heard)
    assert evaluations >= PAIRS * BLOCK  # it was there, and looked at each


def state(plane: ControlPlane) -> tuple[float, ...]:
    """Calls, evaluations of conditions and the seconds these took, as the API server has counted them of the guard."""
    return tuple(counted(plane, metric, GUARD) for metric in (REQUESTS, f"{EVALUATED}_count", f"{EVALUATED}_sum"))
