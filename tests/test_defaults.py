"""What the API server makes of a manifest, against what a real one (v1.37.2) sent."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.core import engine, policy
from webhook.core.defaults import defaulted
from webhook.core.patch import at
from webhook.core.workload import KINDS
from webhook.manifest import read
from webhook.rules import RULES

CASES = Path(__file__).parent / "cases"
POLICY = policy.default(RULES)
CAPTURED = sorted(path.name.removesuffix(".mutate.json") for path in (CASES / "reviews").glob("*.mutate.json"))
JOB_FIELDS = (
    "completions",
    "parallelism",
    "backoffLimit",
    "completionMode",
    "suspend",
    "manualSelector",
    "podReplacementPolicy",
    "podFailurePolicy",
    "activeDeadlineSeconds",
)


def pair(case: str) -> tuple[Any, Any]:
    """The manifest of a case, and the object that the API server sent for it."""
    name, _, index = case.rpartition(".")
    manifest = read(name, (CASES / "inputs" / f"{name}.yaml").read_bytes())
    objects = [at(d.data, i.path) for d in manifest.documents for i in d.items]
    sent = json.loads((CASES / "reviews" / f"{case}.mutate.json").read_text())["request"]["object"]
    wanted = (sent["kind"], sent["metadata"].get("name"))
    for own in [objects[int(index)], *objects] if int(index) < len(objects) else objects:
        if (own["kind"], own["metadata"].get("name")) == wanted:
            return own, sent
    raise AssertionError(f"{case} has no manifest")


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": spec}


@pytest.mark.parametrize("case", CAPTURED)
def test_the_engine_cannot_tell_a_defaulted_manifest_from_what_the_api_server_sent(case: str) -> None:
    own, sent = pair(case)
    ours, theirs = engine.foresee(defaulted(own), POLICY), engine.foresee(sent, POLICY)
    assert ours.wishes == theirs.wishes
    assert ours.notices == theirs.notices
    assert (ours.left, ours.exempt) == (theirs.left, theirs.exempt)


@pytest.mark.parametrize("case", CAPTURED)
def test_each_field_that_a_rule_reads_is_what_the_api_server_sent(case: str) -> None:
    own, sent = pair(case)
    ours = defaulted(own)
    kind = KINDS[(sent["apiVersion"].rpartition("/")[0], sent["kind"])]
    assert ours["metadata"].get("labels") == sent["metadata"].get("labels")
    assert ours["metadata"].get("annotations") == sent["metadata"].get("annotations")
    for path in [(*kind.job, field) for field in JOB_FIELDS] if kind.job else []:
        assert at(ours, path) == at(sent, path), path
    assert kind.template is not None
    for path in (("spec", "restartPolicy"), ("spec", "terminationGracePeriodSeconds"), ("metadata", "annotations")):
        assert at(ours, (*kind.template, *path)) == at(sent, (*kind.template, *path)), path


def test_backoff_limit_is_the_largest_number_beside_a_limit_per_index() -> None:
    assert defaulted(job())["spec"]["backoffLimit"] == 6
    assert defaulted(job(backoffLimitPerIndex=1))["spec"]["backoffLimit"] == 2147483647
    assert defaulted(job(backoffLimitPerIndex=1, backoffLimit=3))["spec"]["backoffLimit"] == 3


def test_completions_stay_open_where_only_parallelism_is_given() -> None:
    assert "completions" not in defaulted(job(parallelism=3))["spec"]
    assert defaulted(job(completions=3))["spec"]["parallelism"] == 1
    assert defaulted(job(completions=None, parallelism=None))["spec"]["completions"] == 1


@pytest.mark.parametrize(("given_policy", "becomes"), [({}, "Failed"), (None, "TerminatingOrFailed")])
def test_the_replacement_policy_goes_by_the_presence_of_a_failure_policy(given_policy: Any, becomes: str) -> None:
    assert defaulted(job(podFailurePolicy=given_policy))["spec"]["podReplacementPolicy"] == becomes


def test_null_rules_stay_in_a_failure_policy_that_is_there() -> None:
    assert defaulted(job(podFailurePolicy={"rules": None}))["spec"]["podFailurePolicy"] == {"rules": None}
    assert defaulted(job(podFailurePolicy={}))["spec"]["podFailurePolicy"] == {"rules": None}


def test_a_condition_without_status_means_true() -> None:
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "A"}, {"type": "B", "status": ""}]}, {"onExitCodes": {}}]
    assert defaulted(job(podFailurePolicy={"rules": rules}))["spec"]["podFailurePolicy"]["rules"] == [
        {"action": "Ignore", "onPodConditions": [{"type": "A", "status": "True"}, {"type": "B", "status": "True"}]},
        {"onExitCodes": {"values": None}},
    ]


def test_a_job_takes_the_labels_of_its_template_only_where_it_has_none() -> None:
    template = {"metadata": {"labels": {"a": "b", "c": None}}}
    assert defaulted(job(template=template))["metadata"]["labels"] == {"a": "b", "c": ""}
    labelled = job(template=template)
    labelled["metadata"]["labels"] = {"own": "1"}
    assert defaulted(labelled)["metadata"]["labels"] == {"own": "1"}


def test_a_cron_job_gets_defaults_for_its_pods_and_not_for_its_jobs() -> None:
    document = {"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {}}}}
    spec = defaulted(document)["spec"]["jobTemplate"]["spec"]
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert set(spec) == {"template"}


def test_a_negative_grace_becomes_one_in_a_pod_and_stays_in_a_template() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"terminationGracePeriodSeconds": -5}}
    assert defaulted(pod)["spec"]["terminationGracePeriodSeconds"] == 1
    spec = defaulted(job(template={"spec": {"terminationGracePeriodSeconds": -5}}))["spec"]
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == -5


def test_a_volume_without_a_source_is_an_empty_dir() -> None:
    volumes = [{"name": "a"}, {"name": "b", "emptyDir": None}, {"name": "c", "secret": {}}]
    spec = defaulted(job(template={"spec": {"volumes": volumes}}))["spec"]["template"]["spec"]
    assert spec["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "emptyDir": {}},
        {"name": "c", "secret": {}},
    ]


@pytest.mark.parametrize(
    "spec", [3, "x", [], {"template": 3}, {"template": {"spec": []}}, {"template": {"metadata": 1}}]
)
def test_what_cannot_be_decoded_is_left_standing(spec: Any) -> None:
    document = {"apiVersion": "batch/v1", "kind": "Job", "metadata": 7, "spec": spec}
    assert defaulted(document)["metadata"] == 7


def test_a_document_nested_deeper_than_any_field_does_not_raise() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert defaulted(job(template=deep))["kind"] == "Job"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "Always", "True", "x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "spec",
                    "template",
                    "metadata",
                    "labels",
                    "annotations",
                    "podFailurePolicy",
                    "rules",
                    "onExitCodes",
                    "onPodConditions",
                    "status",
                    "volumes",
                    "jobTemplate",
                    "backoffLimitPerIndex",
                    "completions",
                    "terminationGracePeriodSeconds",
                    "name",
                    "containers",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=400, deadline=None)
@given(JSON, st.sampled_from([*KINDS, ("x", "Y")]))
def test_no_json_makes_it_raise_and_a_second_time_changes_nothing(document: Any, kind: tuple[str, str]) -> None:
    if isinstance(document, dict):
        document = {**document, "apiVersion": f"{kind[0]}/v1".lstrip("/"), "kind": kind[1]}
    before = copy.deepcopy(document)
    once = defaulted(document)
    assert document == before
    assert defaulted(once) == once
