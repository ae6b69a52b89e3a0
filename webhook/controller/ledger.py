"""What one replica has seen of Pods that were stopped, and what is still to be said of them.

Every replica keeps one, so that whoever comes to lead knows what happened before.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from webhook.controller.mark import ANNOTATION, Found, Mark
from webhook.core.patch import at
from webhook.core.ruleset import Policy
from webhook.core.undone import Stopped, sight
from webhook.observe import said

MOST: Final = 10_000  # Pods of each sort that are kept, about 1 KB each; beyond, the oldest are forgotten
_JOB: Final = ("metadata", "labels", "batch.kubernetes.io/controller-uid")  # 1.37.2 staging api batch/v1 types.go
Kept = TypeVar("Kept")


class Ledger:
    """Takes in lists and events of Pods, in any thread, and gives out what is to be said.

    A finding is new where a Pod is first seen to have succeeded. Each change of its state comes as an event of its own,
    so a deletion brings one only of a Pod that was seen before it ended.
    """

    def __init__(self, policy: Callable[[], Policy], clock: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._clock = policy, clock
        self._lock = threading.RLock()
        self._pending: dict[str, Found] = {}  # this and the next two by the uid of a Pod
        self._stopping: dict[str, tuple[Stopped, int]] = {}  # not seen to end yet; with the version last seen
        self._known: dict[str, None] = {}  # found, said or not, and still there
        self._gone: Counter[str] = Counter()  # successes that went while a Pod of the same Job, by its uid, is awaited
        self._since = self._position = 0  # everything from the one version to the other was seen; 0: nothing yet
        self._heard: Mark | None = None
        self._void: Mark | None = None  # a mark from a history that is no more
        self._own: Mark | None = None

    def heard(self, mark: Mark | None) -> None:
        """Takes in the mark that is in the Lease."""
        with self._lock:
            self._heard = None if mark == self._void else mark

    def listed(self, pages: Iterable[tuple[int, Iterable[dict[str, Any]]]]) -> tuple[int, int]:
        """Takes in a list of all Pods of Jobs; the version from which to watch, and that of the list.

        The first time they differ: what went between the end of the last leader and the list still comes as events from
        where that leader stood. That may be too old to be had, and `resumed` tells so.
        """
        before, there, version = self._heard, set[str](), 0
        for version, pods in pages:
            for pod in pods:
                there.add(_uid(pod))
                self._take(pod, version)
        with self._lock:
            self._check(before, version)
            self._ended_unseen(there, version)
            begin = version if self._position or self._heard is None else min(self._heard.until, version)
            self._since = self._position = begin
        return begin, version

    def resumed(self, version: int) -> None:
        """Goes on from the version of the list, for an earlier one could not be had."""
        with self._lock:
            self._since = self._position = version

    def happened(self, kind: str, thing: dict[str, Any], version: int) -> None:
        """Takes in an event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""
        with self._lock:
            if kind == "DELETED":
                self._deleted(thing, version)
            elif kind != "BOOKMARK":
                self._take(thing, version)
            self._position = version

    def due(self, leads: bool) -> list[Found]:
        """What this replica has to say now, oldest first: where it leads, whatever no leader has seen to.

        Else only what the leader cannot know, for it began to watch later.
        """
        with self._lock:
            mark = self._heard
            if mark:
                self._pending = {uid: one for uid, one in self._pending.items() if not mark.covers(one)}
            awaited = self._awaited()
            self._gone = Counter({job: count for job, count in self._gone.items() if job in awaited})
            return [one for one in self._pending.values() if leads or (mark is not None and mark.misses(one))]

    def settled(self, found: Found) -> None:
        """Forgets what has been said, or has turned out to be nothing."""
        with self._lock:
            self._pending.pop(found.pod.uid, None)

    def gone(self, job_uid: str) -> int:
        """How many Pods of a Job were seen to succeed and to go while another one was awaited."""
        with self._lock:
            return self._gone[job_uid]

    def marked(self, leads: bool) -> None:
        """Moves the mark on where this replica leads and has nothing left to say."""
        with self._lock:
            if not leads:
                self._own = None
            elif self._position and not self._pending:
                self._own = Mark(self._since, self._position)

    def annotations(self) -> Mapping[str, str]:
        """What belongs in the Lease: our mark, where we have one."""
        own = self._own
        return {ANNOTATION: str(own)} if own else {}

    def _check(self, before: Mark | None, version: int) -> None:
        """A list is older than a mark that was heard before it only where a backup of the cluster was put back."""
        if before and version < before.until:
            said("resource versions begin anew", logging.WARNING, mark=str(before), version=version)
            self._void, self._heard, self._position = before, None, 0

    def _take(self, pod: dict[str, Any], last: int) -> None:
        uid, seen = _uid(pod), sight(pod, self._policy())
        with self._lock:
            if seen is None or seen.has_succeeded:
                self._stopping.pop(uid, None)
            if seen is None or uid in self._known:
                return
            first = version_of(pod) or last
            if not seen.has_succeeded:
                _keep(self._stopping, uid, (seen.pod, first))
                return
            _keep(self._known, uid, None)
            self._add(Found(seen.pod, True, seen.counts, first, last, self._clock()))

    def _deleted(self, pod: dict[str, Any], version: int) -> None:
        uid, job = _uid(pod), str(at(pod, _JOB, ""))
        if uid in self._stopping:
            self._take(pod, version)
        self._stopping.pop(uid, None)
        self._known.pop(uid, None)
        if at(pod, ("status", "phase")) == "Succeeded" and job in self._awaited():
            self._gone[job] += 1

    def _awaited(self) -> set[str]:
        """The Jobs whose books may have to be looked at."""
        open_ends = {one.pod.job_uid for one in self._pending.values() if not one.counts}
        return {pod.job_uid for pod, _ in self._stopping.values()} | open_ends

    def _ended_unseen(self, there: set[str], version: int) -> None:
        for uid in [uid for uid in self._stopping if uid not in there]:
            pod, last = self._stopping.pop(uid)
            self._add(Found(pod, False, False, version, last, self._clock()))
        for uid in [uid for uid in self._known if uid not in there]:
            del self._known[uid]

    def _add(self, found: Found) -> None:
        if self._heard and self._heard.covers(found):
            return
        dropped = _keep(self._pending, found.pod.uid, found)
        if dropped:
            pod = dropped.pod
            said("too much waits to be said", logging.ERROR, namespace=pod.namespace, job=pod.job, pod=pod.name)


def version_of(thing: Mapping[str, Any]) -> int:
    """The resource version of an object or a list; 0 where it has none that is a number."""
    text = str(at(thing, ("metadata", "resourceVersion"), ""))
    return int(text) if text.isdecimal() and len(text) < 21 else 0


def _uid(pod: Mapping[str, Any]) -> str:
    return str(at(pod, ("metadata", "uid"), ""))


def _keep(kept: dict[str, Kept], uid: str, one: Kept) -> Kept | None:
    """Keeps one more, and gives back the oldest where that is one too many."""
    kept[uid] = one
    return kept.pop(next(iter(kept))) if len(kept) > MOST else None
