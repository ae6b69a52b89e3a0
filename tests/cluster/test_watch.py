"""The controller's watching against a real API server and Job controller, through restarts of everything.

Pods are bound, evicted and reported on as a kubelet would do it. No webhook is registered, so nothing is guarded.
"""

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import controlplane, watching
from tests.cluster.controlplane import ControlPlane
from tests.cluster.jobpods import condition
from tests.cluster.programs import Program
from tests.cluster.test_controller import waited
from tests.cluster.watching import Account, Kubelet, Line, Site, counts, facts, told
from webhook.core.undone import TRACKED


@pytest.fixture(scope="module")
def plane(found_programs: dict[str, Program], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """One of our own, for it is restarted, and whoever watches sees all Pods in it."""
    del found_programs
    with controlplane.running(tmp_path_factory.mktemp("watched")) as made:
        yield made


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with watching.site(plane, tmp_path) as made:
        yield made


def test_of_two_replicas_the_leader_says_once_what_counts_as_done_and_was_stopped(site: Site) -> None:
    leader = site.controller()
    leader.waited("leading")
    other = site.controller()
    kubelet = site.drained("drained")
    guarded = site.drained("guarded", annotations={"drainproof.dev/completion-guard": "on"})
    by_kubelet = site.job("by-kubelet")
    by_kubelet.ends(conditions=[condition("TerminationByKubelet")])
    for one in (kubelet, guarded, by_kubelet):
        waited("a complete Job", one.is_complete)
        waited("an Event", partial(site.events, one.job))
    site.seen()
    for job, guard, cause in (
        ("drained", "absent", "EvictionByEvictionAPI"),
        ("guarded", "missed", "EvictionByEvictionAPI"),
        ("by-kubelet", "absent", "TerminationByKubelet"),
    ):
        [event] = site.events(job)
        assert (event["type"], event["reason"], event["reportingComponent"]) == (
            "Warning",
            "CompletedUndone",
            "drainproof-controller",
        )
        assert f"was stopped ({cause}) and its containers exited 0" in event["message"]
        [line] = told([leader], job)
        assert (line["guard"], line["event"], line["text"]) == (guard, True, event["message"])
    assert told([other], "drained") == []
    assert (counts(leader), counts(leader, "missed"), counts(other)) == (2, 1, 0)
    described = site.plane.kubectl("describe", "job", "drained", "-n", site.namespace).stdout
    assert "CompletedUndone" in described
    for replica in (leader, other):
        assert replica.got("/readyz") == (200, "ok\n")
        assert not replica.lines("call to the API server failed", status=403)
        assert not [line for line in replica.lines() if "trace" in line]


def test_nothing_is_said_where_somebody_vouches_or_nobody_stopped_the_pod(site: Site) -> None:
    controller = site.controller()
    site.job("undisturbed").ends()
    for name, annotations in (
        ("trusted", {"drainproof.dev/exit-contract": "nonzero-when-stopped"}),
        ("exempt", {"drainproof.dev/ignore": "done by hand"}),
        ("exempt-from-one", {"drainproof.dev/ignore.completion-guard": "done by hand"}),
    ):
        waited("a complete Job", site.drained(name, annotations=annotations).is_complete)
    finished = site.job("finished")
    finished.is_evicted()
    finished.ends(word="completed")
    failed = site.job("failed")
    failed.is_evicted()
    failed.ends("Failed")
    replaced = site.job("not-waited-for", podFailurePolicy=None, podReplacementPolicy="TerminatingOrFailed")
    replaced.is_evicted()
    waited("the Job to count a failure", lambda: TRACKED not in finalizers(replaced))
    replaced.ends()
    deleted = site.job("deleted")
    site.plane.kubectl("delete", "pod", deleted.name, "-n", site.namespace, "--wait=false")
    deleted.ends()
    site.seen()
    assert site.events() == []
    assert controller.lines("completed undone") == []


def finalizers(kubelet: Kubelet) -> list[str]:
    found = kubelet.plane.get("pod", kubelet.name, "-n", kubelet.namespace)["metadata"].get("finalizers", [])
    return list(found)


def test_whoever_leads_next_says_what_the_last_leader_did_not_and_nothing_again(site: Site) -> None:
    first = site.controller()
    first.waited("leading")
    second = site.controller()
    site.drained("said-by-the-first")
    waited("an Event", lambda: site.events("said-by-the-first"))
    site.seen()
    os.kill(first.process.popen.pid, signal.SIGSTOP)
    try:
        site.drained("unsaid-by-the-first")
        site.plane.kubectl("delete", "events", "-n", site.namespace, "--all")  # as after an hour
        second.waited("leading")
        waited("an Event", lambda: site.events("unsaid-by-the-first"))
    finally:
        os.kill(first.process.popen.pid, signal.SIGCONT)
    first.waited("leading no more")
    site.drained("said-by-the-second")
    waited("an Event", lambda: site.events("said-by-the-second"))
    site.seen()
    for job in ("said-by-the-first", "unsaid-by-the-first", "said-by-the-second"):
        assert len(told([first, second], job)) == 1, job
    assert site.events("said-by-the-first") == []
    assert len(site.events()) == 2


def test_a_sole_replica_that_is_killed_finds_what_went_meanwhile(site: Site) -> None:
    first = site.controller()
    lingering = site.job("lingering")
    lingering.ends(conditions=[condition("TerminationByKubelet")])
    site.drained("before")
    waited("Events", lambda: len(site.events()) == 2)
    site.seen()
    os.kill(first.process.popen.pid, signal.SIGKILL)
    site.plane.kubectl("delete", "events", "-n", site.namespace, "--all")  # as after an hour
    site.drained("meanwhile")
    second = site.controller()
    waited("an Event", lambda: site.events("meanwhile"))
    site.drained("after")
    waited("an Event", lambda: site.events("after"))
    site.seen()
    assert sorted(one["involvedObject"]["name"] for one in site.events()) == ["after", "meanwhile"]
    assert len(second.lines("completed undone")) == 2


@pytest.mark.parametrize("kill", [False, True])
def test_an_api_server_that_is_restarted_loses_and_repeats_nothing(site: Site, kill: bool) -> None:
    controllers = [site.controller(), site.controller()]
    names = [f"stopping-{number}" for number in range(3)]
    kubelets = [site.job(name) for name in names]
    kubelets[0].is_evicted()
    kubelets[1].is_evicted()
    site.drained("before")
    waited("an Event", lambda: site.events("before"))
    site.seen()
    site.plane.restart("kube-apiserver", kill)
    for kubelet in kubelets[:2]:  # they may be gone before anybody watches again
        kubelet.ends()
        kubelet.goes()
    kubelets[2].is_evicted()
    kubelets[2].ends()
    site.drained("after")
    for job in (*names, "before", "after"):
        waited(f"an Event on {job}", partial(site.events, job))
    site.seen()
    for job in (*names, "before", "after"):
        assert len(site.events(job)) == 1
        assert len(told(controllers, job)) == 1, job
    assert all(one.lines("watch begins anew") for one in controllers)
    assert not [line for one in controllers for line in one.lines() if "trace" in line]


def test_a_pod_that_went_while_nobody_could_watch_is_settled_by_the_books_of_its_job(site: Site) -> None:
    """The controller is cut off while it goes, and the API server remembers nothing of it."""
    line = Line(site, site.plane.kubeconfig)
    site.controller(kubeconfig=line.kubeconfig)
    done, failed = site.job("went-done"), site.job("went-failed")
    for kubelet in (done, failed):
        kubelet.is_evicted()
    site.seen()
    line.cut()
    done.ends()
    failed.ends("Failed")
    for kubelet in (done, failed):
        kubelet.goes()
    site.plane.restart("kube-apiserver")
    line.mend()
    waited("an Event", lambda: site.events("went-done"))
    site.seen()
    [event] = site.events()
    assert "its end was not seen, but the Job counts a success that no other Pod accounts for" in event["message"]


# Rights: those that are shipped, one missing at a time.

RIGHTS: Final = [("pods", "list"), ("pods", "watch"), ("jobs", "get"), ("events", "create")]


@pytest.mark.parametrize(("resource", "verb"), RIGHTS)
def test_a_right_to_watch_or_say_that_is_missing_is_one_clear_error_until_it_is_given(
    site: Site, resource: str, verb: str
) -> None:
    account = Account(site)
    account.has(without=(resource, verb))
    line = Line(site, account.kubeconfig())
    controller = site.controller(kubeconfig=line.kubeconfig)
    controller.waited("leading")
    if resource == "jobs":  # it is asked about only where the end of a Pod was not seen
        went = site.job("went")
        went.is_evicted()
        site.seen()
        line.cut()
        went.ends()
        went.goes()
        site.plane.restart("kube-apiserver")
        line.mend()
    else:
        site.drained("went")
        site.job("stays").ends(conditions=[condition("TerminationByKubelet")])
    told = controller.waited("call to the API server failed", status=403, resource=resource)
    assert (told["verb"], told["level"]) == (verb, "error")
    assert f'cannot {verb} resource "{resource}"' in told["reason"]
    time.sleep(2)
    assert len(controller.lines("call to the API server failed", status=403)) == 1
    assert controller.got("/readyz") == (200, "ok\n")
    assert controller.got("/healthz") == (200, "ok\n")
    waited("facts", lambda: facts(site))
    assert site.events() == []
    account.has()
    expected = "went" if resource in ("jobs", "events") else "stays"
    waited("an Event", lambda: site.events(expected), 60)
    assert not [one for one in controller.lines() if "trace" in one]
