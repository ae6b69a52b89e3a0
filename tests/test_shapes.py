"""Objects as other systems make them: nothing valid is refused, and what another controller owns is left alone."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests import test_laws
from tests.kubernetes import refusals
from tests.tables import merged, policy_of, read, without_record
from webhook.core import engine, rule
from webhook.core.defaults import defaulted
from webhook.core.patch import dotted

SHAPES: Final = Path(__file__).parent / "shapes"
LONG: Final = 63  # characters: the longest name of a container, and of a Job, whose Pods carry it as a label
ANNOTATIONS: Final = 256 * 1024  # bytes: all that one object may have
LONGEST: Final = 253  # characters: the longest name of a Pod


@dataclass(frozen=True)
class Shape:
    """One object as its system sends it, what is done to it, and the later updates of its system.

    `mends` and `says` name rules; a foreign object belongs to a controller whose business it is, so they are empty.
    """

    name: str
    object: dict[str, Any]
    foreign: bool = False
    mends: list[str] = field(default_factory=list)
    says: list[str] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)

    @property
    def sent(self) -> dict[str, Any]:
        """The object as the API server sends it to a webhook."""
        document: dict[str, Any] = defaulted(self.object)
        return document


def job(name: str, *containers: dict[str, Any], **template: Any) -> dict[str, Any]:
    """A Job of these containers."""
    pod = {"restartPolicy": "Never", "containers": list(containers)}
    spec = {"template": merged({"spec": pod}, template)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "example.test/worker:1", **more}


def extremes() -> Iterator[Shape]:
    """Objects that are too large or too long to be written down."""
    injects, asks = ["pod-failure-policy"], ["active-deadline"]
    env = [{"name": f"VARIABLE_{number:05}", "value": f"{number:080}"} for number in range(10_000)]
    assert len(json.dumps(env)) > 1_000_000
    yield Shape("a Job with a megabyte of environment", job("large", container("c", env=env)), mends=injects, says=asks)
    names = [f"{number}-" + "n" * (LONG - 2) for number in range(9)]
    many = job("j" * LONG, *(container(name) for name in names))
    yield Shape("a Job and containers with the longest names", many, mends=injects, says=asks)
    kept = merged(many, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
    yield Shape("such a Job whose containers are restarted in their Pod", kept, says=["restart-policy"])
    hook = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "31"]}}}}
    names_pod = {"name": ".".join(["p" * LONG] * 3 + ["p" * (LONGEST - 3 * LONG - 3)])}
    long_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": names_pod}
    hooked = {**long_pod, "spec": {"restartPolicy": "Never", "containers": [container(names[0], **hook)]}}
    yield Shape("a Pod with the longest name and a long hook", hooked, says=["grace-budget"])
    mark = len("drainproof.dev/completion-guard" + "on")
    yield Shape("a Job whose Pods have just enough room for our annotation", annotated(mark), mends=injects, says=asks)
    yield Shape("a Job whose Pods have no room for it", annotated(mark - 1), says=injects)


def annotated(room: int) -> dict[str, Any]:
    """A Job whose Pod template has room for so many more bytes of annotations."""
    notes = {f"example.test/{number:04}": "x" * 240 for number in range(1000)}
    used = sum(len(key) + len(value) for key, value in notes.items())
    notes["example.test/rest"] = "x" * (ANNOTATIONS - used - len("example.test/rest") - room)
    return job("full", container("c"), metadata={"annotations": notes})


def shapes() -> list[Shape]:
    """Every shape, from the files and made here."""
    found = [Shape(**shape) for path in sorted(SHAPES.glob("*.yaml")) for shape in read(path)]
    return [*found, *extremes()]


ALL: Final = shapes()
every_shape = pytest.mark.parametrize("shape", [pytest.param(shape, id=shape.name) for shape in ALL])
foreign_shape = pytest.mark.parametrize("shape", [pytest.param(shape, id=shape.name) for shape in ALL if shape.foreign])
UPDATES: Final = [
    pytest.param(shape, number, id=f"{shape.name}: {update['name']}")
    for shape in ALL
    for number, update in enumerate(shape.updates)
]
Law = Callable[[Any, Any], None]
LAWS: Final[tuple[Law, ...]] = (
    test_laws.test_the_object_given_is_not_changed,
    test_laws.test_a_second_pass_changes_nothing_and_says_nothing_new,
    test_laws.test_every_step_applies_to_the_document_received,
    test_laws.test_what_kubernetes_accepts_before_it_accepts_after,
    test_laws.test_a_failure_policy_comes_with_failed_and_never,
    test_laws.test_applying_the_manifest_again_is_accepted_and_changes_nothing,
)


@every_shape
def test_a_shape_is_mended_and_spoken_of_as_its_file_says(shape: Shape) -> None:
    foreseen = engine.foresee(shape.sent, policy_of())
    mutated = engine.mutate(shape.sent, policy_of())
    assert list(mutated.mended) == shape.mends
    assert [notice.rule for notice in foreseen.notices] == shape.says
    assert bool(mutated.steps) == bool(shape.mends)


@every_shape
def test_nothing_valid_is_refused(shape: Shape) -> None:
    assert refusals(shape.sent) == []
    foreseen = engine.foresee(shape.sent, policy_of())
    assert foreseen.denied == ()
    assert refusals(foreseen.object) == []


@foreign_shape
def test_what_belongs_to_another_controller_stays_the_same_to_the_byte_in_silence(shape: Shape) -> None:
    before = json.dumps(shape.sent)
    for verdict in (engine.mutate(shape.sent, policy_of()), engine.validate(shape.sent, policy_of())):
        assert json.dumps(verdict.object) == before
        assert (verdict.steps, verdict.notices) == ((), ())
        assert verdict.left in ("owner", "managedBy")


@foreign_shape
def test_it_would_not_have_stayed_so_without_its_controller(shape: Shape) -> None:
    document = copy.deepcopy(shape.sent)
    document["metadata"].pop("ownerReferences", None)
    document["spec"].pop("managedBy", None)
    foreseen = engine.foresee(document, policy_of())
    assert foreseen.mended or foreseen.notices


@pytest.mark.parametrize("law", [pytest.param(law, id=law.__name__.removeprefix("test_")) for law in LAWS])
@every_shape
def test_the_laws_hold(shape: Shape, law: Law) -> None:
    law(shape.sent, policy_of())


@every_shape
def test_a_message_is_one_whole_line(shape: Shape) -> None:
    """As the law for the tables has it, but that a long value of the author's may be shortened inside its quotes."""
    for notice in engine.foresee(shape.sent, policy_of()).notices:
        assert len(notice.message) <= rule.LONGEST
        assert notice.message.isprintable()
        assert notice.message.startswith(f"{dotted(notice.path)}: ")
        assert notice.message.endswith(f" ({notice.rule})")
        assert "… (" not in notice.message


@every_shape
def test_only_what_a_rule_may_touch_is_changed(shape: Shape) -> None:
    after, _ = without_record(engine.mutate(shape.sent, policy_of()).object)
    assert without_the_mended(after) == without_the_mended(shape.sent)


def without_the_mended(document: dict[str, Any]) -> dict[str, Any]:
    """An object without the fields that mutation is for."""
    rest = copy.deepcopy(document)
    if rest["kind"] == "Job":
        for name in ("podFailurePolicy", "podReplacementPolicy"):
            rest["spec"].pop(name, None)
        rest["spec"]["template"]["spec"].pop("restartPolicy")
    pod = rest if rest["kind"] == "Pod" else rest["spec"].get("template", {})
    metadata = pod.get("metadata", {})
    for name in ("karpenter.sh/do-not-disrupt", "drainproof.dev/completion-guard"):
        metadata.get("annotations", {}).pop(name, None)
    if metadata.get("annotations") == {}:
        del metadata["annotations"]
    return rest


@pytest.mark.parametrize(("shape", "number"), UPDATES)
def test_an_update_of_its_system_is_neither_changed_nor_spoken_of(shape: Shape, number: int) -> None:
    stored = engine.mutate(shape.sent, policy_of()).object
    for update in shape.updates[:number]:
        stored = merged(stored, update["patch"])
    updated = merged(stored, shape.updates[number]["patch"])
    verdict = engine.mutate(updated, policy_of(), stored)
    assert verdict.steps == ()
    assert engine.validate(verdict.object, policy_of(), stored).notices == ()
