"""What a webhook rewrote does not stand in the way of the same manifest, or of anybody else's update."""

import copy
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest

from tests.cluster import deployment
from tests.cluster.answer import Answer, apply, create, diff, essence
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment
from tests.tables import CASES, RECORD, merged, read

NAMESPACE: Final = "reapply"
KEY: Final = "karpenter.sh/do-not-disrupt"
IGNORE: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
FAIL_JOB: Final = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
WAYS: Final = {"client-side": (), "server-side": ("--server-side",)}
IMMUTABLE: Final = "field is immutable"
REWRITTEN: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": NAMESPACE},
    "spec": {
        "backoffLimit": 4,
        "podFailurePolicy": {"rules": [FAIL_JOB]},
        "podReplacementPolicy": "TerminatingOrFailed",
        "template": {
            "metadata": {"annotations": {KEY: "true"}},
            "spec": {
                "restartPolicy": "OnFailure",
                "containers": [{"name": "worker", "image": "example.test/worker:1"}],
            },
        },
    },
}
OURS: Final = {
    "record": {
        "/spec/podFailurePolicy/rules": [FAIL_JOB],
        "/spec/podReplacementPolicy": "TerminatingOrFailed",
        "/spec/template/metadata/annotations/karpenter.sh~1do-not-disrupt": "true",
        "/spec/template/spec/restartPolicy": "OnFailure",
    },
    "podFailurePolicy": {"rules": [IGNORE, FAIL_JOB]},
    "podReplacementPolicy": "Failed",
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 30,
    "annotations": {KEY: "24h", "drainproof.dev/completion-guard": "on"},
}


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Our webhook, which the API server does not know yet."""
    control_plane.kubectl("create", "namespace", NAMESPACE)
    with deployment.serving(tmp_path_factory.mktemp("webhook")) as webhook:
        yield webhook


@pytest.fixture
def registered(control_plane: ControlPlane, webhook: Deployment) -> Iterator[None]:
    """Our webhook in front of the control plane."""
    with registering(control_plane, webhook):
        yield


def registering(plane: ControlPlane, webhook: Deployment) -> AbstractContextManager[None]:
    return deployment.registered(plane, deployment.configurations(webhook), deployment.mends_and_judges)


def rewritten(name: str, **spec: Any) -> dict[str, Any]:
    """A Job of which four values are rewritten, and what its spec says besides."""
    document: dict[str, Any] = merged(REWRITTEN, {"metadata": {"name": name}, "spec": spec})
    return document


def public(name: str, **metadata: Any) -> dict[str, Any]:
    """A public manifest in the namespace of these tests, with other `metadata`."""
    found = sorted((CASES / "inputs").glob(f"{name}-*.yaml"))
    document: dict[str, Any] = merged(read(found[0]), {"metadata": {"namespace": NAMESPACE, **metadata}})
    return document


def stored(plane: ControlPlane, name: str) -> dict[str, Any]:
    return plane.get("job", name, "-n", NAMESPACE)


def patched(plane: ControlPlane, name: str, patch: dict[str, Any]) -> Answer:
    """What comes of a JSON Merge Patch, which kubectl sends as it is."""
    words = ("patch", "job", name, "-n", NAMESPACE, "--type=merge", "-p", json.dumps(patch), "-o", "json")
    done = plane.kubectl(*words, check=False)
    return Answer(json.loads(done.stdout) if done.returncode == 0 else None, [], done.stderr)


def accepted(answer: Answer) -> dict[str, Any]:
    """The object of an answer that is no refusal."""
    assert answer.admitted is not None, answer.error
    return answer.admitted


def wait_until_suspended(plane: ControlPlane, name: str) -> None:
    """Returns once the Job controller has seen that a Job is suspended: only then Kubernetes lets others change it."""
    plane.kubectl("wait", f"job/{name}", "-n", NAMESPACE, "--for=condition=Suspended", "--timeout=20s")


def wait_until_running(plane: ControlPlane, name: str) -> None:
    plane.kubectl("wait", f"job/{name}", "-n", NAMESPACE, "--for=jsonpath={.status.active}", "--timeout=20s")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
@pytest.mark.parametrize("way", WAYS)
def test_an_unchanged_manifest_is_applied_again_and_changes_nothing(
    way: str, suspend: bool, control_plane: ControlPlane
) -> None:
    flags = WAYS[way]
    document = rewritten(f"{way}-{suspend}".lower(), suspend=suspend)
    name = document["metadata"]["name"]
    first = accepted(apply(control_plane, document, *flags))
    assert essence(first) == OURS
    (wait_until_suspended if suspend else wait_until_running)(control_plane, name)
    for _ in range(2):
        again = apply(control_plane, document, *flags)
        assert accepted(again)["spec"] == first["spec"]
        assert accepted(again)["metadata"]["generation"] == 1
        assert accepted(again)["metadata"]["annotations"][RECORD] == first["metadata"]["annotations"][RECORD]
        assert again.warnings == []
    assert diff(control_plane, document, *flags) == ""
    settled = stored(control_plane, name)["metadata"]["resourceVersion"]
    assert accepted(apply(control_plane, document, *flags))["metadata"]["resourceVersion"] == settled


@pytest.mark.usefixtures("registered")
def test_going_over_to_server_side_apply_takes_force_conflicts_once(control_plane: ControlPlane) -> None:
    # The API server looks for conflicts between managers of fields before it asks any webhook.
    document = rewritten("going-over")
    first = accepted(apply(control_plane, document))
    assert "Apply failed with 4 conflicts" in apply(control_plane, document, "--server-side").error
    assert accepted(apply(control_plane, document, "--server-side", "--force-conflicts"))["spec"] == first["spec"]
    assert accepted(apply(control_plane, document, "--server-side"))["spec"] == first["spec"]
    assert diff(control_plane, document, "--server-side") == ""


@pytest.mark.parametrize("way", WAYS)
def test_without_the_webhook_the_same_manifest_is_refused(
    way: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    document = rewritten(f"{way}-abandoned")
    with registering(control_plane, webhook):
        first = accepted(apply(control_plane, document, *WAYS[way]))
    deployment.wait_until_alone(control_plane)
    again = apply(control_plane, document, *WAYS[way])
    assert again.admitted is None
    assert IMMUTABLE in again.error
    assert "spec.podFailurePolicy" in again.error
    assert "spec.template" in again.error
    assert stored(control_plane, first["metadata"]["name"])["spec"] == first["spec"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "change",
    [
        {"template": {"metadata": {"annotations": {KEY: "2h"}}}},
        {"template": {"spec": {"terminationGracePeriodSeconds": 60}}},
        {"podFailurePolicy": {"rules": [{**FAIL_JOB, "action": "Count"}]}},
        {"completionMode": "Indexed", "completions": 1},
    ],
    ids=["another protection", "another grace period", "another rule", "another completion mode"],
)
def test_a_change_to_what_cannot_change_in_a_running_job_is_refused_by_kubernetes(
    change: dict[str, Any], way: str, control_plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    name = request.node.callspec.id.replace(" ", "-")
    first = accepted(apply(control_plane, rewritten(name), *WAYS[way]))
    wait_until_running(control_plane, name)
    answer = apply(control_plane, rewritten(name, **change), *WAYS[way])
    assert answer.admitted is None
    assert IMMUTABLE in answer.error
    assert not answer.denied_by_us
    assert stored(control_plane, name)["spec"] == first["spec"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("way", WAYS)
def test_on_failure_in_a_job_that_was_written_with_never_is_judged_by_kubernetes(
    way: str, control_plane: ControlPlane
) -> None:
    never = {"template": {"spec": {"restartPolicy": "Never"}}}
    first = accepted(apply(control_plane, rewritten(f"{way}-never", **never), *WAYS[way]))
    assert first["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    answer = apply(control_plane, rewritten(f"{way}-never"), *WAYS[way])
    assert answer.admitted is None
    assert IMMUTABLE in answer.error


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("way", WAYS)
def test_what_can_change_in_a_running_job_changes_and_nothing_else(way: str, control_plane: ControlPlane) -> None:
    first = accepted(apply(control_plane, rewritten(f"{way}-mutable"), *WAYS[way]))
    changed = rewritten(f"{way}-mutable", backoffLimit=9, parallelism=2)
    again = accepted(apply(control_plane, changed, *WAYS[way]))
    assert again["spec"] == {**first["spec"], "backoffLimit": 9, "parallelism": 2}
    assert diff(control_plane, changed, *WAYS[way]) == ""


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("way", WAYS)
def test_a_new_protection_of_a_suspended_job_is_stored(way: str, control_plane: ControlPlane) -> None:
    name = f"{way}-unprotected"
    first = accepted(apply(control_plane, rewritten(name, suspend=True), *WAYS[way]))
    wait_until_suspended(control_plane, name)
    changed = rewritten(name, suspend=True, template={"metadata": {"annotations": {KEY: "2h"}}})
    again = accepted(apply(control_plane, changed, *WAYS[way]))
    expected = {"template": {"metadata": {"annotations": {KEY: "2h"}}}}
    assert again["spec"] == merged(first["spec"], expected)
    assert diff(control_plane, changed, *WAYS[way]) == ""


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("way", WAYS)
def test_an_author_who_writes_what_is_stored_is_accepted(way: str, control_plane: ControlPlane) -> None:
    first = accepted(apply(control_plane, rewritten(f"{way}-adopted"), *WAYS[way]))
    adopted = rewritten(
        f"{way}-adopted",
        podFailurePolicy={"rules": [IGNORE, FAIL_JOB]},
        podReplacementPolicy="Failed",
        template={"metadata": {"annotations": {KEY: "24h"}}, "spec": {"restartPolicy": "Never"}},
    )
    assert accepted(apply(control_plane, adopted, *WAYS[way]))["spec"] == first["spec"]
    assert diff(control_plane, adopted, *WAYS[way]) == ""


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "record",
    ["nonsense", "[]", '{"/spec/backoffLimit":3}', "null", "{" * 5000],
    ids=["nonsense", "list", "a path that no rule rewrites", "null", "deep"],
)
def test_a_forged_record_changes_nothing(
    record: str, control_plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    name = f"forged-{request.node.callspec.id}".replace(" ", "-")
    # Nothing is rewritten, so that the record stays as it is written.
    spec = {"podFailurePolicy": {"rules": [IGNORE]}, "podReplacementPolicy": "Failed"}
    template = {"metadata": {"annotations": {KEY: "2h"}}, "spec": {"restartPolicy": "Never"}}
    document = rewritten(name, **spec, template=template)
    document["metadata"]["annotations"] = {RECORD: record}
    first = accepted(create(control_plane, document, dry_run=False))
    assert first["metadata"]["annotations"] == {RECORD: record}
    answer = patched(control_plane, name, {"metadata": {"labels": {"a": "b"}}, "spec": {"backoffLimit": 3}})
    assert accepted(answer)["spec"] == {**first["spec"], "backoffLimit": 3}
    assert accepted(answer)["metadata"]["annotations"] == {RECORD: record}
    refused = patched(control_plane, name, {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}})
    assert IMMUTABLE in refused.error


@pytest.mark.usefixtures("registered")
def test_a_forged_record_of_a_job_that_is_rewritten_does_not_spoil_the_true_one(control_plane: ControlPlane) -> None:
    document = rewritten("forged")
    document["metadata"]["annotations"] = {RECORD: "nonsense"}
    assert essence(accepted(create(control_plane, document, dry_run=False))) == OURS


def test_058_a_job_older_than_the_webhook_loses_its_finalizer_and_nothing_else(
    control_plane: ControlPlane, webhook: Deployment
) -> None:
    deployment.wait_until_alone(control_plane)
    first = accepted(create(control_plane, public("058"), dry_run=False))
    assert "podFailurePolicy" not in first["spec"]
    with registering(control_plane, webhook):
        again = accepted(patched(control_plane, "presync", {"metadata": {"finalizers": None}}))
    assert again["spec"] == first["spec"]
    assert again["metadata"]["annotations"] == first["metadata"]["annotations"]
    assert "finalizers" not in again["metadata"]


def test_059_a_job_older_than_the_webhook_gets_a_label_and_nothing_else(
    control_plane: ControlPlane, webhook: Deployment
) -> None:
    deployment.wait_until_alone(control_plane)
    first = accepted(apply(control_plane, public("059", labels=None)))
    with registering(control_plane, webhook):
        again = apply(control_plane, public("059"))
    assert accepted(again)["spec"] == first["spec"]
    assert RECORD not in accepted(again)["metadata"]["annotations"]
    assert accepted(again)["metadata"]["labels"]["touched-by"] == "someone"
    assert again.warnings == []
    called = [line["deed"] for line in webhook.decided() if line["name"] == "long-runner"]
    assert called == ["validate"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("case", "annotations"),
    [
        ("067", {KEY: "24h", "drainproof.dev/completion-guard": "on"}),
        ("070", {"drainproof.dev/completion-guard": "on"}),
    ],
)
def test_067_and_070_kueue_starts_a_suspended_job_in_one_update(
    case: str, annotations: dict[str, str], control_plane: ControlPlane
) -> None:
    first = accepted(create(control_plane, public(case), dry_run=False))
    name = first["metadata"]["name"]
    assert first["spec"]["template"]["metadata"]["annotations"] == annotations
    assert first["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
    wait_until_suspended(control_plane, name)
    pool = {"nodeSelector": {"example.test/pool": "spot"}}
    again = accepted(patched(control_plane, name, {"spec": {"suspend": False, "template": {"spec": pool}}}))
    assert again["spec"] == merged(first["spec"], {"suspend": False, "template": {"spec": pool}})
    wait_until_running(control_plane, name)


@pytest.mark.usefixtures("registered")
def test_a_job_that_kueue_started_can_be_suspended_again_by_its_manifest(control_plane: ControlPlane) -> None:
    document = rewritten("started", suspend=True)
    first = accepted(apply(control_plane, document))
    wait_until_suspended(control_plane, "started")
    started = {"suspend": False, "template": {"spec": {"nodeSelector": {"example.test/pool": "spot"}}}}
    accepted(patched(control_plane, "started", {"spec": started}))
    wait_until_running(control_plane, "started")
    again = accepted(apply(control_plane, document))
    assert again["spec"] == merged(first["spec"], {**started, "suspend": True})


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("name", ["going", "going-replaced"])
def test_a_job_that_is_being_deleted_loses_its_finalizer_and_goes(name: str, control_plane: ControlPlane) -> None:
    document = rewritten(name)
    document["metadata"]["finalizers"] = ["example.test/hold"]
    accepted(create(control_plane, document, dry_run=False))
    control_plane.kubectl("delete", "job", name, "-n", NAMESPACE, "--wait=false")
    held = stored(control_plane, name)
    assert held["metadata"]["deletionTimestamp"]
    if name == "going":
        accepted(patched(control_plane, name, {"metadata": {"finalizers": None}}))
    else:
        without = copy.deepcopy(held)
        without["metadata"]["finalizers"] = [f for f in held["metadata"]["finalizers"] if f != "example.test/hold"]
        control_plane.kubectl("replace", "-f", "-", input=json.dumps(without))
    control_plane.kubectl("wait", f"job/{name}", "-n", NAMESPACE, "--for=delete", "--timeout=20s")
