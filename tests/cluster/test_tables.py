"""The tables of the rules, through a real API server: offline and online cannot disagree."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.cluster import deployment
from tests.cluster.answer import Answer, create, essence
from tests.cluster.controlplane import ControlPlane
from tests.kubernetes import refusals
from tests.tables import CASES, Case, every_case, merged, policy_of, read
from webhook import observe, server
from webhook.core import engine
from webhook.core.defaults import defaulted
from webhook.core.engine import Verdict
from webhook.decoding import complaints

INPUTS = sorted((CASES / "inputs").glob("*.yaml"))


@pytest.fixture(scope="module")
def state(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.State]:
    """Our webhook in front of the control plane, with a policy that a test can set."""
    state = server.State(policy_of(), lambda: "")
    application = server.app(state, observe.metrics())
    with deployment.in_thread(application, tmp_path_factory.mktemp("webhook")) as endpoint:
        documents = deployment.configurations(endpoint)
        cron_jobs = copy.deepcopy(documents[0]["webhooks"][0])  # for policies that ask for it
        cron_jobs |= {"name": "cronjobs.mutate.drainproof.dev", "matchConditions": []}
        cron_jobs["rules"][0] |= {"resources": ["cronjobs"], "operations": ["CREATE"]}
        documents[0]["webhooks"].append(cron_jobs)
        with deployment.registered(control_plane, documents, deployment.mends_and_judges):
            control_plane.kubectl("create", "namespace", "data")
            yield state


def compare(answer: Answer, document: dict[str, Any], foreseen: Verdict) -> None:
    """Holds what the API server answered against what is said offline."""
    if list(complaints(document, lambda _: "")):
        assert "BadRequest" in answer.error or "error validating" in answer.error or "strict decoding" in answer.error
    elif refusals(foreseen.object if document["kind"] != "CronJob" or foreseen.mended else document):
        assert "is invalid" in answer.error
    elif foreseen.denied:
        assert answer.denied_by_us
        assert all(notice.message in answer.error for notice in foreseen.denied)
        assert answer.warnings == [notice.message for notice in foreseen.warned]
    else:
        assert answer.error == ""
        assert answer.admitted is not None
        assert answer.warnings == [notice.message for notice in foreseen.warned]


@pytest.mark.parametrize("case", [case for case in every_case() if case.values[0].old is None])
def test_the_api_server_and_the_table_agree(case: Case, state: server.State, control_plane: ControlPlane) -> None:
    state.policy = case.policy
    document = completed(case.given)
    foreseen = engine.foresee(defaulted(document), case.policy)
    answer = create(control_plane, document)
    compare(answer, document, foreseen)
    if answer.admitted is not None:
        rewritten = foreseen.object if document["kind"] != "CronJob" else engine.mutate(document, case.policy).object
        assert essence(answer.admitted) == essence(defaulted(rewritten))


def completed(given: dict[str, Any]) -> dict[str, Any]:
    """A table's object with what Kubernetes asks for and no rule looks at."""
    document = copy.deepcopy(given)
    document["metadata"].pop("deletionTimestamp", None)
    document["metadata"]["name"] = f"case-{document['kind'].lower()}"
    if document["kind"] == "PodDisruptionBudget":
        return document
    job = document["spec"]["jobTemplate"]["spec"] if document["kind"] == "CronJob" else document["spec"]
    pod = document["spec"] if document["kind"] == "Pod" else job["template"]["spec"]
    for container in [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]:
        container.setdefault("image", "example.test/c:1")
        for mount in container.get("volumeMounts") or []:
            mount.setdefault("mountPath", "/" + mount["name"])
    for volume in pod.get("volumes") or []:
        if "ephemeral" in volume:
            claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            volume["ephemeral"] = {"volumeClaimTemplate": {"spec": claim}}
    if document["apiVersion"] == "apps/v1":
        labels = {"labels": {"app": "case"}}
        job["template"] = merged(job["template"], {"metadata": labels})
        job["selector"] = {"matchLabels": labels["labels"]}
    return document


def documents() -> list[Any]:
    """The objects of public reports as their authors wrote them, but for custom kinds, as pytest parameters."""
    expected = read(CASES.parent / "public.yaml")["cases"]
    found = []
    for path in INPUTS:
        written = [document for document in load_all(path) if f"{document['apiVersion']}/{document['kind']}" in KINDS]
        for index, document in enumerate(written):
            name = f"{path.stem}.{index}"
            found.append(pytest.param(document, expected[name], id=name))
    return found


KINDS = {
    *("batch/v1/Job", "batch/v1/CronJob", "v1/Pod"),
    *(f"apps/v1/{kind}" for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
}


def load_all(path: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(path))


@pytest.mark.parametrize(("document", "expected"), documents())
def test_a_public_manifest_comes_out_as_it_must(
    document: dict[str, Any], expected: dict[str, Any], state: server.State, control_plane: ControlPlane
) -> None:
    state.policy = policy_of()
    document["metadata"]["namespace"] = "data"
    foreseen = engine.foresee(defaulted(document), state.policy)
    answer = create(control_plane, document)
    assert answer.admitted is not None, answer.error
    assert answer.warnings == [notice.message for notice in foreseen.warned]
    said = [notice["rule"] for notice in expected.get("found", [])] + expected.get("advice", [])
    assert sorted(said) == sorted(notice.rule for notice in foreseen.notices)
    rewritten = foreseen.object if document["kind"] != "CronJob" else document
    assert essence(answer.admitted) == essence(defaulted(rewritten))
    after = merged(defaulted(document), expected.get("after", {}))
    assert essence({**answer.admitted, "metadata": {}}) == essence({**after, "metadata": {}})
