"""The engine answers for any object, and never hides a bug of a rule."""

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import CASES, merged, policy_of, read
from webhook.core import engine
from webhook.core.engine import RuleError
from webhook.core.policy import Policy
from webhook.core.rule import Level, quoted, sentence

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

    broken = replace(POLICY, rules=tuple(replace(rule, check=check) for rule in POLICY.rules))
    job = read(CASES / "restart-policy.yaml")["bases"]["job"]
    with pytest.raises(RuleError, match="exemption") as caught:
        engine.validate(job, broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_is_denied_and_what_is_warned_are_told_apart() -> None:
    job = merged(
        read(CASES / "grace-budget.yaml")["bases"]["batch"],
        {"spec": {"template": {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "1d"}}}}},
    )
    verdict = engine.validate(job, POLICY)
    assert [(notice.rule, notice.level) for notice in verdict.denied] == [("grace-budget", Level.DENY)]
    assert [(notice.rule, notice.level) for notice in verdict.warned] == [("do-not-disrupt", Level.WARN)]


def test_what_was_mended_and_from_what_an_object_is_exempt_is_told() -> None:
    job = merged(
        read(CASES / "restart-policy.yaml")["bases"]["job"],
        {"metadata": {"annotations": {"drainproof.dev/ignore.grace-budget": "split elsewhere"}}},
    )
    verdict = engine.mutate(job, POLICY)
    assert verdict.mended == ("restart-policy", "pod-failure-policy")
    assert verdict.exempt == ("grace-budget",)


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
