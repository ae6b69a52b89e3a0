"""Watches the Pods of Jobs, in every replica, so that a new leader knows what happened before it led."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from threading import Event, Thread
from typing import Any, Final

from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.ledger import Ledger, version_of
from webhook.controller.mark import mark_in
from webhook.controller.metrics import Complaints
from webhook.controller.part import Rounds
from webhook.controller.stream import Stream, StreamError, watch
from webhook.observe import said

NAME: Final = "watch"
PODS: Final = Thing("/api/v1", "pods")
SELECTOR: Final = (
    "batch.kubernetes.io/job-name"  # on Pods of Jobs since Kubernetes 1.27 (staging api batch/v1 types.go)
)
# Seconds of one watch. It is short, so that a connection that died without a word is missed for no longer.
WATCH_SECONDS: Final = (60, 90)
SECONDS: Final = 1.0  # between two watches, and two looks at what is to be said
LEASE_SECONDS: Final = 5.0  # to wait for the Lease, and in it for the mark of the last leader
KINDS: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Watch:
    """A part that lists the Pods once, and again where the API server has forgotten too much, and then watches."""

    def __init__(
        self,
        api: Api,
        ledger: Ledger,
        noted: Callable[[], Mapping[str, str] | None],
        complaints: Complaints,
        name: str = NAME,
    ) -> None:
        self._api, self._ledger, self._noted, self._complaints = api, ledger, noted, complaints
        self.name = name
        self._rounds = Rounds(name, self.once, SECONDS, leads=lambda: True, complaints=complaints)
        self._version = 0  # from which to watch; 0: a list comes first
        self._fallback = 0  # the version of the list, while an earlier one is tried
        self._stream: Stream | None = None
        self._ends = False

    def problem(self) -> str:
        """Nothing: a replica that cannot see Pods does everything else."""
        return ""

    def alive(self) -> bool:
        """Whether it still comes round."""
        return self._rounds.alive()

    def run(self, stop: Event) -> None:
        """Watches until `stop` is set."""
        Thread(target=self._ended_by, args=(stop,), name=f"{self.name}-end", daemon=True).start()
        patience = time.monotonic() + LEASE_SECONDS
        while self._noted() is None and time.monotonic() < patience and not stop.wait(0.05):
            pass
        self._rounds.run(stop)

    def once(self) -> bool:
        """One list where one is due, and one watch. Raises ApiError where nothing came of it."""
        try:
            if not self._version:
                self._list()
            self._watch()
        except ApiError as error:
            if self._ends:
                return False
            if error.status != 410:
                raise
            self._expired(error)
        return False

    def _list(self) -> None:
        self._ledger.heard(mark_in(self._noted() or {}))
        self._version, version = self._ledger.listed(self._pages())
        self._fallback = version if self._version < version else 0

    def _pages(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        for metadata, pods in self._api.pages(PODS, SELECTOR):
            version = version_of({"metadata": metadata})
            if not version:
                raise ApiError("list", PODS, 200, "the list has no resource version that is a number")
            if self._ends:
                raise ApiError("list", PODS, 0, "it is being stopped")
            yield version, pods

    def _watch(self) -> None:
        stream = watch(self._api, PODS, SELECTOR, self._version, random.randint(*WATCH_SECONDS))
        self._stream, came = stream, False
        try:
            if self._ends:
                return
            for event in stream:
                self._happened(event)
                came = True
        except StreamError as error:
            broken = ApiError("watch", PODS, error.status, str(error))
            if error.status == 410 or not came or self._ends:
                raise broken from error
            self._complaints.about(self.name, broken)  # it worked, so no pause grows
        finally:
            stream.release()

    def _happened(self, event: Mapping[str, Any]) -> None:
        kind, thing = event["type"], event["object"]
        version = version_of(thing)
        if not version or kind not in KINDS:
            raise StreamError("an event has no resource version that is a number, or is of no known type")
        self._ledger.happened(kind, thing, version)
        self._version, self._fallback = version, 0

    def _expired(self, error: ApiError) -> None:
        """The API server does not know any more what came after our version: what happened since shows in a list."""
        said("watch begins anew", version=self._version, fallback=self._fallback, reason=str(error))
        self._version, self._fallback = self._fallback, 0
        if self._version:
            self._ledger.resumed(self._version)

    def _ended_by(self, stop: Event) -> None:
        stop.wait()
        self._ends = True
        if self._stream:
            self._stream.close()
