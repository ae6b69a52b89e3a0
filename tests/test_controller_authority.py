"""What is done with certificates next: the phases as tables, and the law that what may be served is always trusted."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.x509 import Certificate, DNSName
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.certificate import due, expired, made, new_authority, new_leaf, signed
from webhook.controller.authority import Plan, Seen, Step, Wait, step, trusted
from webhook.controller.state import Authority, Leaf, State

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PLAN = Plan(("drainproof.here.svc", "drainproof.here"), leaf_life=3 * HOUR, ca_life=30 * HOUR, grace=HOUR)


def authority(now: datetime = START, older: tuple[Certificate, ...] = ()) -> Authority:
    certificate, key = new_authority(now, PLAN.ca_life)
    return Authority(certificate, key, (certificate, *older))


def leaf(of: Authority, now: datetime = START, names: tuple[str, ...] = PLAN.names) -> Leaf:
    return Leaf(*new_leaf(of.certificate, of.key, names, now, PLAN.leaf_life), announced=of.trusted)


def told(pair: Leaf, one: Authority) -> Leaf:
    return replace(pair, announced=one.trusted)


def state(one: Authority | None, pair: Leaf | None, *known: Certificate) -> State:
    found = [*(one.trusted if one else ()), *(pair.announced if pair else ()), *known]
    return State(one, pair, tuple(dict.fromkeys(found)))


def verified(certificate: Certificate, bundle: Iterable[Certificate], now: datetime) -> bool:
    """Whether a client that trusts `bundle` takes a certificate; the judge is the library's path validation."""
    if not (cas := list(bundle)):
        return False
    verifier = PolicyBuilder().store(Store(cas)).time(now).build_server_verifier(DNSName(PLAN.names[0]))
    try:
        verifier.verify(certificate, [])
    except VerificationError:
        return False
    return True


OLD = authority()
OLD_LEAF = leaf(OLD)
NEW = authority(START + 20 * HOUR, older=(OLD.certificate,))
NEW_LEAF = leaf(NEW, START + 20 * HOUR)
LATE_LEAF = leaf(OLD, START + 19 * HOUR)
TOLD_LEAF = told(LATE_LEAF, NEW)
BOTH = frozenset(NEW.trusted)
STRANGER = authority()


@pytest.mark.parametrize(
    ("stored", "hours", "seen", "kind", "reason"),
    [
        (State(), 0, Seen(), "new-ca", "no CA is stored"),
        (State(known=(OLD.certificate,)), 0, Seen(), "new-ca", "no CA is stored"),
        (state(OLD, None), 0, Seen(), "new-leaf", "no serving certificate is stored"),
        (state(OLD, OLD_LEAF), 1.9, Seen(), None, ""),
        (state(OLD, OLD_LEAF), 2, Seen(), "new-leaf", "two thirds of the serving certificate's life"),
        (state(OLD, OLD_LEAF), 3, Seen(), "new-leaf", "the serving certificate has expired"),
        (state(OLD, leaf(OLD, names=("other.here.svc",))), 0, Seen(), "new-leaf", "for other names"),
        (state(OLD, replace(leaf(STRANGER), announced=())), 0, Seen(), "new-leaf", "of no CA that is trusted"),
        (state(OLD, leaf(STRANGER)), 0, Seen(), "old-ca-kept", "is not that of"),
        (state(OLD, replace(OLD_LEAF, announced=())), 0, Seen(), "announced", "the CAs changed"),
        (state(OLD, LATE_LEAF), 20, Seen(), "new-ca", "two thirds of the CA's life"),
        (state(OLD, LATE_LEAF), 30, Seen(), "new-ca", "the CA has expired"),
        (state(NEW, LATE_LEAF), 20, Seen(), "announced", "the CAs changed"),
        (state(NEW, TOLD_LEAF), 20, Seen(), "wait", "not yet published"),
        (state(NEW, TOLD_LEAF), 20, Seen(settled=frozenset(OLD.trusted)), "wait", "not yet published"),
        (state(NEW, TOLD_LEAF), 20, Seen(settled=BOTH), "new-leaf", "there is a new CA"),
        (state(NEW, None), 20, Seen(), "wait", "not yet published"),
        (state(NEW, None), 20, Seen(settled=BOTH), "new-leaf", "no serving certificate is stored"),
        (state(NEW, None), 21, Seen(), "new-leaf", "no serving certificate is stored"),
        (state(NEW, NEW_LEAF), 20, Seen(unknown=2), "wait", "not every replica shows"),
        (state(NEW, NEW_LEAF), 20, Seen(), "wait", "not every replica shows"),
        (state(NEW, NEW_LEAF), 20, Seen(served=(NEW_LEAF.certificate,), unknown=1), "wait", "not every replica"),
        (state(NEW, NEW_LEAF), 20, Seen(served=(NEW_LEAF.certificate,)), "old-ca-dropped", "every replica serves"),
        (state(NEW, NEW_LEAF), 21, Seen(), "old-ca-dropped", "has had time"),
        (state(NEW, NEW_LEAF), 21, Seen(served=(NEW_LEAF.certificate,), unknown=1), "old-ca-dropped", "has had time"),
        (state(NEW, NEW_LEAF), 21, Seen(served=(NEW_LEAF.certificate, LATE_LEAF.certificate)), "wait", "still serve"),
        (state(NEW, NEW_LEAF), 21.5, Seen(served=(leaf(STRANGER).certificate,)), "old-ca-dropped", "every replica"),
        (state(NEW, leaf(NEW, START + 29.5 * HOUR)), 30, Seen(), "old-ca-dropped", "have expired"),
    ],
)
def test_each_phase_has_one_next_step(stored: State, hours: float, seen: Seen, kind: str | None, reason: str) -> None:
    found = step(stored, START + hours * HOUR, seen, PLAN)
    assert (found.kind if isinstance(found, Step) else "wait" if found else None) == kind
    assert reason in (found.reason if found else "")


def test_a_new_ca_stands_first_and_keeps_every_older_one_that_is_still_good() -> None:
    found = step(State(known=(OLD.certificate,)), START, Seen(published=STRANGER.trusted), PLAN)
    assert isinstance(found, Step)
    assert found.authority
    assert found.authority.trusted == (found.authority.certificate, OLD.certificate, STRANGER.certificate)
    late = step(State(known=(OLD.certificate,)), START + 30 * HOUR, Seen(), PLAN)
    assert isinstance(late, Step)
    assert late.authority
    assert late.authority.older == ()


def test_of_many_old_cas_only_those_not_in_use_are_dropped() -> None:
    other = authority(START + 10 * HOUR)
    three = replace(NEW, trusted=(NEW.certificate, OLD.certificate, other.certificate))
    served = leaf(other, START + 19 * HOUR).certificate
    pair = replace(NEW_LEAF, announced=three.trusted)
    found = step(state(three, pair), START + 20 * HOUR, Seen(served=(NEW_LEAF.certificate, served)), PLAN)
    assert isinstance(found, Step)
    assert found.authority
    assert found.authority.trusted == (NEW.certificate, other.certificate)


def test_what_is_made_is_taken_by_a_client_for_its_life_and_never_outlives_its_ca() -> None:
    assert verified(OLD_LEAF.certificate, OLD.trusted, START)
    assert not verified(OLD_LEAF.certificate, NEW.trusted[:1], START)
    assert made(OLD_LEAF.certificate) == START
    assert leaf(OLD, START + 29 * HOUR).certificate.not_valid_after_utc == OLD.certificate.not_valid_after_utc
    assert not due(OLD_LEAF.certificate, START + 1.99 * HOUR)
    assert due(OLD_LEAF.certificate, START + 2 * HOUR)
    assert signed(OLD_LEAF.certificate, OLD.certificate)
    assert not signed(OLD_LEAF.certificate, NEW.certificate)


LAG = 40 * 60.0  # seconds until every replica has taken over what is stored, and caBundles are filled; below the grace
SETTLE = 10.0


@dataclass
class Cluster:
    """A model of what is stored, published and served."""

    now: datetime = START
    stored: State = field(default_factory=State)
    bundles: list[tuple[Certificate, ...]] = field(default_factory=lambda: [(), ()])
    since: dict[Certificate, datetime] = field(default_factory=dict)
    served: list[Certificate | None] = field(default_factory=lambda: [None, None, None])
    behind: list[datetime | None] = field(default_factory=lambda: [None, None, None])
    silent: set[int] = field(default_factory=set)

    def act(self) -> None:
        everywhere = set(self.bundles[0]) & set(self.bundles[1])
        self.since = {one: self.since.get(one, self.now) for one in everywhere}
        settled = frozenset(one for one, at in self.since.items() if (self.now - at).total_seconds() >= SETTLE)
        shown = [one for index, one in enumerate(self.served) if one and index not in self.silent]
        published = tuple(dict.fromkeys(one for bundle in self.bundles for one in bundle))
        seen = Seen(published, settled, tuple(shown), len(self.served) - len(shown))
        done = step(self.stored, self.now, seen, PLAN)
        if isinstance(done, Step):
            one, pair = done.authority or self.stored.authority, done.leaf or self.stored.leaf
            self.store(one, pair)
        else:
            assert done is None or isinstance(done, Wait)

    def store(self, one: Authority | None, pair: Leaf | None) -> None:
        changed = pair and (not self.stored.leaf or pair.certificate != self.stored.leaf.certificate)
        self.stored = state(one, pair)
        for index in range(3) if changed else ():
            self.behind[index] = self.behind[index] or self.now

    def publish(self, index: int) -> None:
        if self.stored.authority:
            self.bundles[index] = trusted(self.stored, self.now, self.bundles[index])

    def sync(self, index: int) -> None:
        if self.stored.leaf:
            self.served[index], self.behind[index] = self.stored.leaf.certificate, None

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        for index, at in enumerate(self.behind):
            if at and (self.now - at).total_seconds() >= LAG:
                self.sync(index)
        for index in range(2) if seconds >= LAG else ():
            self.publish(index)

    def check(self) -> None:
        for one in self.served:
            if one and not expired(one, self.now):
                for bundle in self.bundles:
                    assert verified(one, bundle, self.now)


EVENTS = st.one_of(
    st.just(("act",)),
    st.just(("act",)),
    st.tuples(st.just("publish"), st.integers(0, 1)),
    st.tuples(st.just("sync"), st.integers(0, 2)),
    st.tuples(st.just("pass"), st.sampled_from([1.0, SETTLE, 600.0, LAG, 2 * 3600.0, 7 * 3600.0])),
    st.tuples(st.just("silent"), st.integers(0, 2)),
    st.tuples(st.just("lose"), st.sampled_from(["ca", "leaf", "both"])),
    st.just(("replace",)),
)


@settings(max_examples=150, deadline=None)
@given(events=st.lists(EVENTS, max_size=60))
def test_whatever_happens_what_may_be_served_is_trusted_by_what_is_published(events: list[tuple[str, ...]]) -> None:
    cluster = Cluster()
    for _ in range(3):
        cluster.act()
    for index in range(3):
        cluster.publish(index % 2)
        cluster.sync(index)
    cluster.check()
    for name, *value in events:
        given_index = value[0] if value else 0
        if name == "act":
            cluster.act()
        elif name == "publish":
            cluster.publish(int(given_index))
        elif name == "sync":
            cluster.sync(int(given_index))
        elif name == "pass":
            cluster.pass_time(float(given_index))
        elif name == "silent":
            cluster.silent ^= {int(given_index)}
        elif name == "lose":
            kept = cluster.stored
            lost_ca, lost_leaf = given_index in ("ca", "both"), given_index in ("leaf", "both")
            cluster.store(None if lost_ca else kept.authority, None if lost_leaf else kept.leaf)
        else:
            cluster.store(authority(cluster.now), cluster.stored.leaf)
        cluster.check()
