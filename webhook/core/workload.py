"""Where Job specs and Pod templates sit in each kind, and a view of them that reads without raising."""

from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from webhook.core.patch import Path, at, entries, mapping

Json = dict[str, Any]
PREFIX: Final = "drainproof.dev/"
DEFAULT_GRACE: Final = 30  # seconds; Kubernetes 1.37.2 pkg/apis/core/v1/defaults.go SetDefaults_PodSpec


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of object is laid out. A path is None where the kind has no such part."""

    name: str
    job: Path | None  # the Job spec
    template: Path | None  # the Pod template, or the Pod itself
    places: tuple[Path, ...]  # the metadata in which declarations count, the first one first


def _templated(name: str) -> Kind:
    return Kind(name, None, ("spec", "template"), (("spec", "template", "metadata"), ("metadata",)))


KINDS: Final = {
    ("batch", "Job"): Kind("Job", ("spec",), ("spec", "template"), (("spec", "template", "metadata"), ("metadata",))),
    ("batch", "CronJob"): Kind(
        "CronJob",
        ("spec", "jobTemplate", "spec"),
        ("spec", "jobTemplate", "spec", "template"),
        (("spec", "jobTemplate", "spec", "template", "metadata"), ("spec", "jobTemplate", "metadata"), ("metadata",)),
    ),
    ("", "Pod"): Kind("Pod", None, (), (("metadata",),)),
    ("apps", "Deployment"): _templated("Deployment"),
    ("apps", "StatefulSet"): _templated("StatefulSet"),
    ("apps", "DaemonSet"): _templated("DaemonSet"),
    ("apps", "ReplicaSet"): _templated("ReplicaSet"),
    ("policy", "PodDisruptionBudget"): Kind("PodDisruptionBudget", None, None, (("metadata",),)),
}
BATCH: Final = frozenset({"Job", "CronJob"})
SERVICES: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"})
MENDED: Final = BATCH | {"Pod"}
PODS: Final = BATCH | SERVICES | {"Pod"}  # whatever is a Pod or makes Pods
EVERY: Final = frozenset(kind.name for kind in KINDS.values())


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a Pod template; `path` leads to it."""

    name: str
    path: Path
    spec: Json


@dataclass(frozen=True, slots=True)
class Workload:
    """One object of a known kind, as rules read it: made by `look`. Nothing here raises, whatever the object holds."""

    root: Json
    kind: Kind
    job: Json  # the Job spec; empty where the kind has none
    pod: Json  # the Pod spec
    annotations: Json  # those that the Pod will carry
    containers: tuple[Container, ...]  # the regular ones, in order
    starters: tuple[Container, ...]  # the init containers, native sidecars among them
    declarations: dict[str, tuple[Path, Any]]  # ours, by the key without the prefix: where each stands, what it says

    @property
    def is_deferred(self) -> bool:
        """Whether the object only makes Jobs later: mutation meets those, not this object."""
        return self.kind.name == "CronJob"

    @property
    def is_mended(self) -> bool:
        """Whether mutation may change the object: a rewritten template of a service would roll it out."""
        return self.kind.name in MENDED

    @property
    def sidecars(self) -> tuple[Container, ...]:
        """The native sidecars: init containers that run until the regular containers have ended."""
        return tuple(c for c in self.starters if c.spec.get("restartPolicy") == "Always")

    @property
    def fillers(self) -> tuple[Container, ...]:
        """The init containers that run to their end before the regular containers start."""
        return tuple(c for c in self.starters if c.spec.get("restartPolicy") != "Always")

    @property
    def main(self) -> Container | None:
        """The container that does the work: the one annotated as the default, else the first."""
        named = self.annotations.get("kubectl.kubernetes.io/default-container")
        return next((c for c in self.containers if c.name == named), self.containers[0] if self.containers else None)

    @property
    def grace(self) -> int | None:
        """terminationGracePeriodSeconds as a Pod of this template will have it; None where it is no whole number.

        A negative value becomes 1 in each Pod (Kubernetes 1.37.2 pkg/apis/core/v1/defaults.go SetDefaults_Pod).
        """
        seconds = self.pod.get("terminationGracePeriodSeconds")
        if seconds is None:
            return DEFAULT_GRACE
        if not whole(seconds):
            return None
        return seconds if seconds >= 0 else 1

    @property
    def name(self) -> str:
        """The object's name, or what it will be made from; empty where it has neither."""
        return named(self.root)

    @property
    def namespace(self) -> str:
        """The namespace that the object names; empty where it names none."""
        return str(at(self.root, ("metadata", "namespace")) or "")

    @property
    def controller(self) -> str:
        """The kind of the controller that owns the object; empty where it has none."""
        owners = entries(self.root, "metadata", "ownerReferences")
        return next((str(at(o, ("kind",), "")) for o in owners if at(o, ("controller",)) is True), "")

    def at_job(self, *keys: str | int) -> Path:
        """The path of something in the Job spec."""
        return (*(self.kind.job or ()), *keys)

    def at_pod(self, *keys: str | int) -> Path:
        """The path of something in the Pod spec."""
        return (*(self.kind.template or ()), "spec", *keys)

    def at_annotation(self, key: str) -> Path:
        """The path of an annotation that the Pod will carry."""
        return (*(self.kind.template or ()), "metadata", "annotations", key)


def look(root: Json, kind: Kind) -> Workload:
    """The view of an object of a known kind."""
    job = mapping(root, *kind.job) if kind.job is not None else {}
    if kind.template is None:
        return Workload(root, kind, job, {}, {}, (), (), _declarations(root, kind))
    pod = mapping(root, *kind.template, "spec")
    return Workload(
        root,
        kind,
        job,
        pod,
        mapping(root, *kind.template, "metadata", "annotations"),
        _containers(pod, (*kind.template, "spec", "containers")),
        _containers(pod, (*kind.template, "spec", "initContainers")),
        _declarations(root, kind),
    )


def _containers(pod: Json, path: Path) -> tuple[Container, ...]:
    specs = enumerate(entries(pod, path[-1]))
    return tuple(Container(str(s.get("name", "")), (*path, i), s) for i, s in specs if isinstance(s, dict))


def _declarations(root: Json, kind: Kind) -> dict[str, tuple[Path, Any]]:
    """The Pod template counts before the Job, the Job before what makes the Job."""
    found: dict[str, tuple[Path, Any]] = {}
    for place in kind.places:
        for key, value in mapping(root, *place, "annotations").items():
            if isinstance(key, str) and key.startswith(PREFIX):
                found.setdefault(key[len(PREFIX) :], ((*place, "annotations", key), value))
    return found


def named(document: Any) -> str:
    """An object's name, or while it has none what it will be made from; empty where it has neither."""
    metadata = mapping(document, "metadata")
    return str(metadata.get("name") or metadata.get("generateName") or "")


def whole(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number (JSON true and false are not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def view(document: Any) -> Workload | None:
    """The view of an object; None where its kind is not one of KINDS or it is no object at all."""
    version, name = at(document, ("apiVersion",)), at(document, ("kind",))
    if not isinstance(version, str) or not isinstance(name, str):
        return None
    kind = KINDS.get((version.rpartition("/")[0], name))
    return look(document, kind) if kind and isinstance(document, dict) else None
