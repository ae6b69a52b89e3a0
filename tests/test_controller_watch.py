"""Watching Pods and saying what is found, against an API server on loopback that breaks in every way."""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client

from tests import apiserver
from tests.apiserver import ApiServer
from tests.tables import policy_of
from tests.test_controller_run import answering
from tests.undone import BY_KUBELET, job, path, pod, stopping, undone
from webhook import policyfile
from webhook.controller import findings, stream
from webhook.controller import ledger as ledgers
from webhook.controller import policy as policies
from webhook.controller.api import Api, ApiError
from webhook.controller.crew import Crew
from webhook.controller.lease import Lease, lease
from webhook.controller.ledger import Ledger
from webhook.controller.mark import ANNOTATION, Found, Mark, mark_in
from webhook.controller.metrics import Complaints, metrics
from webhook.controller.stream import StreamError
from webhook.controller.watch import PODS, SELECTOR, Watch
from webhook.core.undone import Stopped
from webhook.rules import RULES
from webhook.watched import Watched

SECONDS: Final = 30.0
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/here/leases/drainproof-controller"


def until(holds: Callable[[], Any], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        time.sleep(0.02)


class Replica:
    """The parts that watch and say, and the election, of one replica."""

    def __init__(self, server: ApiServer, name: str) -> None:
        configuration = client.Configuration()
        configuration.host = server.url
        configuration.api_key = {"authorization": f"Bearer {name}"}
        self.server, self.api, self.metrics = server, Api(configuration), metrics()
        complaints = Complaints(self.metrics)
        self.ledger = Ledger(lambda: POLICY)
        place = lease("here", "drainproof-controller")
        self.election = Lease(self.api, place, name, 3, complaints, notes=self.ledger.annotations)
        self.parts = findings.parts(self.api, self.ledger, self.election, self.metrics, complaints)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=Crew(self.election, self.parts).run, args=(self.stop,))

    def count(self, guard: str = "absent") -> float:
        return float(self.metrics.false_completions.labels(guard)._value.get())

    def watches(self) -> None:
        """Waits until it has seen all that has happened to Pods, and the list where nothing has."""
        last = max((version for version, _, _ in self.server.history), default=1)
        until(lambda: self.ledger._position >= last)

    def leads(self) -> None:
        """Waits until it leads and watches: what comes and goes before that, a first replica cannot know."""
        until(self.election.leads)
        self.watches()

    def ends(self) -> float:
        """Ends it; how many seconds that took."""
        begun = time.monotonic()
        self.stop.set()
        if self.thread.ident:
            self.thread.join(10)
        assert not self.thread.is_alive()
        return time.monotonic() - begun


POLICY = policy_of()


@dataclass
class Site:
    """An API server and the replicas that talk to it."""

    server: ApiServer
    stack: ExitStack
    replicas: list[Replica] = field(default_factory=list)

    def replica(self, name: str) -> Replica:
        made = Replica(self.server, name)
        self.replicas.append(made)
        self.stack.callback(made.ends)
        made.thread.start()
        return made

    def put(self, *things: dict[str, Any]) -> None:
        for thing in things:
            self.server.put(path(thing, "pods" if "containers" in thing["spec"] else "jobs"), thing)

    def delete(self, thing: dict[str, Any]) -> None:
        self.server.delete(path(thing))

    def said(self) -> list[str]:
        """The Pods that Events speak of, in the order of their names."""
        return [one["metadata"]["name"].rpartition(".uid-")[2] for one in self.server.events()]

    def mark(self) -> Mark | None:
        return mark_in(self.server.objects.get(LEASE, {"metadata": {}})["metadata"].get("annotations", {}))


@pytest.fixture
def site(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    caplog.set_level(logging.INFO, "drainproof")
    monkeypatch.setattr("webhook.controller.watch.SECONDS", 0.1)
    with ExitStack() as stack:
        yield Site(stack.enter_context(apiserver.serving()), stack)


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [dict(record.__dict__["fields"]) for record in caplog.records if record.getMessage() == message]


def evicted(site: Site, name: str, **change: Any) -> None:
    """A Pod runs, is evicted and exits 0; its Job counts it, and it goes."""
    site.put(pod(name), stopping(name), undone(name, **change))


def test_a_finding_is_an_event_on_the_job_a_line_and_a_count(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    one = site.replica("one")
    one.leads()
    evicted(site, "p")
    site.put(undone("p", metadata={"finalizers": None}))
    site.delete(undone("p"))
    until(lambda: one.count() == 1)
    [event] = site.server.events()
    assert event["metadata"] == {"name": "j.uid-p", "namespace": "n"} | {
        "resourceVersion": event["metadata"]["resourceVersion"]
    }
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "n",
        "name": "j",
        "uid": "uid-j",
    }
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "CompletedUndone", 1)
    assert event["reportingComponent"] == event["source"]["component"] == "drainproof-controller"
    assert event["reportingInstance"] == "one"
    assert event["message"].startswith("Pod p was stopped (EvictionByEvictionAPI) and its containers exited 0")
    age = datetime.now(UTC) - datetime.fromisoformat(event["firstTimestamp"])
    assert 0 <= age.total_seconds() < 60
    [line] = lines(caplog, "completed undone")
    assert (line["namespace"], line["job"], line["pod"], line["guard"], line["event"]) == (
        "n",
        "j",
        "p",
        "absent",
        True,
    )
    until(lambda: (mark := site.mark()) and mark.until >= site.server.history[-1][0])
    assert not lines(caplog, "call to the API server failed")


def test_what_the_guard_missed_is_counted_apart(site: Site) -> None:
    one = site.replica("one")
    evicted(site, "p", metadata={"annotations": {"drainproof.dev/completion-guard": "on"}})
    until(lambda: one.count("missed") == 1)
    assert one.count() == 0


def test_what_was_there_before_is_found_in_the_list_page_by_page(site: Site) -> None:
    for number in range(7):
        site.put(undone(f"p{number}"))
        site.put(pod(f"q{number}"))
    site.put({**pod("stranger"), "metadata": {"name": "stranger", "namespace": "n", "uid": "s"}})
    one = site.replica("one")
    until(lambda: one.count() == 7)
    assert site.said() == [f"p{number}" for number in range(7)]
    listed = [query for verb, _, query in site.server.asked if verb == "list"]
    assert len(listed) == 7
    assert {query["labelSelector"] for query in listed} == {"batch.kubernetes.io/job-name"}
    assert all("continue" in query for query in listed[1:])


@pytest.mark.parametrize("how", ["end", "drop", "half", "garbage", "nothing", "expire"])
def test_a_watch_that_ends_in_any_way_loses_and_repeats_nothing(how: str, site: Site) -> None:
    one, other = site.replica("one"), site.replica("other")
    one.watches()
    other.watches()
    evicted(site, "before")
    for number in range(3):
        site.server.end_watches(how)
        evicted(site, f"during{number}")
        if how != "expire":  # then only the list tells, so it has to be there still
            site.delete(undone(f"during{number}"))
    site.put(pod("last"))
    one.watches()
    other.watches()
    until(lambda: one.count() + other.count() == 4)
    assert site.said() == ["before", "during0", "during1", "during2"]
    until(lambda: not one.ledger.due(leads=True) and not other.ledger.due(leads=True))


def test_a_quiet_watch_goes_on_from_its_last_bookmark(site: Site) -> None:
    site.server.watch_seconds = 0.1
    one = site.replica("one")
    one.leads()
    for _ in range(20):
        site.server.version += 1
    version = site.server.version
    until(lambda: (mark := site.mark()) and mark.until >= version)
    site.server.forgotten = version
    evicted(site, "p")
    until(lambda: one.count() == 1)
    assert site.server.asks("list", "pods") == 1


def test_a_watch_on_a_connection_that_died_without_a_word_is_given_up(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.controller.watch.WATCH_SECONDS", (1, 1))
    monkeypatch.setattr("webhook.controller.api.SECONDS", 0.5)
    site.server.deaf = True
    site.replica("one")
    until(lambda: site.server.asks("watch", "pods") >= 3)
    assert site.server.asks("list", "pods") == 1


@pytest.mark.parametrize(("succeeded", "found"), [(1, ["p"]), (0, [])])
def test_the_books_of_the_job_tell_of_a_pod_whose_end_was_not_seen(
    succeeded: int, found: list[str], site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    one = site.replica("one")
    one.leads()
    site.put(job(), pod(), stopping(), pod("other", "other"))
    one.watches()
    with site.server.changed:  # the API server is down while this happens, and remembers nothing of it
        site.put(job(succeeded=succeeded))
        site.server.delete(path(pod()))
        site.server.forget()
    site.put(pod("last", "other"))
    one.watches()
    until(lambda: (mark := site.mark()) and mark.until >= site.server.history[-1][0])
    assert site.said() == found
    for line in lines(caplog, "completed undone"):
        assert "its end was not seen" in line["text"]
    assert lines(caplog, "watch begins anew")


def test_a_pod_whose_job_is_gone_too_or_was_made_anew_is_nothing(site: Site) -> None:
    one = site.replica("one")
    site.put(job("new", succeeded=1, metadata={"uid": "another"}), stopping("p", "new"), stopping("q", "gone"))
    one.watches()
    with site.server.changed:
        for name in ("p", "q"):
            site.server.delete(path(pod(name)))
        site.server.forget()
    until(lambda: site.server.asks("get", "jobs/new") and site.server.asks("get", "jobs/gone"))
    until(lambda: not one.ledger.due(leads=True))
    assert site.said() == []


def test_a_job_that_does_not_wait_for_its_pods_has_counted_a_failure_before_the_pod_succeeds(site: Site) -> None:
    one = site.replica("one")
    ended = undone(metadata={"finalizers": None})
    site.put(job(spec={"podReplacementPolicy": "TerminatingOrFailed"}), pod(), stopping(), ended)
    until(lambda: site.server.asks("get", "jobs"))
    until(lambda: not one.ledger.due(leads=True))
    assert site.said() == []


@pytest.mark.parametrize(("verb", "resource"), [("list", "pods"), ("watch", "pods"), ("create", "events")])
def test_a_call_is_not_made_again_before_the_time_that_the_server_asks_for(
    verb: str, resource: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.server.refuse(verb, resource, 429, times=1, retry_after="3")
    site.put(undone())
    begun = time.monotonic()
    one = site.replica("one")
    until(lambda: one.count() == 1)
    until(lambda: site.server.asks(verb, resource) >= 2)
    assert time.monotonic() - begun >= 3
    assert lines(caplog, "call to the API server failed")[0]["status"] == 429


@pytest.mark.parametrize(
    ("verb", "resource"), [("list", "pods"), ("watch", "pods"), ("get", "jobs"), ("create", "events")]
)
def test_a_right_that_is_missing_is_one_error_and_all_is_well_once_it_is_given(
    verb: str, resource: str, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    missing = site.server.refuse(verb, resource, 403, message=f"cannot {verb} {resource}")
    one = site.replica("one")
    until(one.election.leads)
    until(lambda: resource != "pods" or site.server.asks(verb, resource))
    site.put(job(succeeded=1), undone(metadata={"finalizers": None}))
    until(lambda: site.server.asks(verb, resource) >= 3)
    [line] = lines(caplog, "call to the API server failed")
    assert (line["verb"], line["resource"], line["status"]) == (verb, resource, 403)
    assert f"cannot {verb} {resource}" in line["reason"]
    assert site.said() == []
    assert one.election.leads()
    missing.times = 0
    until(lambda: one.count() == 1)
    assert len(site.server.events()) == 1


def test_what_one_namespace_refuses_does_not_keep_another_from_being_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "BATCH", 3)
    site.server.refuse("create", "namespaces/full/", 403, message="exceeded quota")
    one = site.replica("one")
    site.put(*(undone(f"a{number}", metadata={"namespace": "full"}) for number in range(5)), undone("b"))
    until(lambda: one.count() == 1)
    assert site.said() == ["b"]


@pytest.mark.parametrize(
    ("status", "message"),
    [(404, "no namespace"), (403, "unable to create new content in namespace n because it is being terminated")],
)
def test_nothing_is_said_in_a_namespace_that_goes(status: int, message: str, site: Site) -> None:
    site.server.refuse("create", "events", status, message=message)
    site.put(undone())
    one = site.replica("one")
    until(lambda: site.server.asks("create", "events") == 1)
    until(lambda: not one.ledger.due(leads=True))
    assert one.count() == 0


def test_only_the_leader_says_and_who_follows_it_knows_what_was_said(site: Site) -> None:
    one = site.replica("one")
    one.leads()
    other = site.replica("other")
    other.watches()
    evicted(site, "first")
    until(lambda: one.count() == 1)
    other.watches()
    until(lambda: not other.ledger.due(leads=True))
    assert site.server.asks("create", "events") == 1
    site.server.refuse("update", "leases", 403, who="one")
    site.server.refuse("create", "events", 500, who="one")
    evicted(site, "second")
    site.delete(undone("second"))
    other.leads()
    until(lambda: other.count() == 1)
    assert site.said() == ["first", "second"]
    assert (one.count(), other.count()) == (1, 1)
    assert site.server.asks("create", "events") >= 2


def test_an_event_that_was_made_without_an_answer_is_told_all_the_same(site: Site) -> None:
    site.server.refuse("create", "events", 0, times=1)
    site.put(undone())
    one = site.replica("one")
    until(lambda: one.count() == 1)
    assert site.server.asks("create", "events") == 2
    assert site.said() == ["p"]


def test_a_sole_replica_finds_what_went_while_it_was_gone_as_long_as_the_api_server_remembers(site: Site) -> None:
    first = site.replica("first")
    first.leads()
    evicted(site, "said")
    until(lambda: first.count() == 1)
    until(lambda: (mark := site.mark()) and mark.until >= site.server.history[-1][0])
    first.ends()
    evicted(site, "meanwhile")
    site.delete(undone("meanwhile"))
    for one in list(site.server.events()):  # an hour later
        site.server.objects.pop(path(one, "events"))
    second = site.replica("second")
    until(lambda: second.count() == 1)
    assert site.said() == ["meanwhile"]
    second.ends()
    evicted(site, "forgotten")
    site.delete(undone("forgotten"))
    site.server.forget()
    third = site.replica("third")
    third.leads()
    third.watches()
    evicted(site, "after")
    until(lambda: third.count() == 1)
    assert site.said() == ["after", "meanwhile"]


def test_it_ends_within_two_seconds_while_nothing_happens(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    one = site.replica("one")
    one.watches()
    until(lambda: site.server.asks("watch", "pods") == 1)
    assert one.ends() < 2
    assert not lines(caplog, "call to the API server failed")
    assert not lines(caplog, "part does not end")


def test_it_ends_within_two_seconds_while_the_server_refuses_everything(site: Site) -> None:
    for verb in ("list", "watch", "get", "update", "create"):
        site.server.refuse(verb, "", 503)
    one = site.replica("one")
    until(lambda: site.server.asks("list", "pods"))
    assert one.ends() < 2


def test_parts_are_alive_and_no_trouble_of_theirs_makes_a_replica_unready(site: Site) -> None:
    site.server.refuse("list", "pods", 403)
    one = site.replica("one")
    until(lambda: site.server.asks("list", "pods"))
    assert [part.name for part in one.parts] == ["watch", "findings"]
    assert all(part.alive() for part in one.parts)
    assert one.parts[0].problem() == ""


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"x" * (stream.LONGEST + 1), "longer than"),
        (b'{"type": "ADDED", "object": {}}\n{"type"', "in the middle of an event"),
        (b"[]\n", "no type or no object"),
        (b'{"type": 7, "object": {}}\n', "no type or no object"),
        (b'{"type": "ERROR", "object": {"message": "no"}}\n', "^no$"),
        (b'{"type": "ERROR", "object": {"message": "old", "code": 410}}\n', "^old$"),
    ],
)
def test_what_is_no_event_ends_a_stream_and_says_why(content: bytes, text: str, tmp_path: Path) -> None:
    with answering(tmp_path, 200, content) as (api, asked):
        with pytest.raises(StreamError, match=text) as caught:
            list(stream.watch(api, PODS, SELECTOR, 5, 60))
        assert caught.value.status == (410 if text == "^old$" else 0)
    assert "resourceVersion=5&timeoutSeconds=60" in asked[0][1]


@pytest.mark.parametrize(("status", "text"), [(410, "410: gone"), (503, "503: gone"), (204, "no object|no stream")])
def test_a_watch_that_is_refused_is_the_error_of_any_call(status: int, text: str, tmp_path: Path) -> None:
    body = b"" if status == 204 else b'{"message": "gone"}'
    with (
        answering(tmp_path, status, body, Retry_After="7") as (api, _),
        pytest.raises(ApiError, match=text) as caught,
    ):
        stream.watch(api, PODS, SELECTOR, 5, 60)
    assert status == 204 or caught.value.retry_after == 7


def test_a_list_without_a_version_is_no_list(site: Site, tmp_path: Path) -> None:
    with answering(tmp_path, 200, b'{"items": []}') as (api, _):
        one = Watch(api, ledger(), dict, Complaints(metrics()))
        with pytest.raises(ApiError, match="no resource version"):
            one.once()
    assert site.said() == []


def test_the_policy_of_a_file_is_the_last_one_that_could_be_used(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    chosen = Watched(file, partial(policyfile.stated, rules=RULES))
    policies.look(chosen)
    assert policies.in_force(chosen) is None
    assert "cannot be read" in policies.problem(chosen)
    document = {"apiVersion": "drainproof.dev/v1", "kind": "Policy", "exempt": [{"namespaces": ["n"]}]}
    for content in (json.dumps(document), "junk"):
        file.write_text(content)
        for _ in range(2):
            policies.look(chosen)
        found = policies.in_force(chosen)
        assert found
        assert found.exempt[0].namespaces == ("n",)
        assert policies.problem(chosen) == ""
    kept = Ledger(lambda: policies.in_force(chosen) or POLICY)
    kept.listed([(5, [at(4, undone())])])
    assert kept.due(leads=True) == []
    policies.look(POLICY)
    assert policies.in_force(POLICY) is POLICY
    assert policies.problem(POLICY) == ""


STOPPED = Stopped("n", "p", "uid-p", "j" * 300, "uid-j", "", "why", "absent", "what to do")


def test_the_name_of_an_event_is_one_that_kubernetes_takes() -> None:
    name = findings.event(Found(STOPPED, True, True, 1, 1, 0.0), "x" * 300, datetime.now(UTC))["metadata"]["name"]
    assert name == "j" * 200 + ".uid-p"
    assert len(name) <= 253


def ledger() -> Ledger:
    return Ledger(lambda: POLICY)


def at(version: int, document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}


def test_what_cannot_be_said_for_an_hour_is_said_without_an_event(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    one = Replica(site.server, "one")
    kept = Ledger(lambda: POLICY, clock=lambda: clock[0])
    saying = findings.Findings(
        one.api, kept, lambda: True, dict, one.metrics, Complaints(one.metrics), "one", clock=lambda: clock[0]
    )
    kept.listed([(5, [at(4, undone())])])
    site.server.refuse("create", "events", 403)
    for now, told in [(0.0, 0), (findings.PATIENCE_SECONDS, 0), (findings.PATIENCE_SECONDS + 1, 1)]:
        clock[0] = now
        with pytest.raises(Exception, match="403"):
            saying.once()
        assert one.count() == told
    assert lines(caplog, "completed undone")[0]["event"] is False
    assert not saying.once()
    assert kept.annotations() == {ANNOTATION: "5-5"}


def test_no_more_is_kept_than_a_bound_and_what_is_dropped_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ledgers, "MOST", 3)
    one = ledger()
    one.listed([(9, [at(number, stopping(f"s{number}")) for number in range(1, 9)])])
    one.listed([(19, [at(number, undone(f"u{number}")) for number in range(10, 16)])])
    assert [found.pod.name for found in one.due(leads=True)] == ["s6", "s7", "s8"]
    dropped = [line["pod"] for line in lines(caplog, "too much waits to be said")]
    assert dropped == [f"u{number}" for number in range(10, 16)]


def test_successes_that_went_before_our_eyes_are_accounted_for_while_a_pod_of_the_job_is_awaited() -> None:
    one = ledger()
    one.listed([(1, [at(1, stopping("p", "j"))])])
    success = pod("q", "j", status={"phase": "Succeeded"})
    one.happened("DELETED", at(2, success), 2)
    one.happened("DELETED", at(3, pod("r", "other", status={"phase": "Succeeded"})), 3)
    one.happened("DELETED", at(4, pod("s", "j")), 4)
    assert (one.gone("uid-j"), one.gone("uid-other")) == (1, 0)
    one.due(leads=True)
    assert one.gone("uid-j") == 1
    one.happened("DELETED", at(5, stopping("p", "j")), 5)
    one.due(leads=True)
    assert one.gone("uid-j") == 0


def test_a_pod_that_was_seen_to_stop_and_then_only_to_go_is_found_in_its_last_state() -> None:
    one = ledger()
    one.listed([(1, [at(1, stopping())])])
    one.happened("DELETED", at(2, undone()), 2)
    assert [found.pod.name for found in one.due(leads=True)] == ["p"]
    one.happened("DELETED", at(3, undone("unknown")), 3)
    assert len(one.due(leads=True)) == 1


def test_a_mark_of_a_cluster_that_was_set_back_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    one = ledger()
    one.heard(Mark(900, 1000))
    one.listed([(50, [at(40, undone(status={"conditions": [BY_KUBELET]}))])])
    one.heard(Mark(900, 1000))
    assert len(one.due(leads=True)) == 1
    assert lines(caplog, "resource versions begin anew")
    one.settled(one.due(leads=True)[0])
    one.marked(leads=True)
    assert one.annotations() == {ANNOTATION: "50-50"}
    one.marked(leads=False)
    assert one.annotations() == {}


@pytest.mark.parametrize("text", ["", "5", "5-", "-5", "a-b", "5-6-7", "5" * 21 + "-6", None])
def test_a_mark_that_cannot_be_read_is_none(text: str | None) -> None:
    assert mark_in({ANNOTATION: text} if text is not None else {}) is None


def test_a_mark_is_read_as_it_was_written() -> None:
    assert mark_in({ANNOTATION: str(Mark(3, 4))}) == Mark(3, 4)
