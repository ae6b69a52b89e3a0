"""Makes and replaces our certificates, one step at a time: looks, asks `authority` what comes next, and stores it."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cryptography.x509 import Certificate

from webhook.controller import replicas
from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.authority import Plan, Seen, Step, Wait, step
from webhook.controller.injection import Service, entries
from webhook.controller.metrics import Complaints, Metrics, expiries
from webhook.controller.secret import Secrets, Stored, readable
from webhook.controller.state import Authority, State
from webhook.observe import said

NAME: Final = "rotation"


@dataclass(slots=True)
class Rotation:
    """The certificates of our Services, which share them.

    `settle` is for how many seconds a CA must have been published before it counts, for every API server learns of a
    caBundle by a watch of its own.
    """

    api: Api
    secrets: Secrets
    configurations: tuple[Thing, ...]
    services: tuple[Service, ...]
    plan: Plan
    settle: float
    leads: Callable[[], bool]
    metrics: Metrics
    complaints: Complaints
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    clock: Callable[[], float] = time.monotonic
    _since: dict[Certificate, float] = field(default_factory=dict)
    _told: tuple[str, ...] = ()
    _waits: str = ""

    def once(self) -> bool:
        """One step, if one is due; whether there was one. Raises ApiError."""
        stored = self.secrets.read()
        expiries(self.metrics, stored.state)
        self._tell(stored.problems)
        seen = self._look(stored.state)
        what = step(stored.state, self.now(), seen, self.plan)
        if isinstance(what, Step):
            return self._do(what, stored)
        waits = what.reason if isinstance(what, Wait) else ""
        if waits and waits != self._waits:
            said("certificates wait", reason=waits)
        self._waits = waits
        return False

    def _do(self, what: Step, stored: Stored) -> bool:
        if not self.leads():
            return False
        try:
            self.secrets.write(what, stored)
        except ApiError:
            self.metrics.rotations.labels(what.kind, "failed").inc()
            raise
        self.metrics.rotations.labels(what.kind, "done").inc()
        one = what.authority or what.leaf
        assert one is not None  # every step stores something
        trusted = one.trusted if isinstance(one, Authority) else one.announced
        said(
            "certificates changed",
            step=what.kind,
            reason=what.reason,
            serial=f"{one.certificate.serial_number:x}",
            expires=one.certificate.not_valid_after_utc.isoformat(),
            trusted=len(trusted),
        )
        return True

    def _tell(self, problems: tuple[str, ...]) -> None:
        """Logs what is wrong with the Secrets, once for as long as it stays so."""
        for problem in problems:
            if problem not in self._told:
                said("certificates cannot be used", logging.WARNING, reason=problem)
        self._told = problems

    def _look(self, state: State) -> Seen:
        """What the cluster shows; what cannot be read counts as not shown."""
        bundles, complete = self._bundles()
        published = readable(bundles)
        settled = self._settled(bundles, state) if complete else frozenset()
        served, unknown = self._replicas(state)
        return Seen(published, settled, served, unknown)

    def _bundles(self) -> tuple[list[bytes], bool]:
        """Every caBundle of ours, and whether all of them could be read."""
        found: list[bytes] = []
        complete = True
        for thing in self.configurations:
            try:
                found += [entry.bundle for entry in entries(self.api.get(thing) or {}, self.services)]
            except ApiError as error:
                self.complaints.about(NAME, error)
                complete = False
        return found, complete

    def _settled(self, bundles: Iterable[bytes], state: State) -> frozenset[Certificate]:
        """The trusted CAs that have been in every caBundle for long enough; all, where there is no caBundle to fill."""
        trusted = state.authority.trusted if state.authority else ()
        cas = [readable([bundle]) for bundle in bundles]
        everywhere = [one for one in trusted if all(one in bundle for bundle in cas)]
        now = self.clock()
        self._since = {one: self._since.get(one, now) for one in everywhere}
        return frozenset(one for one, since in self._since.items() if not cas or now - since >= self.settle)

    def _replicas(self, state: State) -> tuple[tuple[Certificate, ...], int]:
        """What replicas serve and how many did not say. They are asked only while an older CA is still trusted."""
        found: dict[str, set[replicas.Address]] = {}
        try:
            for service in self.services:
                found |= replicas.addresses(self.api, service.namespace, service.name)
        except ApiError as error:
            self.complaints.about(NAME, error)
            return (), 1
        older = state.authority.older if state.authority else ()
        return replicas.served(found, self.plan.names[0]) if older else ((), 0)
