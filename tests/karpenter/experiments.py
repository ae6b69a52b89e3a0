"""What Karpenter does to Pods of Jobs, one experiment a function: each says what was seen, and judges nothing.

All of them can run at once in one ring, for each has a NodePool of its own, which has the name of its Job. Times are
seconds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tests.karpenter import subject
from tests.karpenter.pool import node_pool, placed_on
from tests.karpenter.record import Call, NotSeenError
from tests.karpenter.subject import PATIENCE, Setting, Subject

BIG: Final = "6"  # processors of a Pod for which Karpenter takes a machine of 8
PASSING_SECONDS: Final = 5


@dataclass(frozen=True)
class Protection:
    """Whether a node with one small Pod on it was replaced by a smaller one.

    `stored` is do-not-disrupt as it is on the Pod. `elapsed` says after how many seconds of the Pod's run Karpenter
    told by the event DoNotDisruptGracePeriodElapsed that it protects no more, `replaced` after how many it evicted the
    Pod for a new node; None: not within the `watched` seconds. `failed` is what the Job counts.
    """

    stored: str | None
    warnings: Sequence[str]
    elapsed: float | None
    replaced: float | None
    watched: float
    evicted_by: str | None
    machines: Sequence[str]
    failed: int


@dataclass(frozen=True)
class Forced:
    """How a Pod went when the node under it was deleted, in a NodePool that limits how long that may take.

    `asked` is the request as VERB resource, by `user`, `after` seconds from the deletion of the node, with `grace`
    seconds. `disrupted` is the reason of its condition DisruptionTarget, None where it had none when it was gone.
    """

    stored: str | None
    warnings: Sequence[str]
    asked: str
    user: str
    after: float
    grace: int | None
    disrupted: str | None
    exit_code: int
    failed: int


@dataclass(frozen=True)
class Anew:
    """Two Pods of one Job, from each of which the node was taken as soon as it ran.

    `held` says for how long each ran before it was asked to go, and `asked` by whom; the Job ended for `reason`,
    `ended` seconds after its own start.
    """

    stored: str | None
    warnings: Sequence[str]
    held: Sequence[float]
    asked: Sequence[str]
    ended: float
    reason: str
    failed: int


def protection(setting: Setting, name: str, value: str, enough: Callable[[], bool] = lambda: False) -> Protection:
    """Let a Pod with do-not-disrupt `value` run alone on a machine that is far too big.

    Watches it until it is replaced, or until that is `enough`, such as once other Pods have been replaced.
    """
    setting.ring.add(node_pool(name))
    filler = _fill(setting, name)
    with subject.created(setting, name, value) as job:
        pod = job.pod(0)
        runs = job.runs(pod)
        setting.ring.plane.kubectl("delete", "pod", filler, "-n", setting.namespace, "--wait=false")
        evicted = _watched(job, pod, enough)
        machines = [job.instance(job.node(pod))]
        if evicted:
            replacement = job.pod(1)
            job.runs(replacement)
            machines.append(job.instance(job.node(replacement)))
        return Protection(
            stored=job.protection,
            warnings=job.warnings,
            elapsed=_after(runs, job.event("DoNotDisruptGracePeriodElapsed", pod)),
            replaced=_after(runs, evicted),
            watched=(evicted.at if evicted else time.time()) - runs.at,
            evicted_by=evicted.user if evicted else None,
            machines=machines,
            failed=job.status().get("failed", 0),
        )


def forced(setting: Setting, name: str, value: str | None = None, *, limit: int, grace: int, **spec: Any) -> Forced:
    """Delete the node under a Pod with so much `grace`, in a NodePool whose terminationGracePeriod is `limit`.

    `spec` is more of the Job's.
    """
    setting.ring.add(node_pool(name, f"{limit}s", consolidate_after="Never"))
    with subject.created(setting, name, value, grace=grace, **spec) as job:
        pod = job.pod(0)
        job.runs(pod)
        deleted = job.disrupt(pod)
        went = job.goes(pod)
        gone = job.last(pod)
        job.settled()
        conditions = [each for each in gone.status["conditions"] if each["type"] == "DisruptionTarget"]
        return Forced(
            stored=job.protection,
            warnings=job.warnings,
            asked=f"{went.verb} {went.resource}",
            user=went.user,
            after=went.at - deleted.at,
            grace=went.grace,
            disrupted=conditions[0]["reason"] if conditions else None,
            exit_code=gone.status["containerStatuses"][0]["state"]["terminated"]["exitCode"],
            failed=job.status().get("failed", 0),
        )


def anew(setting: Setting, name: str, value: str, *, deadline: int) -> Anew:
    """Take the node from a Pod as soon as it runs, and from the next one, in a Job with activeDeadlineSeconds."""
    setting.ring.add(node_pool(name, consolidate_after="Never"))
    runs, goes = [], []
    with subject.created(setting, name, value, activeDeadlineSeconds=deadline) as job:
        for number in (0, 1):
            pod = job.pod(number)
            runs.append(job.runs(pod))
            job.disrupt(pod)
            goes.append(job.goes(pod))
        ended = job.first(lambda call: call.is_for("UPDATE", "jobs/status", name) and bool(_failure(call)))
        started = datetime.fromisoformat(ended.status["startTime"])  # in whole seconds
        return Anew(
            stored=job.protection,
            warnings=job.warnings,
            held=[went.at - ran.at for ran, went in zip(runs, goes, strict=True)],
            asked=[went.user for went in goes],
            ended=ended.at - started.timestamp(),
            reason=_failure(ended),
            failed=job.status().get("failed", 0),
        )


def _fill(setting: Setting, name: str) -> str:
    """A Pod that asks for most of a machine, once it runs on one of NodePool `name`; its name. Raises NotSeenError."""
    filler = f"{name}-filler"
    container = {"name": "main", "image": "example.test/filler:1", "resources": {"requests": {"cpu": BIG}}}
    setting.ring.plane.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": filler, "namespace": setting.namespace},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **placed_on(name)},
        }
    )
    setting.ring.record.first(
        lambda call: call.is_for("UPDATE", "pods/status", filler) and call.status["phase"] == "Running", PATIENCE
    )
    return filler


def _watched(job: Subject, pod: str, enough: Callable[[], bool]) -> Call | None:
    """The request for a Pod to go, if it comes before that is enough. Raises NotSeenError when neither comes."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return job.first(lambda call: call.is_for("CREATE", "pods/eviction", pod), PASSING_SECONDS)
        except NotSeenError:
            if enough():
                return None
            if time.monotonic() > end or job.setting.ring.record.over.is_set():
                raise
        _pass_by(job)


def _pass_by(job: Subject) -> None:
    """Let a Pod come and go that nobody schedules.

    When it has found nothing to do, Karpenter v1.15.0 looks again only once a Pod or a node has come or gone, or after
    five minutes (pkg/controllers/state/cluster.go `ConsolidationState`); that time runs out is nothing to it.
    """
    plane, name = job.setting.ring.plane, f"{job.name}-passer-by"
    container = {"name": "main", "image": "example.test/passer-by:1"}
    metadata = {"name": name, "namespace": job.setting.namespace}
    spec = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0, "containers": [container]}
    plane.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    plane.kubectl("delete", "pod", name, "-n", job.setting.namespace, "--now", "--wait=false")


def _after(begin: Call, call: Call | None) -> float | None:
    return call.at - begin.at if call else None


def _failure(call: Call) -> str:
    """The reason for which a Job has failed; empty where it has not."""
    failing = [each for each in call.status.get("conditions", ()) if each["type"] == "Failed"]
    return str(failing[0].get("reason", "")) if failing else ""
