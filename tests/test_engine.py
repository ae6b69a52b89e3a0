"""The engine answers for any object, and never hides a bug of a rule."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import CASES, merged, policy_of, read
from webhook.core import engine, policy
from webhook.core.engine import Exempted, RuleError
from webhook.core.policy import Policy
from webhook.core.rule import Level, quoted, sentence
from webhook.rules import RULES

POLICY = policy_of()
EVERYTHING = policy_of(
    {
        "grace-budget": {"fix": True},
        "do-not-disrupt": {"services": "warn"},
        "restart-policy": {"on-failure": "convert"},
    },
    cronJobs={"fix": True},
    platform={"nodepools": {"batch": "10s"}},
)
KINDS = [
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("v1", "Pod"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
]
WORDS = st.sampled_from(
    [
        *(
            "metadata",
            "spec",
            "template",
            "jobTemplate",
            "annotations",
            "labels",
            "ownerReferences",
            "controller",
            "kind",
        ),
        *(
            "containers",
            "initContainers",
            "name",
            "lifecycle",
            "preStop",
            "exec",
            "command",
            "sleep",
            "seconds",
            "httpGet",
        ),
        *("restartPolicy", "podFailurePolicy", "podReplacementPolicy", "rules", "action", "onExitCodes", "operator"),
        *("onPodConditions", "type", "status", "values", "backoffLimit", "activeDeadlineSeconds", "tolerations", "key"),
        *(
            "terminationGracePeriodSeconds",
            "karpenter.sh/do-not-disrupt",
            "drainproof.dev/max-task-duration",
            "volumes",
        ),
        *(
            "drainproof.dev/max-run-duration",
            "drainproof.dev/mended",
            "drainproof.dev/ignore",
            "emptyDir",
            "nodeSelector",
        ),
    ]
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(
        ["true", "1d", "4h", "Never", "OnFailure", "Always", "Ignore", "FailJob", "DisruptionTarget", "True"]
    )
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5),
    max_leaves=25,
)


def shaped() -> st.SearchStrategy[Any]:
    """An object of a known kind in which any part is any JSON, and some parts are what a manifest has."""
    base = read(CASES / "grace-budget.yaml")["bases"]["batch"]
    patches = st.dictionaries(WORDS, JSON, max_size=4)
    specs = st.builds(
        lambda kind, spec, template, pod, meta: {
            **merged(base, {"spec": {**spec, "template": {**template, "spec": pod}}, "metadata": meta}),
            "apiVersion": kind[0],
            "kind": kind[1],
        },
        st.sampled_from(KINDS),
        patches,
        patches,
        patches,
        patches,
    )
    return specs | st.builds(
        lambda kind, rest: {**rest, "apiVersion": kind[0], "kind": kind[1]},
        st.sampled_from(KINDS),
        st.dictionaries(WORDS, JSON, max_size=5),
    )


@given(document=JSON | shaped(), old=JSON | shaped(), policy=st.sampled_from([POLICY, EVERYTHING]))
def test_no_json_makes_the_engine_raise(document: Any, old: Any, policy: Policy) -> None:
    before = copy.deepcopy(document)
    once = engine.mutate(document, policy)
    assert engine.mutate(once.object, policy).steps == ()
    engine.mutate(document, policy, old)
    engine.validate(document, policy)
    engine.validate(document, policy, old)
    for notice in engine.foresee(document, policy).notices:
        assert len(notice.message) <= 256
        assert notice.message.isprintable()
    assert document == before


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        "Job",
        [],
        {},
        {"kind": "Job"},
        {"kind": "Job", "apiVersion": "batch/v2beta9/x"},
        {"kind": 7, "apiVersion": 7},
    ],
)
def test_what_is_no_known_object_is_left_alone(document: Any) -> None:
    for verdict in (
        engine.mutate(document, POLICY),
        engine.validate(document, POLICY),
        engine.foresee(document, POLICY),
    ):
        assert verdict.left == "kind"
        assert verdict.object is document


def test_a_kind_of_another_group_is_not_ours() -> None:
    assert engine.mutate({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}, POLICY).left == "kind"


def test_the_version_of_a_group_does_not_matter() -> None:
    assert engine.foresee({"apiVersion": "batch/v1beta1", "kind": "CronJob"}, POLICY).left == ""


def test_a_rule_that_raises_is_named() -> None:
    def check(*_: Any) -> Iterator[Any]:
        raise ZeroDivisionError

    broken = policy.default([replace(rule, check=check) for rule in RULES])
    job = read(CASES / "restart-policy.yaml")["bases"]["job"]
    with pytest.raises(RuleError, match="exemption") as caught:
        engine.validate(job, broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_is_denied_and_what_is_warned_are_told_apart() -> None:
    job = merged(
        read(CASES / "grace-budget.yaml")["bases"]["batch"],
        {"spec": {"template": {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "1d"}}}}},
    )
    verdict = engine.validate(
        job, policy_of({"exit-code": {"level": "ignore"}, "active-deadline": {"level": "ignore"}})
    )
    assert [(notice.rule, notice.level) for notice in verdict.denied] == [("grace-budget", Level.DENY)]
    assert [(notice.rule, notice.level) for notice in verdict.warned] == [("do-not-disrupt", Level.WARN)]


def test_what_was_mended_and_from_what_an_object_is_exempt_is_told() -> None:
    job = merged(
        read(CASES / "restart-policy.yaml")["bases"]["job"],
        {"metadata": {"annotations": {"drainproof.dev/ignore.grace-budget": "split elsewhere"}}},
    )
    verdict = engine.mutate(job, POLICY)
    assert verdict.mended == ("restart-policy", "pod-failure-policy")
    assert verdict.exempt == (Exempted("grace-budget", "split elsewhere"),)


def test_a_message_that_is_too_long_keeps_its_field_and_its_rule() -> None:
    message = sentence(("spec", "x"), "many words " * 60, "grace-budget")
    assert len(message) == 256
    assert message.startswith("spec.x: many words")
    assert message.endswith("… (grace-budget)")


def test_a_message_is_one_line_of_what_can_be_printed() -> None:
    assert sentence((), "a\n\tb\x07c", "rule") == "a b?c (rule)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (True, "true"),
        (30, "30"),
        (1.5, "1.5"),
        ("text", '"text"'),
        ("a\nb", '"a\\nb"'),
        ("x" * 60, '"' + "x" * 37 + '…"'),
        ([], "a list"),
        ({}, "a map"),
    ],
)
def test_a_value_is_shown_short(value: Any, shown: str) -> None:
    assert quoted(value) == shown


def test_under_a_policy_that_monitors_a_verdict_says_what_would_have_been_done() -> None:
    monitored = policy_of({"grace-budget": {"level": "deny"}}, mode="monitor")
    job = merged(
        read(CASES / "restart-policy.yaml")["bases"]["job"],
        {"spec": {"template": {"metadata": {"annotations": {"drainproof.dev/max-task-duration": "40s"}}}}},
    )
    mutated, validated = engine.mutate(job, monitored), engine.validate(job, monitored)
    assert (mutated.monitored, validated.monitored) == (True, True)
    assert mutated.mended == ("restart-policy", "pod-failure-policy")
    assert [notice.rule for notice in validated.denied] == ["grace-budget"]
    assert [notice.rule for notice in validated.notices] == ["grace-budget", "active-deadline"]


def test_under_a_policy_that_monitors_an_update_answers_only_for_what_it_brings_in() -> None:
    monitored = policy_of(mode="monitor")
    job = read(CASES / "grace-budget.yaml")["bases"]["batch"]
    assert engine.validate(job, monitored, job).notices == ()


EXEMPT = [
    ({"namespaces": ["kube-*"]}, "kube-public", True),
    ({"namespaces": ["kube-*"]}, "data", False),
    ({"namespaces": ["data"], "kinds": ["Job"]}, "data", True),
    ({"namespaces": ["data"], "kinds": ["CronJob"]}, "data", False),
    ({"names": ["su?s"]}, "data", True),
    ({"names": ["Sums"]}, "data", False),
    ({"owners": ["CronJob"]}, "data", False),
]


@pytest.mark.parametrize(("exemption", "namespace", "exempt"), EXEMPT)
def test_a_policy_exempts_what_it_describes(exemption: dict[str, Any], namespace: str, exempt: bool) -> None:
    exempting = policy_of(exempt=[{"namespaces": ["never"]}, {**exemption, "reason": "moved to another cluster"}])
    job = merged(read(CASES / "restart-policy.yaml")["bases"]["job"], {"metadata": {"namespace": None}})
    verdict = engine.mutate(job, exempting, namespace=namespace)
    assert (verdict.left == "exempt") is exempt
    assert (verdict.steps == ()) is exempt
    assert verdict.exempt == ((Exempted("*", "moved to another cluster"),) if exempt else ())


def test_a_policy_exempts_by_owner() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}
    job = merged(read(CASES / "restart-policy.yaml")["bases"]["job"], {"metadata": {"ownerReferences": [owner]}})
    assert engine.foresee(job, policy_of(exempt=[{"owners": ["Cron*"]}])).exempt == (Exempted("*", "policy"),)


def test_the_namespace_that_an_object_names_counts_before_the_one_it_is_sent_to() -> None:
    relaxed = policy_of(overrides=[{"namespaces": ["data"], "rules": {"grace-budget": {"level": "ignore"}}}])
    job = read(CASES / "grace-budget.yaml")["bases"]["batch"]
    assert engine.validate(job, relaxed, namespace="other").denied == ()
    assert engine.validate(merged(job, {"metadata": {"namespace": None}}), relaxed, namespace="other").denied


def test_an_object_without_a_name_has_the_one_it_is_made_from() -> None:
    job = merged(
        read(CASES / "restart-policy.yaml")["bases"]["job"], {"metadata": {"name": None, "generateName": "sums-"}}
    )
    assert engine.mutate(job, policy_of(exempt=[{"names": ["sums-*"]}])).left == "exempt"


def test_a_service_is_never_rewritten() -> None:
    deployment = read(CASES / "grace-budget.yaml")["bases"]["job"]
    assert engine.mutate(deployment, EVERYTHING).left == "judged only"
    assert engine.mutate(deployment, EVERYTHING, deployment).left == "judged only"
