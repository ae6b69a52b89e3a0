"""Where experiments on a node are done: a ring with drainproof in it, and a record of all that happens there."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster import answer
from tests.cluster.answer import Answer
from tests.karpenter import ring as karpenter
from tests.karpenter.subject import Setting
from tests.lab.history import BEGINS, Pod, Story
from tests.lab.logind import Logind
from tests.lab.record import Record
from tests.node.ring import Ring

WITH: Final = "lab-with"
WITHOUT: Final = "lab-without"  # left out by its label drainproof.dev/inject: disabled
PATIENCE: Final = 90  # seconds for what comes within a few on a quiet machine


@dataclass(frozen=True)
class Bench:
    """One node with drainproof and Karpenter beside it, and what is recorded of it; `facts` are for the page."""

    ring: Ring
    karpenter: karpenter.Ring
    record: Record
    logind: Logind
    facts: Mapping[str, str] = field(default_factory=dict)

    def setting(self, namespace: str) -> Setting:
        """Where experiments with Karpenter run."""
        return Setting(self.karpenter, namespace)

    def ask(self, document: Mapping[str, Any], namespace: str) -> Answer:
        """What the API server says to a Job or Pod, without keeping it."""
        return answer.create(self.ring.plane, _named(document, namespace, "asked"))

    def start(self, document: Mapping[str, Any], namespace: str, name: str) -> "Trial":
        """A Job or Pod by this name, from now on."""
        self.ring.plane.create(_named(document, namespace, name))
        return Trial(self, namespace, name, str(document["kind"]))


@dataclass(frozen=True)
class Trial:
    """A Job or bare Pod of an experiment."""

    bench: Bench
    namespace: str
    name: str
    kind: str

    @property
    def story(self) -> Story:
        """What has become of it so far."""
        return self.bench.record.story(self.namespace, self.name)

    def until(self, holds: Callable[[Story], object], what: str, seconds: float = PATIENCE) -> Story:
        """The story as soon as something holds of it. Raises RecordError after `seconds`."""

        def told() -> Story | None:
            story = self.story
            return story if holds(story) else None

        return self.bench.record.until(told, f"{self.name} in {self.namespace}: {what}", seconds)

    def has_begun(self, number: int = 1, word: str = BEGINS) -> Pod:
        """Its Pod of this number as soon as its program has said so."""
        return self.until(
            lambda story: len(story.pods) >= number and story.pods[number - 1].said(word) is not None,
            f"Pod {number} says {word!r}",
        ).pods[number - 1]

    def has_ended(self, number: int = 1) -> Pod:
        """Its Pod of this number as soon as it is Succeeded or Failed and its containers' ends are known."""
        return self.until(
            lambda story: len(story.pods) >= number and _has_ended(story.pods[number - 1]), f"Pod {number} ends"
        ).pods[number - 1]

    def has_become(self, condition: str) -> Story:
        """The story as soon as the Job has this condition."""
        return self.until(lambda story: story.condition(condition), f"the Job is {condition}", 2 * PATIENCE)

    def evict(self, pod: Pod) -> None:
        """Ask for the eviction of a Pod, as kubectl drain does for each."""
        metadata = {"name": pod.name, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod.name}/eviction"
        self.bench.ring.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))

    def delete(self, pod: Pod) -> None:
        """kubectl delete pod."""
        self.bench.ring.kubectl("delete", "pod", pod.name, "--namespace", self.namespace, "--wait=false")

    def run(self, pod: Pod, *command: str) -> None:
        """Run a command in a Pod's container, which may end the container and with it itself."""
        self.bench.ring.kubectl("exec", pod.name, "--namespace", self.namespace, "--", *command, check=False)

    def end(self) -> Story:
        """Remove it; what had become of it before."""
        story = self.story
        words = ("delete", self.kind.lower(), self.name, "--namespace", self.namespace, "--ignore-not-found")
        self.bench.ring.kubectl(*words, "--wait=false")
        return story


def _has_ended(pod: Pod) -> bool:
    return pod.ended is not None and all(one.ended is not None for one in pod.containers)


def _named(document: Mapping[str, Any], namespace: str, name: str) -> dict[str, Any]:
    return {**document, "metadata": {**document.get("metadata", {}), "namespace": namespace, "name": name}}
