"""The Job that an experiment watches: how it is made, and what becomes of it, as the API server was asked for it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.cluster import answer
from tests.cluster.controlplane import KubectlError
from tests.karpenter.pool import placed_on
from tests.karpenter.record import Call
from tests.karpenter.ring import Ring
from webhook.core.protection import KEY

OWNER: Final = "batch.kubernetes.io/job-name"
INITIALIZED: Final = r"{.metadata.labels.karpenter\.sh/initialized}"
INSTANCE: Final = "node.kubernetes.io/instance-type"
# For anything that takes Karpenter, the scheduler and KWOK seconds, on a machine that does many other things.
PATIENCE: Final = 240.0


@dataclass(frozen=True)
class Setting:
    """Where experiments run: a namespace of a ring, in which our webhook works or does not."""

    ring: Ring
    namespace: str


@dataclass(frozen=True)
class Subject:
    """A Job whose Pods run on the nodes of NodePool `pool`; `warnings` are what our webhook said of it."""

    setting: Setting
    name: str
    pool: str
    warnings: Sequence[str]
    stored: Mapping[str, Any]

    @property
    def protection(self) -> str | None:
        """What do-not-disrupt says on its Pods, as stored."""
        found: str | None = (self.stored["spec"]["template"]["metadata"].get("annotations") or {}).get(KEY)
        return found

    def first(self, fits: Callable[[Call], bool], seconds: float = PATIENCE) -> Call:
        """The first request since the Job was created that fits. Raises NotSeenError."""
        return self.setting.ring.record.first(fits, seconds)

    def pod(self, number: int) -> str:
        """The name of its Pod of that number, from 0, once there is one. Raises NotSeenError."""
        seen: list[str] = []

        def is_it(call: Call) -> bool:
            if call.is_for("CREATE", "pods") and self.owns(call):
                seen.append(call.name)
            return len(seen) > number

        self.first(is_it)
        return seen[number]

    def owns(self, call: Call) -> bool:
        """Whether a request is about a Pod of the Job, as its labels say."""
        labels = call.metadata.get("labels") or {}
        return call.namespace == self.setting.namespace and labels.get(OWNER) == self.name

    def runs(self, pod: str) -> Call:
        """The report that a Pod runs, once there is one. Raises NotSeenError."""
        return self.first(lambda call: call.is_for("UPDATE", "pods/status", pod) and call.status["phase"] == "Running")

    def goes(self, pod: str) -> Call:
        """The first request for a Pod to go, an eviction or a deletion, once there is one. Raises NotSeenError."""
        return self.first(lambda call: call.name == pod and _asks_to_go(call))

    def last(self, pod: str) -> Call:
        """The request by which a Pod went for good, with the Pod as it was then. Raises NotSeenError."""
        return self.first(lambda call: call.is_for("DELETE", "pods", pod) and call.grace == 0)

    def settled(self) -> None:
        """Wait until the Job has counted a failure, or has made another Pod without. Raises NotSeenError."""
        first = self.pod(0)
        self.first(
            lambda call: (
                (call.is_for("UPDATE", "jobs/status", self.name) and call.status.get("failed", 0) > 0)
                or (call.is_for("CREATE", "pods") and self.owns(call) and call.name != first)
            )
        )

    def event(self, reason: str, about: str) -> Call | None:
        """The first event so far with a reason, about an object of that name."""
        found = self.setting.ring.record.all(
            lambda call: call.resource == "events" and (call.object["reason"], call.about) == (reason, about)
        )
        return found[0] if found else None

    def node(self, pod: str) -> str:
        """The node to which a Pod was bound. Raises NotSeenError."""
        bound = self.first(lambda call: call.is_for("CREATE", "pods/binding", pod))
        name: str = bound.object["target"]["name"]
        return name

    def instance(self, node: str) -> str:
        """The type of machine that a node is. Raises NotSeenError."""
        made = self.first(lambda call: call.is_for("CREATE", "nodes", node))
        found: str = made.metadata["labels"][INSTANCE]
        return found

    def disrupt(self, pod: str) -> Call:
        """Delete the NodeClaim under a Pod, as `kubectl delete nodeclaim` does; the request. Raises NotSeenError."""
        plane, node = self.setting.ring.plane, self.node(pod)
        # From then on Karpenter owns it, and works on it without waiting for anything.
        plane.kubectl("wait", f"node/{node}", f"--for=jsonpath={INITIALIZED}=true", "--timeout=50s")
        (claim,) = (owner["name"] for owner in plane.get("node", node)["metadata"]["ownerReferences"])
        plane.kubectl("delete", "nodeclaim", claim, "--wait=false")
        return self.first(lambda call: call.is_for("DELETE", "nodeclaims", claim))

    def status(self) -> Mapping[str, Any]:
        """The status of the Job as it is now."""
        found: Mapping[str, Any] = self.setting.ring.plane.get("job", self.name, "-n", self.setting.namespace)["status"]
        return found

    def end(self) -> None:
        """Delete the Job and its NodePool, so that nodes are not in the way of others."""
        for words in (("job", self.name, "-n", self.setting.namespace), ("nodepool", self.pool)):
            self.setting.ring.plane.kubectl("delete", *words, "--wait=false", "--ignore-not-found")


def create(
    setting: Setting,
    name: str,
    protection: str | None = None,
    *,
    grace: int = 5,
    pool: str | None = None,
    **spec: Any,
) -> Subject:
    """Create a Job as `job` has it, on the nodes of a NodePool, by default the one of the Job's name.

    Raises KubectlError where the Job is refused.
    """
    document = job(pool or name, protection, grace=grace, **spec)
    document["metadata"] = {"name": name, "namespace": setting.namespace}
    made = answer.create(setting.ring.plane, document, dry_run=False)
    if made.admitted is None:
        raise KubectlError(made.error)
    return Subject(setting, name, pool or name, made.warnings, made.admitted)


@contextmanager
def created(setting: Setting, name: str, protection: str | None = None, **more: Any) -> Iterator[Subject]:
    """As `create`, until leaving."""
    made = create(setting, name, protection, **more)
    try:
        yield made
    finally:
        made.end()


def job(pool: str, protection: str | None = None, *, grace: int = 5, **spec: Any) -> dict[str, Any]:
    """A Job without a name, of one small Pod on the nodes of a NodePool.

    `protection` is what do-not-disrupt says, `grace` are seconds, `spec` is more of the Job's.
    """
    container = {"name": "main", "image": "example.test/main:1", "resources": {"requests": {"cpu": "500m"}}}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace,
        "containers": [container],
        **placed_on(pool),
    }
    metadata = {} if protection is None else {"metadata": {"annotations": {KEY: protection}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {**spec, "template": {**metadata, "spec": pod}}}


def _asks_to_go(call: Call) -> bool:
    return call.is_for("CREATE", "pods/eviction") or call.is_for("DELETE", "pods")
