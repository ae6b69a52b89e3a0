"""What our certificates are, and what is to be done with them next: pure, the time is given.

A CA is replaced in three steps, each a single write, so that a controller can stop after any of them:

1. A new CA is made and trusted beside the old one. What is trusted is published in every caBundle.
2. Once it is published everywhere, a serving certificate of the new CA takes the place of the old one.
3. Once every replica serves it, or could have taken it over long ago, the old CA is trusted no more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from cryptography.x509 import Certificate

from webhook.certificate import (
    dns_names,
    due,
    expired,
    is_ours,
    made,
    new_authority,
    new_leaf,
    signed,
)
from webhook.controller.state import Authority, Leaf, State

Kind = Literal["new-ca", "new-leaf", "announced", "old-ca-kept", "old-ca-dropped"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Seen:
    """What the cluster shows.

    `published` are CAs in a caBundle of ours, `settled` those that have long enough been in every one. `served` are
    the certificates that replicas serve, and `unknown` counts the replicas that did not show theirs.
    """

    published: tuple[Certificate, ...] = ()
    settled: frozenset[Certificate] = frozenset()
    served: tuple[Certificate, ...] = ()
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What certificates are to be: their DNS names and lives, and how long a replica may take to serve a new one."""

    names: tuple[str, ...]
    leaf_life: timedelta
    ca_life: timedelta
    grace: timedelta


@dataclass(frozen=True, slots=True)
class Step:
    """One write: what is to be stored, and why."""

    kind: Kind
    reason: str
    authority: Authority | None = None
    leaf: Leaf | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """There is something to do, but not yet."""

    reason: str


def trusted(state: State, now: datetime, published: Iterable[Certificate]) -> tuple[Certificate, ...]:
    """What has to be in every caBundle: the CAs trusted, and any other by which what replicas serve may be signed.

    A Secret that somebody lost or replaced is no reason to refuse replicas, which serve what they have. Where the
    serving certificate stored is of no CA trusted, the CA was replaced, and all that are known still count; where there
    is none, all of ours that are `published`.
    """
    cas = state.authority.trusted if state.authority else ()
    others: Iterable[Certificate] = ()
    if not state.leaf:
        others = filter(is_ours, published)
    elif not any(signed(state.leaf.certificate, one) for one in cas):
        others = state.known
    return _distinct([*cas, *(one for one in others if not expired(one, now))])


def step(state: State, now: datetime, seen: Seen, plan: Plan) -> Step | Wait | None:
    """What to do next with `state`; None where all is well."""
    authority, leaf = state.authority, state.leaf
    if authority is None:
        return _authority("no CA is stored that can be used", state, now, seen, plan)
    if expired(authority.certificate, now):
        return _authority("the CA has expired", state, now, seen, plan)
    if (whole := trusted(state, now, seen.published)) != authority.trusted:
        return Step(
            "old-ca-kept",
            "the stored CA is not that of what replicas may serve",
            authority=replace(authority, trusted=whole),
        )
    reason, urgent = _wrong(leaf, authority, now, plan)
    if leaf is None or urgent:
        return _leaf(reason, urgent, authority, now, seen, plan)
    if not authority.older and due(authority.certificate, now):
        return _authority("two thirds of the CA's life are over", state, now, seen, plan)
    if leaf.announced != authority.trusted:
        return Step("announced", "the CAs changed", leaf=replace(leaf, announced=authority.trusted))
    if reason:
        return _leaf(reason, urgent, authority, now, seen, plan)
    return _older(authority, leaf, now, seen, plan) if authority.older else None


def _authority(reason: str, state: State, now: datetime, seen: Seen, plan: Plan) -> Step:
    """A new CA beside all that are trusted, or were: a replica may still serve what any of them signed."""
    certificate, key = new_authority(now, plan.ca_life)
    known = (*trusted(state, now, ()), *state.known, *(one for one in seen.published if is_ours(one)))
    kept = _distinct(one for one in known if not expired(one, now))
    return Step("new-ca", reason, authority=Authority(certificate, key, (certificate, *kept)))


def _wrong(leaf: Leaf | None, authority: Authority, now: datetime, plan: Plan) -> tuple[str, bool]:
    """Why another serving certificate is needed (empty where it is not), and whether this one serves nobody."""
    if leaf is None:
        return "no serving certificate is stored that can be used", True
    if expired(leaf.certificate, now):
        return "the serving certificate has expired", True
    if not any(signed(leaf.certificate, one) for one in authority.trusted):
        return "the serving certificate is of no CA that is trusted", True
    if set(dns_names(leaf.certificate)) != set(plan.names):
        return "the serving certificate is for other names", True
    if not signed(leaf.certificate, authority.certificate):
        return "there is a new CA", False
    if due(leaf.certificate, now):
        return "two thirds of the serving certificate's life are over", False
    return "", False


def _leaf(reason: str, urgent: bool, authority: Authority, now: datetime, seen: Seen, plan: Plan) -> Step | Wait:
    late = urgent and now - made(authority.certificate) >= plan.grace
    if authority.older and authority.certificate not in seen.settled and not late:
        return Wait(f"{reason}; the new CA is not yet published in every caBundle")
    made_now = new_leaf(authority.certificate, authority.key, plan.names, now, plan.leaf_life)
    return Step("new-leaf", reason, leaf=Leaf(*made_now, announced=authority.trusted))


def _older(authority: Authority, leaf: Leaf, now: datetime, seen: Seen, plan: Plan) -> Step | Wait:
    """Whether older CAs can go: those that nobody serves a certificate of, and at once those that have expired."""
    over = [one for one in authority.older if expired(one, now)]
    needed = [one for one in authority.older if one not in over and _in_use(one, seen.served, now)]
    if seen.served and not seen.unknown:
        kept, reason = needed, "every replica serves a certificate of the new CA"
    elif now - made(leaf.certificate) >= plan.grace:
        kept, reason = needed, "every replica has had time to take over the new certificate"
    else:
        kept, reason = [one for one in authority.older if one not in over], ""
    if len(kept) == len(authority.older):
        what = (
            "replicas still serve a certificate of the old CA" if needed else "not every replica shows what it serves"
        )
        return Wait(f"the old CA stays trusted: {what}")
    if needed or not reason:
        reason = "CAs that have expired or are not in use"
    return Step("old-ca-dropped", reason, authority=replace(authority, trusted=(authority.certificate, *kept)))


def _in_use(authority: Certificate, served: Sequence[Certificate], now: datetime) -> bool:
    return any(signed(one, authority) and not expired(one, now) for one in served)


def _distinct(certificates: Iterable[Certificate]) -> tuple[Certificate, ...]:
    return tuple(dict.fromkeys(certificates))
