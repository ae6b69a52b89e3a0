"""Says of each Pod that counts as a success undone, once: an Event on its Job, a line in the log, and a count."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from webhook.controller import watch
from webhook.controller.api import Api, ApiError, Thing
from webhook.controller.lease import Lease
from webhook.controller.ledger import Ledger
from webhook.controller.mark import Found, mark_in
from webhook.controller.metrics import Complaints, Metrics
from webhook.controller.part import Part, Rounds
from webhook.controller.watch import PODS, Watch
from webhook.core import accounts
from webhook.core.undone import message
from webhook.observe import said

NAME: Final = "findings"
REASON: Final = "CompletedUndone"
COMPONENT: Final = "drainproof-controller"
BATCH: Final = 50  # in one round
# An Event is kept for an hour (Kubernetes 1.37.2, kube-apiserver --event-ttl); so long, making it again finds it there.
PATIENCE_SECONDS: Final = 3000.0


@dataclass(frozen=True, slots=True)
class Findings:
    """Says what the ledger holds. Of several replicas the leader says it; an Event that is there was said by another.

    `noted` are the annotations of the Lease, through which the leader tells the others how far it has come.
    """

    api: Api
    ledger: Ledger
    leads: Callable[[], bool]
    noted: Callable[[], Mapping[str, str] | None]
    metrics: Metrics
    complaints: Complaints
    identity: str
    clock: Callable[[], float] = time.monotonic
    _unsure: set[str] = field(default_factory=set)  # the Pods of Events that may have been made without our hearing

    def once(self) -> bool:
        """Says what is due; whether there is more. Raises the last ApiError once all that can be said is."""
        self.ledger.heard(mark_in(self.noted() or {}))
        led = self.leads()
        due = self.ledger.due(led)
        failed: dict[str, ApiError] = {}  # by namespace: what is refused in one may be granted in another
        tried = 0
        for found in due:
            if tried == BATCH or (led and not self.leads()):
                break
            if found.pod.namespace in failed:
                continue
            tried += 1
            try:
                self._settle(found)
            except ApiError as error:
                self._failed(found, error)
                failed[found.pod.namespace] = error
                if error.status == 429 or error.status >= 500 or not error.status:
                    break
        self.ledger.marked(self.leads())
        self.complaints.raise_last(NAME, list(failed.values()))
        return tried == BATCH

    def _settle(self, found: Found) -> None:
        if found.counts or self._counts(found):
            self._say(found)
        self.ledger.settled(found)
        self._unsure.discard(found.pod.uid)

    def _counts(self, found: Found) -> bool:
        """Whether the Job counts the Pod, by its books; a Job that is gone has none."""
        pod = found.pod
        job = self.api.get(Thing("/apis/batch/v1", "jobs", pod.job, pod.namespace))
        if job is None or (job.get("metadata") or {}).get("uid") != pod.job_uid:
            return False
        place = Thing(PODS.prefix, PODS.resource, namespace=pod.namespace)
        pages = self.api.pages(place, f"batch.kubernetes.io/controller-uid={pod.job_uid}")
        pods = [one for _, page in pages for one in page]
        return accounts.counts(job, pods, pod, found.has_succeeded, self.ledger.gone(pod.job_uid))

    def _say(self, found: Found) -> None:
        place = Thing("/api/v1", "events", namespace=found.pod.namespace)
        try:
            self.api.post(place, event(found, self.identity, datetime.now(UTC)))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                if found.pod.uid in self._unsure:
                    self._tell(found)
                return
            if error.status == 404 or "because it is being terminated" in str(error):
                return  # the namespace goes, and the Job with it
            raise
        self._tell(found)

    def _failed(self, found: Found, error: ApiError) -> None:
        if not error.status or error.status >= 500:
            self._unsure.add(found.pod.uid)
        if self.clock() - found.found_at > PATIENCE_SECONDS:
            self._tell(found, event=False)
            self.ledger.settled(found)
            self._unsure.discard(found.pod.uid)

    def _tell(self, found: Found, event: bool = True) -> None:
        pod = found.pod
        said(
            "completed undone",
            logging.WARNING,
            namespace=pod.namespace,
            job=pod.job,
            pod=pod.name,
            uid=pod.uid,
            guard=pod.guard,
            cause=pod.cause,
            event=event,
            text=message(pod, found.has_succeeded),
        )
        self.metrics.false_completions.labels(pod.guard).inc()


def parts(api: Api, ledger: Ledger, election: Lease, metrics: Metrics, complaints: Complaints) -> list[Part]:
    """What finds and what says it. Both run in every replica: who does not lead has to know as well."""
    finding = Findings(api, ledger, election.leads, election.annotations, metrics, complaints, election.identity)
    saying = Rounds(NAME, finding.once, watch.SECONDS, leads=lambda: True, complaints=complaints)
    return [Watch(api, ledger, election.annotations, complaints), saying]


def event(found: Found, instance: str, now: datetime) -> dict[str, Any]:
    """The Event on the Job. Its name follows from the Pod, so that it can be made only once.

    The form is that of core/v1 (Kubernetes 1.37.2 staging api core/v1 types.go Event), which `kubectl describe` shows.
    """
    pod, at = found.pod, now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.job[:200].rstrip('-.')}.{pod.uid}", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": pod.namespace,
            "name": pod.job,
            "uid": pod.job_uid,
        },
        "type": "Warning",
        "reason": REASON,
        "message": message(pod, found.has_succeeded),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:128],
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
