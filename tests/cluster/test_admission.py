"""What becomes of objects on their way into a real API server, with the shipped webhook and configurations."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.cluster import deployment
from tests.cluster.answer import Answer, apply, create, diff
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment, Endpoint
from tests.tables import CASES, RECORD, merged, read

KEY: Final = "karpenter.sh/do-not-disrupt"
GUARDED: Final = {"drainproof.dev/completion-guard": "on"}
JOB: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "admission", "name": "job"},
    "spec": {
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "worker", "image": "example.test/worker:1"}],
                "initContainers": [{"name": "starter", "image": "example.test/starter:1"}],
            }
        }
    },
}
POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"namespace": "calls", "name": "pod"},
    "spec": {"containers": [{"name": "worker", "image": "example.test/worker:1"}]},
}
DISRUPTED: Final = [{"type": "DisruptionTarget", "status": "True"}]
IGNORE: Final = {"action": "Ignore", "onPodConditions": DISRUPTED}
ON_FAILURE: Final[dict[str, Any]] = {"template": {"spec": {"restartPolicy": "OnFailure"}}}
ON_TRUE: Final[dict[str, Any]] = {"template": {"metadata": {"annotations": {KEY: "true"}}}}


def exits(*values: int, operator: str = "In", action: str = "FailJob", **more: Any) -> dict[str, Any]:
    """A rule about exit codes."""
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(values), **more}}


def conditions(*patterns: dict[str, str], action: str = "FailJob") -> dict[str, Any]:
    """A rule about Pod conditions."""
    return {"action": action, "onPodConditions": list(patterns)}


def policy(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What a Job spec says with these rules."""
    return {"podFailurePolicy": {"rules": list(rules)}, **more}


INDEXED: Final = {"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1}
WRONG: Final = {
    "an unknown action": policy(exits(3, action="Retry")),
    "no action": policy({"onExitCodes": {"operator": "In", "values": [3]}}),
    "exit codes and conditions in one rule": policy({**exits(3), "onPodConditions": DISRUPTED}),
    "neither exit codes nor conditions": policy({"action": "FailJob"}),
    "In with 0": policy(exits(0, 3)),
    "values that are not sorted": policy(exits(4, 3)),
    "a value twice": policy(exits(3, 3)),
    "no values": policy(exits()),
    "256 values": policy(exits(*range(1, 257))),
    "21 rules": policy(*(exits(code) for code in range(1, 22))),
    "a container that is not there": policy(exits(3, containerName="other")),
    "a container without a name": policy(exits(3, containerName="")),
    "FailIndex without backoffLimitPerIndex": policy(exits(3, action="FailIndex")),
    "an unknown status": policy(conditions({"type": "DisruptionTarget", "status": "Yes"})),
    "a condition with an impossible type": policy(conditions({"type": "not a name", "status": "True"})),
    "21 conditions": policy(conditions(*({"type": f"C{number}", "status": "True"} for number in range(21)))),
    "an unknown operator": policy(exits(3, operator="Among")),
    "an unknown podReplacementPolicy": {"podReplacementPolicy": "Sometimes"},
    "an unknown podReplacementPolicy beside rules": policy(exits(3), podReplacementPolicy="Sometimes"),
    "a wrong rule after a right one": policy(exits(3), exits(5, 4)),
    "a wrong rule after one that ignores disruptions": policy(IGNORE, exits(5, 4)),
}
RIGHT: Final = {
    "no policy": {},
    "a policy that is null": {"podFailurePolicy": None},
    "no rules": policy(),
    "19 rules": policy(*(exits(code) for code in range(1, 20))),
    "20 rules": policy(*(exits(code) for code in range(1, 21))),
    "255 values": policy(exits(*range(1, 256))),
    "NotIn with 0": policy(exits(0, 3, operator="NotIn")),
    "a negative value": policy(exits(-1, 3)),
    "a rule about an init container": policy(exits(3, containerName="starter")),
    "a condition without a status": policy(conditions({"type": "DisruptionTarget"}, action="Count")),
    "a condition with an empty status": policy(conditions({"type": "DisruptionTarget", "status": ""})),
    "a condition with status False": policy(conditions({"type": "DisruptionTarget", "status": "False"})),
    "a condition of another type": policy(conditions({"type": "example.com/Ready", "status": "Unknown"})),
    "20 conditions": policy(conditions(*({"type": f"C{number}", "status": "True"} for number in range(20)))),
    "FailIndex with backoffLimitPerIndex": policy(exits(3, action="FailIndex"), **INDEXED),
    "podReplacementPolicy Failed": {"podReplacementPolicy": "Failed"},
    "podReplacementPolicy TerminatingOrFailed": {"podReplacementPolicy": "TerminatingOrFailed"},
}
CORE: Final = ("restart-policy", "pod-failure-policy", "pod-replacement-policy", "do-not-disrupt", "grace-budget")
LEFT: Final = ("20 rules", "a condition without a status", "a condition with an empty status")


def job(name: str = "job", namespace: str = "admission", **spec: Any) -> dict[str, Any]:
    """The Job with its name and namespace, and what its spec says besides."""
    document: dict[str, Any] = merged(JOB, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    return document


@pytest.fixture(scope="module")
def unaided(control_plane: ControlPlane) -> dict[str, Answer]:
    """What Kubernetes alone answers to each podFailurePolicy, by its name."""
    control_plane.kubectl("create", "namespace", "admission")
    deployment.wait_until_alone(control_plane)
    return {name: create(control_plane, job(**spec)) for name, spec in (WRONG | RIGHT).items()}


@pytest.fixture(scope="module", autouse=True)
def webhook(
    unaided: dict[str, Answer],  # noqa: ARG001 - before there is a webhook
    control_plane: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    """Our webhook in front of the control plane."""
    control_plane.create(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "left-alone", "labels": {"drainproof.dev/inject": "disabled"}},
        }
    )
    with deployment.serving(tmp_path_factory.mktemp("webhook")) as webhook:
        documents = deployment.configurations(webhook)
        with deployment.registered(control_plane, documents, deployment.mends_and_judges):
            yield webhook


def said(answer: Answer) -> list[str]:
    """Our warnings, without the advice about a Job that runs well as it is."""
    return [warning for warning in answer.warnings if warning.rpartition("(")[2].rstrip(")") in CORE]


def calls(webhook: Deployment, namespace: str) -> list[str]:
    """The calls for objects in a namespace so far, oldest first: `mutate CREATE`."""
    return [f"{line['deed']} {line['operation']}" for line in webhook.decided() if line["namespace"] == namespace]


def stored(plane: ControlPlane, document: dict[str, Any]) -> Answer:
    """What comes of creating an object for good."""
    return create(plane, document, dry_run=False)


def wishes(document: dict[str, Any] | None) -> dict[str, Any]:
    """The spec of a Job without what the API server makes up, which is never the same twice."""
    assert document is not None
    spec: dict[str, Any] = merged(document["spec"], {"selector": None, "template": {"metadata": {"labels": None}}})
    return spec


def test_on_failure_becomes_never_with_one_rule_and_a_warning(control_plane: ControlPlane) -> None:
    answer = stored(control_plane, job("on-failure", **ON_FAILURE))
    found = control_plane.get("job", "on-failure", "-n", "admission")
    assert found["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert found["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
    assert found["spec"]["podReplacementPolicy"] == "Failed"
    assert json.loads(found["metadata"]["annotations"][RECORD]) == {
        "/spec/podReplacementPolicy": "TerminatingOrFailed",
        "/spec/template/spec/restartPolicy": "OnFailure",
    }
    assert said(answer) == [
        "spec.template.spec.restartPolicy: OnFailure; becomes Never: no restarts inside a Pod, each failure is a new "
        "Pod that counts toward backoffLimit, and emptyDir starts empty (restart-policy)"
    ]


def test_a_job_without_a_restart_policy_is_admitted_with_never_and_a_warning(control_plane: ControlPlane) -> None:
    document = job(template={"spec": {"restartPolicy": None}})
    answer = create(control_plane, document)
    assert answer.admitted is not None, answer.error
    assert answer.admitted["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert answer.admitted["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
    assert said(answer) == [
        "spec.template.spec.restartPolicy: it is Always or not set, which Kubernetes refuses in a Job; it becomes "
        "Never; write restartPolicy: Never (restart-policy)"
    ]
    alone = create(control_plane, merged(document, {"metadata": {"namespace": "left-alone"}}))
    assert 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"' in alone.error


def test_the_rules_of_an_author_follow_the_one_about_disruptions(control_plane: ControlPlane) -> None:
    own = [exits(137, 143), exits(3, containerName="starter", action="Count")]
    answer = create(control_plane, job(**policy(*own)))
    assert answer.admitted is not None, answer.error
    assert answer.admitted["spec"]["podFailurePolicy"] == {"rules": [IGNORE, *own]}
    assert said(answer) == []


def test_a_job_with_20_rules_is_admitted_as_written_with_a_warning(control_plane: ControlPlane) -> None:
    document = job(**RIGHT["20 rules"])
    answer = create(control_plane, document)
    alone = create(control_plane, merged(document, {"metadata": {"namespace": "left-alone"}}))
    assert wishes(answer.admitted) == wishes(alone.admitted)
    assert said(answer) == [
        "spec.podFailurePolicy.rules: there is no room for a rule that ignores DisruptionTarget among 20, so each "
        "eviction uses up backoffLimit; merge two rules (pod-failure-policy)"
    ]


def test_a_suspended_job_is_mended_and_stays_suspended(control_plane: ControlPlane) -> None:
    stored(control_plane, job("suspended", suspend=True, **merged(ON_FAILURE, ON_TRUE)))
    control_plane.kubectl(
        "wait", "job/suspended", "-n", "admission", "--for=condition=Suspended", "--timeout=20s"
    )  # the controller has seen it
    found = control_plane.get("job", "suspended", "-n", "admission")
    assert found["spec"]["suspend"] is True
    assert found["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
    assert found["spec"]["template"]["metadata"]["annotations"] == {KEY: "24h", **GUARDED}
    assert found["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_job_that_asks_for_a_name_gets_one_and_is_mended(control_plane: ControlPlane) -> None:
    answer = stored(control_plane, merged(job(), {"metadata": {"name": None, "generateName": "asks-"}}))
    assert answer.admitted is not None, answer.error
    name = answer.admitted["metadata"]["name"]
    assert name.startswith("asks-")
    assert len(name) > len("asks-")
    assert control_plane.get("job", name, "-n", "admission")["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}


def test_a_dry_run_shows_the_result_and_stores_nothing(control_plane: ControlPlane, webhook: Deployment) -> None:
    answer = create(control_plane, job("dry", **ON_FAILURE))
    assert answer.admitted is not None, answer.error
    assert answer.admitted["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
    assert [line["dryRun"] for line in webhook.decided() if line["name"] == "dry"] == [True, True]
    assert "NotFound" in control_plane.kubectl("get", "job", "dry", "-n", "admission", check=False).stderr


def test_a_cron_job_is_stored_as_written_and_its_jobs_are_mended(control_plane: ControlPlane) -> None:
    document = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "admission"},
        "spec": {"schedule": "@yearly", "suspend": True, "jobTemplate": {"spec": job(**ON_FAILURE)["spec"]}},
    }
    announced = stored(control_plane, document)
    alone = create(control_plane, merged(document, {"metadata": {"namespace": "left-alone"}}))
    found = control_plane.get("cronjob", "nightly", "-n", "admission")
    assert alone.admitted is not None
    assert found["spec"] == alone.admitted["spec"]
    assert "annotations" not in found["metadata"]
    [warning] = said(announced)
    assert warning.startswith("spec.jobTemplate.spec.template.spec.restartPolicy: OnFailure; its Jobs get Never: ")
    control_plane.kubectl("create", "job", "nightly-1", "--from=cronjob/nightly", "-n", "admission")
    made = control_plane.get("job", "nightly-1", "-n", "admission")
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["CronJob"]
    assert made["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_a_job_of_a_job_set_is_left_alone_in_silence(control_plane: ControlPlane) -> None:
    owner = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "name": "set",
        "uid": "5f9c4f0e-6c7b-4b8e-9a51-0d2f6a9f3f11",
        "controller": True,
    }
    document = merged(job(**merged(ON_FAILURE, ON_TRUE)), {"metadata": {"ownerReferences": [owner]}})
    answer = create(control_plane, document)
    alone = create(control_plane, merged(document, {"metadata": {"namespace": "left-alone"}}))
    assert wishes(answer.admitted) == wishes(alone.admitted)
    assert answer.warnings == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_policy_is_refused_by_kubernetes_in_its_own_words(
    name: str, unaided: dict[str, Answer], control_plane: ControlPlane
) -> None:
    answer = create(control_plane, job(**WRONG[name]))
    assert unaided[name].admitted is None
    assert answer.admitted is None
    assert answer.error == unaided[name].error
    assert "is invalid" in answer.error or "strict decoding" in answer.error


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_policy_is_admitted_with_its_rules(
    name: str, unaided: dict[str, Answer], control_plane: ControlPlane
) -> None:
    answer = create(control_plane, job(**RIGHT[name]))
    alone = unaided[name].admitted
    assert alone is not None, unaided[name].error
    assert answer.admitted is not None, answer.error
    own = alone["spec"].get("podFailurePolicy", {}).get("rules") or []
    assert answer.admitted["spec"]["podFailurePolicy"]["rules"] == (own if name in LEFT else [IGNORE, *own])


def test_a_grace_period_that_is_too_short_is_refused_and_nothing_is_stored(control_plane: ControlPlane) -> None:
    worker = {"name": "worker", "image": "example.test/worker:1", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    template = {
        "metadata": {"annotations": {"drainproof.dev/max-task-duration": "28s"}},
        "spec": {"containers": [worker]},
    }
    assert stored(control_plane, job("short", template=template)).error == (
        'Error from server (Forbidden): error when creating "STDIN": admission webhook "jobs.validate.drainproof.dev" '
        "denied the request: spec.template.spec.terminationGracePeriodSeconds: 30 cannot cover container "
        '"worker": preStop 5s + task 28s; SIGKILL comes 3s too early; set at least 34 (grace-budget)'
    )
    assert "NotFound" in control_plane.kubectl("get", "job", "short", "-n", "admission", check=False).stderr


@pytest.mark.parametrize("namespace", ["left-alone", "kube-system"])
def test_a_namespace_that_is_left_out_is_never_looked_at(
    namespace: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    answer = create(control_plane, job(namespace=namespace, **merged(ON_FAILURE, ON_TRUE)))
    assert answer.admitted is not None, answer.error
    spec = answer.admitted["spec"]
    assert "podFailurePolicy" not in spec
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert spec["template"]["metadata"]["annotations"] == {KEY: "true"}
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert answer.warnings == []
    assert calls(webhook, namespace) == []


async def adds_true(request: Request) -> JSONResponse:
    """A policy engine that writes `true` on the Pods of every Job, whatever stands there."""
    asked = (await request.json())["request"]
    metadata = merged(asked["object"]["spec"]["template"].get("metadata", {}), {"annotations": {KEY: "true"}})
    patch = json.dumps([{"op": "add", "path": "/spec/template/metadata", "value": metadata}])
    encoded = base64.b64encode(patch.encode()).decode()
    response = {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
    return JSONResponse({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def after_ours(endpoint: Endpoint, namespace: str) -> dict[str, Any]:
    """A configuration whose webhook is called after ours, for the API server goes by their names."""
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE", "UPDATE"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "policy-engine"},
        "webhooks": [
            {
                "name": "adds-true.policy-engine.test",
                "admissionReviewVersions": ["v1"],
                "clientConfig": endpoint.client_config("/"),
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [rule],
                "sideEffects": "None",
            }
        ],
    }


@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_true_that_another_webhook_adds_after_ours_is_bounded_too(
    flags: tuple[str, ...], control_plane: ControlPlane, webhook: Deployment, tmp_path: Path
) -> None:
    namespace = "-".join(["engine", *(flag.strip("-") for flag in flags)])
    control_plane.kubectl("create", "namespace", namespace)
    document = read(CASES / "inputs" / "089-plain-job-another-webhook-adds-true.yaml")
    document["metadata"]["namespace"] = namespace

    def is_in_force(plane: ControlPlane) -> bool:
        admitted = create(plane, job("canary", namespace)).admitted
        return admitted is not None and KEY in admitted["spec"]["template"]["metadata"]["annotations"]

    application = Starlette(routes=[Route("/", adds_true, methods=["POST"])])
    with (
        deployment.in_thread(application, tmp_path) as endpoint,
        deployment.registered(control_plane, [after_ours(endpoint, namespace)], is_in_force),
    ):
        first = apply(control_plane, document, *flags)
        again = apply(control_plane, document, *flags)
        different = diff(control_plane, document, *flags)
    for answer in (first, again):
        assert answer.admitted is not None, answer.error
        assert answer.admitted["spec"]["podFailurePolicy"] == {"rules": [IGNORE]}
        assert answer.admitted["spec"]["template"]["metadata"]["annotations"] == {KEY: "1h", **GUARDED}
    assert again.admitted is not None
    assert again.admitted["metadata"]["generation"] == 1
    assert different == ""
    lines = [line for line in webhook.decided() if (line["namespace"], line["name"]) == (namespace, "nightly")]
    created = [line["mended"] for line in lines if line["deed"] == "mutate" and line["operation"] == "CREATE"]
    assert created == [["pod-failure-policy"], ["do-not-disrupt"]]


@pytest.fixture(scope="module")
def quiet(control_plane: ControlPlane) -> str:
    """A namespace in which Pods can be made."""
    control_plane.kubectl("create", "namespace", "calls")
    control_plane.kubectl("wait", "serviceaccount/default", "-n", "calls", "--for=create", "--timeout=20s")
    return "calls"


def test_fifty_pods_that_say_nothing_cause_no_call(
    quiet: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    before = calls(webhook, quiet)
    pods = [merged(POD, {"metadata": {"name": f"plain-{number}"}}) for number in range(50)]
    control_plane.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    control_plane.kubectl("label", "pod", "--all", "seen=yes", "-n", quiet)
    assert calls(webhook, quiet) == before


def test_the_fifty_pods_of_a_job_cause_no_call_and_their_job_one_of_each_kind(
    quiet: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    before = calls(webhook, quiet)
    stored(control_plane, job("wide", quiet, parallelism=50, completions=50, **ON_TRUE))
    control_plane.kubectl("wait", "job/wide", "-n", quiet, "--for=jsonpath={.status.active}=50", "--timeout=60s")
    pods = control_plane.get("pods", "-n", quiet, "--selector=batch.kubernetes.io/job-name=wide")["items"]
    assert [pod["metadata"]["annotations"][KEY] for pod in pods] == ["24h"] * 50
    assert calls(webhook, quiet) == [*before, "mutate CREATE", "validate CREATE"]


def test_updates_of_a_job_that_change_nothing_of_ours_cause_no_call(
    quiet: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    stored(control_plane, job("right", quiet, suspend=True, **policy(IGNORE)))
    before = calls(webhook, quiet)
    for value in "abc":
        control_plane.kubectl("label", "job", "right", f"seen={value}", "--overwrite", "-n", quiet)
    assert calls(webhook, quiet) == before
    control_plane.kubectl("annotate", "job", "right", "karpenter.sh/do-not-disrupt=true", "-n", quiet)
    control_plane.kubectl("label", "job", "right", "karpenter.sh/do-not-disrupt=true", "-n", quiet)
    control_plane.kubectl("patch", "job", "right", "-n", quiet, "-p", '{"spec": {"backoffLimit": 2}}')
    assert calls(webhook, quiet) == [*before, *["validate UPDATE"] * 3]


def test_a_bare_pod_that_is_annotated_is_mended_and_judged(
    quiet: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    before = calls(webhook, quiet)
    document = merged(POD, {"metadata": {"annotations": {KEY: "true"}}, "spec": {"activeDeadlineSeconds": 3600}})
    answer = apply(control_plane, document)
    assert answer.admitted is not None, answer.error
    assert answer.admitted["metadata"]["annotations"][KEY] == "1h"
    assert calls(webhook, quiet) == [*before, "mutate CREATE", "validate CREATE"]
    again = apply(control_plane, document)
    assert again.admitted is not None, again.error
    assert again.admitted["metadata"]["annotations"][KEY] == "1h"
    assert calls(webhook, quiet)[len(before) + 2 :] == ["mutate UPDATE"]


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_deleting_a_job_works_and_causes_no_error(
    cascade: str, quiet: str, control_plane: ControlPlane, webhook: Deployment
) -> None:
    name = f"deleted-in-the-{cascade}"
    stored(control_plane, job(name, quiet, parallelism=2, **merged(ON_FAILURE, ON_TRUE)))
    control_plane.kubectl("wait", f"job/{name}", "-n", quiet, "--for=jsonpath={.status.active}=2", "--timeout=20s")
    control_plane.kubectl("delete", "job", name, "-n", quiet, f"--cascade={cascade}", "--timeout=20s")
    assert "NotFound" in control_plane.kubectl("get", "job", name, "-n", quiet, check=False).stderr
    lines = [line for line in webhook.decided() if line["name"] == name]
    assert all(line["allowed"] and line["message"] == "review decided" for line in lines)
    assert '"level":"error"' not in webhook.log.read_text()
