"""For which objects the API server really calls the webhook: for none that no rule could speak of, for all others."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.cluster import deployment
from tests.cluster.answer import Answer, create
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment
from tests.tables import merged
from webhook.core.workload import SERVICES
from webhook.rules import RULES

NAMESPACE: Final = "heard"
QUIET: Final = "unheard"
KEY: Final = "karpenter.sh/do-not-disrupt"
POLICY: Final = {
    "apiVersion": "drainproof.dev/v1",
    "kind": "Policy",
    "platform": {"spot": "120s", "nodepools": {"batch": "31s"}},  # without limits platform-limits has nothing to say
}
IGNORES: Final = {
    "podFailurePolicy": {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    }
}
HOOK: Final = {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "40"]}}}}
SIDECAR: Final = {"name": "mesh", "image": "example.test/mesh:1", "restartPolicy": "Always", **HOOK}


def pod(annotations: Any = None, labels: Any = None, worker: Any = None, **spec: Any) -> dict[str, Any]:
    """A Pod template, or the metadata and spec of a Pod."""
    containers = [{"name": "worker", "image": "example.test/worker:1", **(worker or {})}]
    metadata = {"annotations": annotations or {}, "labels": labels or {}}
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def made(kind: str, template: Any = None, job: Any = None, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    """An object of a kind: its Pod template, what its Job spec says, its own metadata, and what its spec says."""
    template = template or pod()
    group = {"Pod": "v1", "PodDisruptionBudget": "policy/v1", "Job": "batch/v1", "CronJob": "batch/v1"}
    head = {"apiVersion": group.get(kind, "apps/v1"), "kind": kind}
    if kind in ("Job", "CronJob"):
        runs = merged({"template": {"spec": {"restartPolicy": "Never"}}}, {**(job or {}), "template": template})
        runs["template"]["spec"] |= (job or {}).get("template", {}).get("spec", {})
        inner = {**runs, **spec} if kind == "Job" else {"schedule": "@yearly", "jobTemplate": {"spec": runs}, **spec}
        body = {"spec": inner}
    elif kind == "Pod":
        body = template
    elif kind in SERVICES:
        selected = {"app": "heard"}
        selecting = {"selector": {"matchLabels": selected}, "template": merged(template, LABELLED)}
        body = {"spec": {**selecting, **({"serviceName": "heard"} if kind == "StatefulSet" else {}), **spec}}
    else:
        body = {"spec": spec}
    named = {"metadata": {"name": "heard", "namespace": NAMESPACE, **(metadata or {})}}
    document: dict[str, Any] = merged({**head, **body}, named)
    return document


LABELLED: Final = {"metadata": {"labels": {"app": "heard"}}}


@dataclass(frozen=True)
class Row:
    """An object of which a rule speaks, and what it says."""

    rule: str
    document: dict[str, Any]
    says: str

    @property
    def kind(self) -> str:
        return str(self.document["kind"])


TOLERATES: Final = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
DECLARES: Final = {"drainproof.dev/max-task-duration": "28s"}
SLEEPS: Final = {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
BLANKET: Final = {"operator": "Exists"}
EVICTABLE: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
OVER_JOBS: Final = {"matchLabels": {"job-name": "sums"}}

# What to write so that a rule speaks, and a part of what it says: the same for every kind that it looks at.
SPOKEN: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "exemption": ({"metadata": {"annotations": {"drainproof.dev/ignore": ""}}}, "it gives no reason"),
    "restart-policy": ({"job": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}, "OnFailure"),
    "pod-failure-policy": ({"job": {"backoffLimit": 0}}, "backoffLimit is 0"),
    "pod-replacement-policy": (
        {"job": {**IGNORES, "podReplacementPolicy": "Failed"}, "template": pod(tolerations=[TOLERATES])},
        "tolerates unreachable nodes for ever",
    ),
    "completion-guard": ({"template": pod({"drainproof.dev/completion-guard": "yes"})}, '"yes" switches nothing'),
    "exit-code": ({"job": IGNORES}, "exits 0 when it is stopped"),
    "grace-budget": ({"template": pod(DECLARES, worker=SLEEPS)}, "30 cannot cover container"),
    "do-not-disrupt": ({"template": pod({KEY: "1d"})}, '"1d" protects nothing'),
    "active-deadline": ({"job": IGNORES}, "made anew for ever"),
    "backoff-limit": ({"job": {**IGNORES, "backoffLimit": 0}}, "0: the first Pod that ends"),
    "concurrency-policy": ({}, "runs overlap"),
    "platform-limits": ({"template": pod(terminationGracePeriodSeconds=121)}, "121 is longer than the 120s"),
    "disrupted-toleration": ({"template": pod(tolerations=[BLANKET])}, "it tolerates every taint"),
    "safe-to-evict": ({"template": pod(EVICTABLE)}, "keeps the node from being scaled down"),
    "disruption-budget": ({"maxUnavailable": 1, "selector": OVER_JOBS}, "1 cannot be computed"),
}


SPEAKING: Final = [rule for rule in RULES if rule.id != "disruption-stamp"]  # it acts on deletions, and says nothing


def by_kind() -> Iterator[Row]:
    """Every rule on every kind of object that it looks at."""
    for rule in SPEAKING:
        parts, says = SPOKEN[rule.id]
        for kind in sorted(rule.kinds):
            needed = {"maxUnavailable": 1} if kind == "PodDisruptionBudget" else {}
            yield Row(rule.id, made(kind, **{**needed, **parts}), says)


def by_condition() -> Iterator[Row]:
    """Every way to be called for, on a Pod and on a service."""
    for kind in ("Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"):
        for rule, template, says in _templates():
            if (kind, rule) != ("DaemonSet", "disrupted-toleration"):
                yield Row(rule, made(kind, template), says)
        yield Row("do-not-disrupt", made(kind, metadata={"labels": {KEY: "true"}}), "it has no effect here")
        if kind != "Pod":
            yield Row("do-not-disrupt", made(kind, metadata={"annotations": {KEY: "4h"}}), "it has no effect here")
    yield from _budgets()


def _templates() -> Iterator[tuple[str, dict[str, Any], str]]:
    yield "do-not-disrupt", pod({"karpenter.sh/do-not-evict": "true"}), "no Karpenter since v1.0 reads it"
    yield "do-not-disrupt", pod(labels={KEY: "true"}), "it has no effect here"
    yield "exemption", pod({"drainproof.dev/ignore.typo": "why"}), "typo"
    yield "grace-budget", pod(worker=HOOK), "30 is over before the preStop"
    yield "grace-budget", pod(initContainers=[SIDECAR]), "30 is over before the preStop"
    yield "grace-budget", pod(terminationGracePeriodSeconds=9_223_372_037), "overflows the kubelet's clock"
    yield "platform-limits", pod(terminationGracePeriodSeconds=31), "31 is not below the 31s of NodePool batch"
    yield "disrupted-toleration", pod(tolerations=[{**BLANKET, "effect": "NoSchedule"}]), "it tolerates every taint"
    taint = "karpenter.sh/disrupted"
    for toleration in ({"key": taint}, {"key": taint, "operator": "Exists", "effect": "NoSchedule"}):
        yield "disrupted-toleration", pod(tolerations=[{"key": "dedicated"}, toleration]), f"it tolerates {taint}"


def _budgets() -> Iterator[Row]:
    def row(says: str, **spec: Any) -> Row:
        return Row("disruption-budget", made("PodDisruptionBudget", **spec), says)

    def by_expression(key: str, operator: str, *values: str) -> dict[str, Any]:
        expression = {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
        return {"matchExpressions": [{"key": "app", "operator": "Exists"}, expression]}

    yield row('"50%" cannot be computed', minAvailable="50%", selector=OVER_JOBS)
    yield row('"10%" cannot be computed', maxUnavailable="10%", selector=OVER_JOBS)
    yield row("0 cannot be computed", maxUnavailable=0, selector=OVER_JOBS)
    for label in ("job-name", "controller-uid", "job-completion-index"):
        name = f"batch.kubernetes.io/{label}"
        yield row("cannot be computed", maxUnavailable=1, selector={"matchLabels": {name: "sums"}})
        yield row("cannot be computed", maxUnavailable=1, selector=by_expression(name, "Exists"))
    yield row("cannot be computed", maxUnavailable=1, selector={"matchLabels": {"controller-uid": "u"}})
    yield row("cannot be computed", minAvailable="1%", selector=by_expression("job-name", "In", "sums", "more"))


def parameters() -> list[Any]:
    rows = [*by_kind(), *by_condition()]
    named = [(f"row-{number}", row) for number, row in enumerate(rows)]
    return [
        pytest.param(row.rule, merged(row.document, {"metadata": {"name": name}}), row.says, id=f"{name} {_id(row)}")
        for name, row in named
    ]


def _id(row: Row) -> str:
    return f"{row.rule} on {row.kind}: {row.says}"


@pytest.fixture(scope="module")
def trouble(control_plane: ControlPlane) -> tuple[float, float]:
    """How often a condition could not be evaluated, and a call failed, before there was our webhook."""
    return counted(control_plane, NOT_EVALUATED), counted(control_plane, FAILED_OPEN)


@pytest.fixture(scope="module")
def webhook(
    trouble: tuple[float, float],  # noqa: ARG001 - counted before
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """Our webhook as a process in front of the control plane, under a policy that states what the platform grants."""
    folder = tmp_path_factory.mktemp("webhook")
    policy = folder / "policy.json"
    policy.write_text(json.dumps(POLICY))
    with deployment.serving(folder, "--policy", str(policy)) as webhook:
        documents = deployment.configurations(webhook)
        with deployment.registered(control_plane, documents, deployment.mends_and_judges):
            for namespace in (NAMESPACE, QUIET):
                control_plane.kubectl("create", "namespace", namespace)
                control_plane.kubectl(
                    "wait", "serviceaccount/default", "-n", namespace, "--for=create", "--timeout=20s"
                )
            yield webhook


def calls(webhook: Deployment, namespace: str, name: str = "") -> list[str]:
    """The calls for objects in a namespace so far, oldest first: `validate CREATE`."""
    lines = [line for line in webhook.decided() if line["namespace"] == namespace and name in ("", line["name"])]
    return [f"{line['deed']} {line['operation']}" for line in lines]


def counted(plane: ControlPlane, metric: str, name: str = ".drainproof.dev") -> float:
    """The sum of what the API server itself counted for our webhooks, or for the one of this name."""
    text = plane.kubectl("get", "--raw", "/metrics").stdout
    pattern = rf"^{metric}\{{[^}}]*{re.escape(name)}\"[^}}]*\}} (\S+)$"
    return sum(float(value) for value in re.findall(pattern, text, re.MULTILINE))


REQUESTS: Final = "apiserver_admission_webhook_request_total"
NOT_EVALUATED: Final = "apiserver_admission_match_condition_evaluation_errors_total"
FAILED_OPEN: Final = "apiserver_admission_webhook_fail_open_count"


def said(answer: Answer) -> list[str]:
    """The lines that reach a person at kubectl."""
    return [*answer.warnings, *answer.error.splitlines()]


def test_every_rule_has_an_object_that_it_speaks_of() -> None:
    assert list(SPOKEN) == [rule.id for rule in SPEAKING]


@pytest.mark.parametrize(("rule", "document", "says"), parameters())
def test_what_a_rule_says_arrives(
    rule: str, document: dict[str, Any], says: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    answer = create(control_plane, document)
    assert [line for line in said(answer) if says in line and line.endswith(f"({rule})")]
    assert "validate CREATE" in calls(webhook, NAMESPACE, document["metadata"]["name"])
    if answer.error:
        assert answer.denied_by_us


def test_a_budget_that_is_turned_into_one_that_blocks_drains_is_warned_about(
    control_plane: ControlPlane, webhook: Deployment
) -> None:
    budget = made("PodDisruptionBudget", metadata={"name": "turned"}, minAvailable=1, selector=OVER_JOBS)
    assert said(create(control_plane, budget, dry_run=False)) == []
    assert calls(webhook, NAMESPACE, "turned") == []
    words = ("patch", "pdb", "turned", "-n", NAMESPACE, "--type=merge", "-p")
    first = control_plane.kubectl(*words, '{"spec": {"minAvailable": "50%"}}')
    again = control_plane.kubectl(*words, '{"metadata": {"labels": {"seen": "yes"}}}')
    assert "cannot be computed" in first.stderr
    assert again.stderr == ""
    assert calls(webhook, NAMESPACE, "turned") == ["validate UPDATE"]


QUIET_BUDGETS: Final[dict[str, dict[str, Any]]] = {
    "over other Pods": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    "over every Pod": {"maxUnavailable": 1, "selector": {}},
    "without a selector": {"maxUnavailable": 1},
    "a whole number": {"minAvailable": 1, "selector": OVER_JOBS},
    "that says nothing": {"selector": OVER_JOBS},
    "a label that must not be there": {
        "maxUnavailable": 1,
        "selector": {"matchExpressions": [{"key": "job-name", "operator": "DoesNotExist"}]},
    },
    "a name that is no label of Jobs": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "job-name"}}},
}
QUIET_OBJECTS: Final = {
    **{name: made("PodDisruptionBudget", **spec) for name, spec in QUIET_BUDGETS.items()},
    "a plain Deployment": made("Deployment"),
    "a DaemonSet that tolerates everything": made("DaemonSet", pod(tolerations=[BLANKET])),
    "a Deployment that tolerates another taint": made("Deployment", pod(tolerations=[{**BLANKET, "key": "dedicated"}])),
    "a Pod that tolerates what evicts": made("Pod", pod(tolerations=[{**BLANKET, "effect": "NoExecute"}])),
    "a Pod with the usual grace": made("Pod", pod(terminationGracePeriodSeconds=30)),
}


@pytest.mark.parametrize("name", QUIET_OBJECTS)
def test_an_object_of_which_no_rule_could_speak_causes_no_call(
    name: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    called = name.lower().replace(" ", "-")
    answer = create(control_plane, merged(QUIET_OBJECTS[name], {"metadata": {"name": called}}))
    assert answer.admitted is not None, answer.error
    assert calls(webhook, NAMESPACE, called) == []


PLAIN: Final = (
    pod(),
    pod({"prometheus.io/scrape": "true", "kubectl.kubernetes.io/default-container": "worker"}, {"app": "web"}),
    pod(terminationGracePeriodSeconds=30, restartPolicy="Never"),
    pod(tolerations=[{"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"}]),
    pod(worker={"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}, nodeSelector={"disk": "fast"}),
)


def plain_pods(count: int) -> list[dict[str, Any]]:
    names = ({"metadata": {"name": f"plain-{number}", "namespace": QUIET}} for number in range(count))
    return [merged(made("Pod", PLAIN[number % len(PLAIN)]), name) for number, name in enumerate(names)]


def listed(documents: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


@pytest.fixture(scope="module")
def plain(webhook: Deployment, control_plane: ControlPlane) -> tuple[float, float]:  # noqa: ARG001 - in its place
    """500 Pods that say nothing, made one by one; what the API server had counted before and after."""
    before = counted(control_plane, REQUESTS)
    done = control_plane.kubectl("create", "-f", "-", "-o", "name", input=listed(plain_pods(500)), timeout=120)
    assert len(done.stdout.splitlines()) == 500
    assert done.stderr == ""
    return before, counted(control_plane, REQUESTS)


def test_500_plain_pods_cause_no_call(plain: tuple[float, float], webhook: Deployment) -> None:
    assert plain[0] == plain[1]
    assert calls(webhook, QUIET) == []


def test_200_reports_of_a_kubelet_about_them_cause_no_call(
    plain: tuple[float, float], control_plane: ControlPlane, webhook: Deployment
) -> None:
    before = counted(control_plane, REQUESTS)
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    words = ("patch", "-f", "-", "--subresource=status", "--type=merge", "-p", json.dumps(ready), "-o", "name")
    done = control_plane.kubectl(*words, input=listed(plain_pods(200)), timeout=120)
    assert len(done.stdout.splitlines()) == 200
    found = control_plane.kubectl("get", "pods", "-n", QUIET, "--field-selector=status.phase=Running", "-o", "name")
    assert len(found.stdout.splitlines()) == 200
    assert counted(control_plane, REQUESTS) == before == plain[1]
    assert calls(webhook, QUIET) == []


def test_no_condition_failed_to_be_evaluated_and_no_call_failed(
    trouble: tuple[float, float], control_plane: ControlPlane, webhook: Deployment
) -> None:
    """With failurePolicy Ignore either would show as nothing but silence. It looks back at what came before."""
    assert (counted(control_plane, NOT_EVALUATED), counted(control_plane, FAILED_OPEN)) == trouble
    assert counted(control_plane, REQUESTS) >= len(webhook.decided()) > 0
