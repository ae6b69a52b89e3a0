"""What replicas keep of Pods and hand on: no interleaving of breaks, lists and leaders loses or repeats a finding."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.tables import policy_of
from tests.undone import BY_KUBELET, job, pod, stopping, undone
from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.findings import Findings
from webhook.controller.ledger import Ledger
from webhook.controller.mark import mark_in
from webhook.controller.metrics import Complaints, metrics

Json = dict[str, Any]
POLICY = policy_of()
REPLICAS = 2
GONE: Json = {}


def at(version: int, document: Json) -> Json:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}


def lives(name: str) -> dict[str, list[Json]]:
    """What may become of a Pod, state by state."""
    # Each has ended when two states are left: one more change, and the end of the object.
    by_kubelet = undone(name, name, metadata={"deletionTimestamp": None}, status={"conditions": [BY_KUBELET]})
    done = pod(name, name, status={"phase": "Succeeded"})
    failed = stopping(name, name, status={"phase": "Failed"})
    untracked = {"metadata": {"finalizers": None}}
    return {
        "undone": [pod(name, name), stopping(name, name), undone(name, name), undone(name, name, **untracked), GONE],
        "by kubelet": [pod(name, name), by_kubelet, {**by_kubelet, "x": 1}, GONE],
        "failed": [pod(name, name), stopping(name, name), failed, {**failed, "x": 1}, GONE],
        "undisturbed": [pod(name, name), done, {**done, "x": 1}, GONE],
    }


class World(Api):
    """Pods with their history, Jobs with their books, Events, and the annotations of a Lease."""

    def __init__(self) -> None:
        self.version, self.forgotten = 100, 0
        self.history: list[tuple[int, str, Json]] = []
        self.pods: dict[str, Json] = {}
        self.jobs: dict[str, Json] = {}
        self.events: set[str] = set()
        self.made: Counter[str] = Counter()
        self.noted: dict[str, str] = {}
        self.trouble = ""
        self.lost_answers = 0

    def change(self, name: str, state: Json) -> None:
        self.version += 1
        kind = "DELETED" if state is GONE else "MODIFIED" if name in self.pods else "ADDED"
        document = at(self.version, self.pods[name] if state is GONE else state)
        self.history.append((self.version, kind, document))
        self.pods[name] = document
        if state is GONE:
            del self.pods[name]
        succeeded = document["status"]["phase"] == "Succeeded"
        self.jobs[name] = job(name, succeeded=int(succeeded))

    def get(self, thing: Thing, form: str = "") -> Json | None:
        del form
        self._trouble(thing)
        return self.jobs.get(thing.name)

    def pages(self, thing: Thing, selector: str = "") -> Iterator[tuple[Json, list[Json]]]:
        self._trouble(thing)
        uid = selector.partition("=")[2]
        found = [one for one in self.pods.values() if one["metadata"]["ownerReferences"][0]["uid"] == uid]
        yield {"resourceVersion": str(self.version)}, found

    def post(self, thing: Thing, body: Any) -> Json:
        self._trouble(thing)
        name = body["metadata"]["name"]
        if name in self.events:
            raise ApiError("create", thing, 409, "it is there", reason="AlreadyExists")
        self.events.add(name)
        self.made[body["involvedObject"]["name"]] += 1
        if self.trouble == "after":
            self.lost_answers += 1
            raise ApiError("create", thing, 0, "no answer")
        return dict(body)

    def _trouble(self, thing: Thing) -> None:
        if self.trouble == "before":
            raise ApiError("create", thing, 429, "later", retry_after=1)


class Replica:
    """One replica: its ledger, how far it has read, and what it says."""

    def __init__(self, world: World, leads: Any, counted: Any) -> None:
        self.world, self.leads = world, leads
        self.ledger = Ledger(lambda: POLICY)
        self.version = self.fallback = 0
        self.findings = Findings(world, self.ledger, leads, lambda: world.noted, counted, Complaints(counted), "test")
        self.witnessed: set[str] = set()

    def reads(self, most: int = 1_000_000) -> None:
        """Takes in what has happened, as the part that watches does it."""
        if not self.version:
            self.ledger.heard(mark_in(self.world.noted))
            pods = list(self.world.pods.values())
            self.witnessed |= {name for name, one in self.world.pods.items() if one["status"].get("conditions")}
            halves = [(self.world.version, pods[: len(pods) // 2]), (self.world.version, pods[len(pods) // 2 :])]
            self.version, self.fallback = self.ledger.listed(halves)
        if self.version < self.world.forgotten:
            self.version, self.fallback = (self.fallback if self.fallback >= self.world.forgotten else 0), 0
            if not self.version:
                return self.reads(most)
            self.ledger.resumed(self.version)
        for version, kind, document in [one for one in self.world.history if one[0] > self.version][:most]:
            self.ledger.happened(kind, document, version)
            self.version, self.fallback = version, 0
            if document["status"].get("conditions"):
                self.witnessed.add(document["metadata"]["name"])
        return None

    def renews(self) -> None:
        """Writes the Lease, where it is the leader's."""
        if self.leads():
            self.world.noted = {**self.world.noted, **self.ledger.annotations()}

    def says(self) -> None:
        try:
            while self.findings.once():
                pass
        except ApiError:
            pass


class Interleavings(RuleBasedStateMachine):
    """Replicas, the world and time, each moving on when it likes."""

    @initialize()
    def begin(self) -> None:
        self.world, self.leader, self.counted = World(), 0, metrics()
        self.replicas = [self.replica(number) for number in range(REPLICAS)]
        self.pods: dict[str, tuple[str, list[Json]]] = {}
        self.everybody_works()

    def replica(self, number: int) -> Replica:
        return Replica(self.world, lambda: self.leader == number, self.counted)

    @rule(life=st.sampled_from(sorted(lives("x"))))
    def a_pod_starts(self, life: str) -> None:
        name = f"p{len(self.pods)}"
        self.pods[name] = (life, lives(name)[life])
        self.a_pod_goes_on(len(self.pods) - 1)

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 10_000), steps=st.integers(1, 4))
    def a_pod_goes_on(self, number: int, steps: int = 1) -> None:
        name = f"p{number % len(self.pods)}"
        for _ in range(steps):
            if self.pods[name][1]:
                self.world.change(name, self.pods[name][1].pop(0))

    @rule(number=st.integers(0, REPLICAS - 1), most=st.integers(1, 5))
    def a_replica_reads(self, number: int, most: int) -> None:
        self.replicas[number].reads(most)

    @rule(number=st.integers(0, REPLICAS - 1))
    def a_replica_says(self, number: int) -> None:
        self.replicas[number].says()

    @rule(number=st.integers(0, REPLICAS - 1))
    def a_replica_renews(self, number: int) -> None:
        self.replicas[number].renews()

    @rule(number=st.integers(-1, REPLICAS - 1))
    def another_leads(self, number: int) -> None:
        self.leader = number

    @rule()
    def history_is_forgotten(self) -> None:
        self.world.version += 1
        self.world.forgotten = self.world.version

    @precondition(lambda self: self.pods)
    @rule(number=st.integers(0, 10_000), steps=st.integers(1, 4))
    def nobody_sees_how_a_pod_goes_on(self, number: int, steps: int) -> None:
        self.a_pod_goes_on(number, steps)
        self.history_is_forgotten()

    @rule(number=st.integers(0, REPLICAS - 1))
    def a_replica_is_replaced(self, number: int) -> None:
        self.replicas[number] = self.replica(number)

    @rule(trouble=st.sampled_from(["", "before", "after"]))
    def calls_go_well_or_not(self, trouble: str) -> None:
        self.world.trouble = trouble

    @rule()
    def an_hour_passes(self) -> None:
        """Long enough for everybody to do what there is to do, Job controller included; then Events are gone.

        A Pod that is still there is changed once more: whoever knows it must not take that for news.
        """
        self.world.trouble = ""
        self.leader = max(self.leader, 0)
        for name, (_, rest) in self.pods.items():
            if len(rest) == 2:  # it has ended
                self.world.change(name, rest.pop(0))
        self.everybody_works()
        self.world.events.clear()
        for name, document in list(self.world.pods.items()):
            self.world.change(name, {**document, "y": self.world.version})
        self.everybody_works()

    def everybody_works(self) -> None:
        for _ in range(3):
            for replica in self.replicas:
                replica.reads()
                replica.says()
                replica.renews()
        for replica in self.replicas:
            assert replica.ledger.due(leads=True) == []

    @invariant()
    def nothing_is_said_twice_or_of_another_pod(self) -> None:
        for name, count in self.world.made.items():
            assert count == 1, name
            assert self.pods[name][0] in ("undone", "by kubelet"), self.pods[name][0]

    def teardown(self) -> None:
        self.an_hour_passes()
        for name, (life, rest) in self.pods.items():
            has_ended = len(rest) < 3  # states that are still to come
            # Of what came and went in a gap, nobody can know; nor of what only a replica saw that is gone.
            known = name in self.world.pods or any(name in replica.witnessed for replica in self.replicas)
            if life in ("undone", "by kubelet") and has_ended and (known or not self.world.forgotten):
                assert self.world.made[name] == 1, (name, life)
        self.nothing_is_said_twice_or_of_another_pod()
        told = sum(self.counted.false_completions.labels(guard)._value.get() for guard in ("absent", "missed"))
        made = self.world.made.total()
        assert made - self.world.lost_answers <= told <= made


Interleavings.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
test_every_finding_is_said_once = pytest.mark.timeout(900)(Interleavings.TestCase)
