"""Objects as other systems make them, through a real API server with our webhook as a process in front of it."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.cluster import deployment
from tests.cluster.answer import create, essence
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment
from tests.tables import merged, policy_of
from tests.test_shapes import ALL, Shape, every_shape, foreign_shape
from webhook.core import engine
from webhook.core.defaults import defaulted

WITH: Final = "shapes"
WITHOUT: Final = "unshaped"
GENERATED: Final = ("batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-name", "job-name")
updated_shape = pytest.mark.parametrize("shape", [pytest.param(shape, id=shape.name) for shape in ALL if shape.updates])


def placed(shape: Shape, namespace: str) -> dict[str, Any]:
    """The object of a shape in a namespace."""
    document: dict[str, Any] = merged(shape.object, {"metadata": {"namespace": namespace}})
    return document


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Our webhook as a process in front of the control plane, but for one namespace."""
    disabled = {"drainproof.dev/inject": "disabled"}
    for name, labels in ((WITH, {}), (WITHOUT, disabled)):
        metadata = {"name": name, "labels": labels}
        control_plane.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        control_plane.kubectl("wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=20s")
    with deployment.serving(tmp_path_factory.mktemp("webhook")) as webhook:
        documents = deployment.configurations(webhook)
        with deployment.registered(control_plane, documents, deployment.mends_and_judges):
            yield webhook


@pytest.fixture(scope="module")
def unaided(control_plane: ControlPlane, webhook: Deployment) -> dict[str, dict[str, Any]]:  # noqa: ARG001 - set up
    """What Kubernetes alone makes of each shape: it accepts every one of them."""
    documents = [placed(shape, WITHOUT) for shape in ALL]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    answers = control_plane.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=text).stdout
    return {shape.name: answer for shape, answer in zip(ALL, _documents(answers), strict=True)}


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """The JSON documents that stand one after another."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        yield from document["items"] if document["kind"] == "List" else [document]
        while text[position : position + 1].isspace():
            position += 1


def asked_for(document: dict[str, Any]) -> dict[str, Any]:
    """An admitted object without its namespace, its status, and what the API server makes up anew each time."""
    made_up = {"namespace": None, "uid": None, "creationTimestamp": None, "managedFields": None}
    if "generateName" in document["metadata"]:
        made_up["name"] = None
    labels = dict.fromkeys(GENERATED)
    patch: dict[str, Any] = {"metadata": made_up, "status": None}
    if document["kind"] == "Job" and not document["spec"].get("manualSelector"):
        patch["metadata"]["labels"] = labels
        patch["spec"] = {"selector": None, "template": {"metadata": {"labels": labels}}}
    rest: dict[str, Any] = merged(document, patch)
    if document["kind"] == "Pod":  # each has a volume with its token under a name of its own
        tokens = [v["name"] for v in rest["spec"].get("volumes", []) if v["name"].startswith("kube-api-access-")]
        rest = json.loads(_without(json.dumps(rest), tokens))
    return rest


def _without(text: str, names: list[str]) -> str:
    for name in names:
        text = text.replace(name, "kube-api-access")
    return text


@every_shape
def test_the_api_server_and_offline_agree(
    shape: Shape, unaided: dict[str, dict[str, Any]], control_plane: ControlPlane
) -> None:
    assert unaided[shape.name]["kind"] == shape.object["kind"]
    foreseen = engine.foresee(defaulted(placed(shape, WITH)), policy_of())
    answer = create(control_plane, placed(shape, WITH))
    assert answer.admitted is not None, answer.error
    assert answer.warnings == [notice.message for notice in foreseen.warned]
    rewritten = foreseen.object if shape.object["kind"] != "CronJob" else placed(shape, WITH)
    assert essence(answer.admitted) == essence(defaulted(rewritten))


@every_shape
def test_what_is_not_mended_stays_as_kubernetes_alone_has_it(
    shape: Shape, unaided: dict[str, dict[str, Any]], control_plane: ControlPlane
) -> None:
    admitted = create(control_plane, placed(shape, WITH)).admitted
    assert admitted is not None
    ours, theirs = asked_for(admitted), asked_for(unaided[shape.name])
    if shape.mends:
        assert ours != theirs
        ours, theirs = without_the_mended(ours), without_the_mended(theirs)
    assert ours == theirs


def without_the_mended(document: dict[str, Any]) -> dict[str, Any]:
    """A Job or a Pod without what mutation is for."""
    marks = dict.fromkeys(("karpenter.sh/do-not-disrupt", "drainproof.dev/completion-guard", "drainproof.dev/mended"))
    policies = {"podFailurePolicy": None, "podReplacementPolicy": None}
    template = {"metadata": {"annotations": marks}, "spec": {"restartPolicy": None}}
    spec = {**policies, "template": template} if document["kind"] == "Job" else {}
    rest: dict[str, Any] = merged(document, {"metadata": {"annotations": marks}, "spec": spec})
    for metadata in (rest["metadata"], rest["spec"].get("template", {}).get("metadata", {})):
        if metadata.get("annotations") == {}:
            del metadata["annotations"]
    return rest


@foreign_shape
def test_what_another_controller_owns_is_admitted_in_silence_to_the_byte(
    shape: Shape, unaided: dict[str, dict[str, Any]], control_plane: ControlPlane
) -> None:
    done = control_plane.kubectl(
        *("create", "--dry-run=server", "-o", "json", "-f", "-"), input=json.dumps(placed(shape, WITH))
    )
    assert json.dumps(asked_for(json.loads(done.stdout))) == json.dumps(asked_for(unaided[shape.name]))
    assert "drainproof" not in done.stderr
    assert not [line for line in done.stderr.splitlines() if "(" in line]


@updated_shape
def test_the_updates_of_its_system_go_through_in_silence(shape: Shape, control_plane: ControlPlane) -> None:
    name = shape.object["metadata"]["name"]
    stored = create(control_plane, placed(shape, WITH), dry_run=False)
    assert stored.admitted is not None, stored.error
    for update in shape.updates:
        words = ("patch", "job", name, "-n", WITH, "--type=merge", "-o", "json", "-p", json.dumps(update["patch"]))
        before = control_plane.get("job", name, "-n", WITH)
        done = control_plane.kubectl(*words)
        assert done.stderr == "", update["name"]
        after = merged(json.loads(done.stdout), {"status": None, "metadata": None})
        assert after == merged(merged(before, update["patch"]), {"status": None, "metadata": None})
