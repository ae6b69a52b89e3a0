"""Pods that count as successes undone: which they are, what is said of them, and what the books of a Job tell."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import policy_of
from tests.test_engine import JSON
from tests.undone import BY_KUBELET, job, pod, stopping, undone
from webhook.core import accounts
from webhook.core.undone import LONGEST, Sight, Stopped, message, sight

POLICY = policy_of()
MARK = "drainproof.dev/completion-guard"
CONTRACT = "drainproof.dev/exit-contract"


def seen(document: dict[str, Any], **policy: Any) -> Sight:
    found = sight(document, policy_of(**policy))
    assert found
    return found


def test_a_pod_that_was_evicted_and_exited_0_is_found() -> None:
    found = seen(undone(metadata={"annotations": {"batch.kubernetes.io/job-completion-index": "3"}}))
    assert found.has_succeeded
    assert found.counts
    assert (found.pod.namespace, found.pod.name, found.pod.uid) == ("n", "p", "uid-p")
    assert (found.pod.job, found.pod.job_uid, found.pod.index) == ("j", "uid-j", "3")
    assert (found.pod.cause, found.pod.guard) == ("EvictionByEvictionAPI", "absent")


def test_a_pod_that_is_being_stopped_is_awaited() -> None:
    found = seen(stopping())
    assert not found.has_succeeded


def test_a_pod_that_its_kubelet_stopped_is_found_without_a_deletion() -> None:
    found = seen(undone(metadata={"deletionTimestamp": None, "finalizers": None}, status={"conditions": [BY_KUBELET]}))
    assert found.counts
    assert found.pod.cause == "TerminationByKubelet"


def test_a_pod_that_its_job_may_have_counted_before_it_ended_is_not_certain() -> None:
    assert not seen(undone(metadata={"finalizers": None})).counts


@pytest.mark.parametrize(
    "document",
    [
        pod(),
        pod(status={"phase": "Succeeded"}),
        stopping(status={"phase": "Failed"}),
        undone(status={"conditions": None}),
        undone(status={"conditions": [{"type": "DisruptionTarget", "status": "False"}]}),
        undone(metadata={"deletionTimestamp": None}),
        undone(metadata={"ownerReferences": None}),
        undone(metadata={"ownerReferences": [{"apiVersion": "v1", "kind": "Job", "controller": True}]}),
        undone(
            status={
                "containerStatuses": [{"name": "worker", "state": {"terminated": {"message": "completed\n"}}}],
            }
        ),
        undone(metadata={"annotations": {CONTRACT: "nonzero-when-stopped"}}),
        stopping(metadata={"annotations": {CONTRACT: "nonzero-when-stopped"}}),
        undone(metadata={"annotations": {"drainproof.dev/ignore": "done by hand"}}),
        undone(metadata={"annotations": {"drainproof.dev/ignore.completion-guard": "done by hand"}}),
    ],
)
def test_nothing_is_said_of_a_pod_that_somebody_vouches_for_or_that_nobody_stopped(document: dict[str, Any]) -> None:
    assert sight(document, POLICY) is None


@pytest.mark.parametrize("annotation", ["drainproof.dev/ignore.grace-budget", "drainproof.dev/ignored"])
def test_an_exemption_from_something_else_does_not_count(annotation: str) -> None:
    assert sight(undone(metadata={"annotations": {annotation: "why"}}), POLICY)


def test_what_the_operator_exempts_is_not_said() -> None:
    assert sight(undone(), policy_of(exempt=[{"namespaces": ["n"]}])) is None
    assert sight(undone(), policy_of(exempt=[{"kinds": ["Job"], "names": ["j"]}])) is None
    assert sight(undone(), policy_of(exempt=[{"namespaces": ["other"]}]))


@pytest.mark.parametrize(
    ("annotations", "policy", "guard", "text"),
    [
        ({}, {}, "absent", "Nothing guarded it"),
        ({MARK: "off", CONTRACT: "guard"}, {}, "absent", "Nothing guarded it"),
        ({MARK: "on"}, {}, "missed", "the guard was not asked"),
        ({CONTRACT: "guard"}, {}, "missed", "the guard was not asked"),
        ({MARK: "on"}, {"rules": {"completion-guard": {"fix": False}}}, "absent", "switched the completion guard off"),
        ({MARK: "on"}, {"mode": "monitor"}, "absent", "switched the completion guard off"),
        ({}, {"rules": {"completion-guard": {"fix": False}}}, "absent", "Nothing guarded it"),
    ],
)
def test_it_is_said_whether_the_guard_was_absent_or_missed(
    annotations: dict[str, str], policy: dict[str, Any], guard: str, text: str
) -> None:
    found = seen(undone(metadata={"annotations": annotations}), **policy).pod
    assert found.guard == guard
    assert text in message(found, was_seen=True)


def test_a_message_says_which_pod_why_and_what_to_do() -> None:
    assert message(seen(undone()).pod, was_seen=True) == (
        "Pod p was stopped (EvictionByEvictionAPI) and its containers exited 0, so the Job counts it as a success, "
        "although its work may be unfinished. Nothing guarded it: write drainproof.dev/exit-contract: guard on the Pod "
        "template, or let the program exit with another code when it is stopped and write nonzero-when-stopped there. "
        "Look at what it has done, and run the Job again if that is not all"
    )
    assert "its end was not seen" in message(seen(stopping()).pod, was_seen=False)
    odd = seen(undone(metadata={"name": "p\n" * 2000})).pod
    assert len(message(odd, was_seen=True)) == LONGEST
    assert message(odd, was_seen=True).isprintable()


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status", "kind"]), JSON))
def test_nothing_makes_it_raise(document: dict[str, Any]) -> None:
    for base in (document, {**undone(), **document}):
        sight(base, POLICY)


STOPPED: Stopped = seen(stopping()).pod
INDEXED = {"completionMode": "Indexed"}


def indexed(number: str) -> dict[str, Any]:
    return {"annotations": {"batch.kubernetes.io/job-completion-index": number}}


def counted(document: dict[str, Any], *pods: Any, stopped: Stopped = STOPPED, **more: Any) -> bool:
    return accounts.counts(document, pods, stopped, more.get("has_succeeded", False), more.get("gone", 0))


def test_a_success_that_no_other_pod_accounts_for_is_the_one_that_is_missing() -> None:
    other = pod("o", status={"phase": "Succeeded"}, metadata={"finalizers": None})
    assert not counted(job())
    assert counted(job(succeeded=1))
    assert not counted(job(succeeded=1), other)
    assert counted(job(succeeded=2), other)
    assert not counted(job(succeeded=2), other, gone=1)
    assert counted(job(succeeded=1), pod("o", status={"phase": "Running"}))
    assert counted(job(succeeded=1), undone("o"))  # it has not been counted yet
    assert counted(job(succeeded=1), undone())  # its own
    assert not counted(job(status={"succeeded": "1"}))


def test_what_a_job_has_noted_of_a_pod_decides() -> None:
    for word, expected in {"succeeded": True, "failed": False}.items():
        noted = {"uncountedTerminatedPods": {word: ["uid-p"]}, "succeeded": 1}
        assert counted(job(status=noted)) is expected
        assert counted(job(status=noted), has_succeeded=True) is expected
    others = {"uncountedTerminatedPods": {"succeeded": ["uid-o"]}}
    assert counted(job(status=others))
    assert not counted(job(status=others), undone("o"))


def test_a_job_that_waits_for_the_end_of_its_pods_counts_what_was_seen_to_succeed() -> None:
    assert counted(job(), has_succeeded=True)
    assert not counted(job(spec={"podReplacementPolicy": "TerminatingOrFailed"}), has_succeeded=True)


@pytest.mark.parametrize(
    ("completed", "index", "expected"),
    [
        ("3", "3", True),
        ("0,2-4", "3", True),
        ("0,2-4", "2", True),
        ("0,2-4", "4", True),
        ("0,2-4", "1", False),
        ("0,2-4", "5", False),
        ("0,2-4", "", False),
        ("0,2-4", "x", False),
        ("x-5", "3", False),
        ("1-x", "3", False),
        ("", "3", False),
        (None, "3", False),
        ("3", "9" * 5000, False),
    ],
)
def test_of_an_indexed_job_the_index_decides(completed: str | None, index: str, expected: bool) -> None:
    stopped = seen(stopping(metadata=indexed(index))).pod
    document = job(spec=INDEXED, status={"completedIndexes": completed})
    assert counted(document, stopped=stopped) is expected
    again = pod("o", metadata={**indexed(index), "finalizers": None}, status={"phase": "Succeeded"})
    assert not counted(document, again, stopped=stopped)


@given(JSON, st.lists(JSON))
def test_no_books_make_it_raise(document: Any, pods: list[Any]) -> None:
    counted(document if isinstance(document, dict) else {}, *pods)
    counted({"status": document, "spec": INDEXED}, *pods)
