"""A policy that only monitors, and the audit log, in front of a real API server that keeps one."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import controlplane, deployment, process
from tests.cluster.answer import create
from tests.cluster.controlplane import ControlPlane
from tests.cluster.deployment import Deployment
from tests.cluster.programs import Program
from tests.tables import merged

SECONDS: Final = 20.0
MUTATE: Final = "jobs.mutate.drainproof.dev"
VALIDATE: Final = "jobs.validate.drainproof.dev"
AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "resources": [{"group": "batch", "resources": ["jobs"]}]}, {"level": "None"}],
}
MENDED: Final[dict[str, Any]] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "default", "name": "on-failure"},
    "spec": {
        "template": {
            "metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "example.test/c:1"}]},
        }
    },
}
REFUSED: Final[dict[str, Any]] = merged(
    MENDED,
    {
        "metadata": {"name": "too-short"},
        "spec": {
            "template": {
                "metadata": {"annotations": {"drainproof.dev/max-task-duration": "28s"}},
                "spec": {"terminationGracePeriodSeconds": 20},
            }
        },
    },
)
LEFT: Final[dict[str, Any]] = merged(
    REFUSED, {"metadata": {"name": "exempt", "annotations": {"drainproof.dev/ignore": "moves next week"}}}
)


@dataclass(frozen=True)
class Cluster:
    """A control plane whose audit log is a file, and our webhook with a policy that is a file."""

    plane: ControlPlane
    audit: Path
    policy: Path
    stored_alone: dict[str, str]
    webhook: Deployment

    def enforce(self) -> None:
        """The policy that the running webhook goes by from now on."""
        write(self.policy, "enforce")
        until(lambda: '"policy taken over"' in self.webhook.log.read_text())

    def audited(self, name: str) -> dict[str, str]:
        """Our annotations in the audit log on the last creation of a Job."""
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        events = [line for line in lines if line["verb"] == "create" and line["objectRef"].get("name") == name]
        found = events[-1].get("annotations", {})
        return {key: text for key, text in found.items() if key.partition("/")[0] in (MUTATE, VALIDATE)}


def write(policy: Path, mode: str) -> None:
    policy.write_text(json.dumps({"apiVersion": "drainproof.dev/v1", "kind": "Policy", "mode": mode}))


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def stored(plane: ControlPlane, document: dict[str, Any]) -> tuple[str, str]:
    """A Job as it is stored, byte for byte but for what is never twice the same, and what kubectl says besides."""
    done = plane.kubectl("create", "-f", "-", input=json.dumps(document))
    name = document["metadata"]["name"]
    raw = plane.kubectl("get", "--raw", f"/apis/batch/v1/namespaces/default/jobs/{name}").stdout
    plane.kubectl("delete", "job", name)
    raw = raw.replace(json.loads(raw)["metadata"]["uid"], "UID")
    raw = re.sub(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"', '"TIME"', raw)
    return re.sub(r'"resourceVersion":"\d+"', '"resourceVersion":""', raw), done.stderr


@pytest.fixture(scope="module")
def cluster(
    found_programs: dict[str, Program],  # noqa: ARG001 - without them the tests fail
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("monitor")
    rules, audit, policy = folder / "audit.json", folder / "audit.log", folder / "policy.yaml"
    rules.write_text(json.dumps(AUDIT))
    write(policy, "monitor")
    flags = (f"--audit-policy-file={rules}", f"--audit-log-path={audit}")
    try:
        # Without controllers nothing but our webhook has a say in what is stored.
        with controlplane.running(folder / "plane", controllers=False, apiserver_flags=flags) as plane:
            alone = {document["metadata"]["name"]: stored(plane, document)[0] for document in (MENDED, REFUSED)}
            with deployment.serving(folder, "--policy", str(policy), "--reload-seconds", "0.2") as webhook:
                documents = deployment.configurations(webhook)
                with deployment.registered(plane, documents, lambda plane: called(plane, webhook)):
                    yield Cluster(plane, audit, policy, alone, webhook)
    except process.ProcessError as error:
        pytest.fail(str(error), pytrace=False)


def called(plane: ControlPlane, webhook: Deployment) -> bool:
    """Whether the API server calls both webhooks, which nothing but their log shows while they only monitor."""
    answer = create(plane, deployment.CANARY)
    assert answer.error == ""
    return {"mutate", "validate"} <= {line["deed"] for line in webhook.decided()}


@pytest.mark.parametrize("document", [MENDED, REFUSED], ids=["mended", "refused"])
def test_while_monitoring_a_job_is_stored_byte_for_byte_as_without_us_and_without_a_warning(
    cluster: Cluster, document: dict[str, Any]
) -> None:
    name = document["metadata"]["name"]
    assert stored(cluster.plane, document) == (cluster.stored_alone[name], "")
    decided = [line for line in cluster.webhook.decided() if line["name"] == name]
    assert [(line["deed"], line["allowed"], line["mode"]) for line in decided] == [
        ("mutate", True, "monitor"),
        ("validate", True, "monitor"),
    ]
    assert decided[0]["outcome"] == "would-mend"
    assert (decided[1]["outcome"] == "would-deny") is (document is REFUSED)


def test_while_monitoring_the_audit_log_says_what_would_have_been_done(cluster: Cluster) -> None:
    stored(cluster.plane, REFUSED)
    audited = cluster.audited("too-short")
    assert audited[f"{MUTATE}/mode"] == audited[f"{VALIDATE}/mode"] == "monitor"
    assert audited[f"{MUTATE}/mended"].startswith("restart-policy,pod-failure-policy,")
    assert audited[f"{VALIDATE}/denied"] == "grace-budget"


def test_once_the_policy_enforces_the_audit_log_says_what_was_done(cluster: Cluster) -> None:
    cluster.enforce()
    raw, warnings = stored(cluster.plane, MENDED)
    assert raw != cluster.stored_alone["on-failure"]
    assert json.loads(raw)["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert "(restart-policy)" in warnings
    audited = cluster.audited("on-failure")
    mended = "restart-policy,pod-failure-policy,do-not-disrupt"
    assert audited[f"{MUTATE}/mended"] == mended
    assert audited[f"{MUTATE}/warned"] == "restart-policy,do-not-disrupt"
    assert not [key for key in audited if key.endswith("/mode")]

    refused = create(cluster.plane, REFUSED, dry_run=False)
    assert refused.denied_by_us
    assert cluster.audited("too-short")[f"{VALIDATE}/denied"] == "grace-budget"

    stored(cluster.plane, LEFT)
    told = {f"{webhook}/exempt": "*: moves next week" for webhook in (MUTATE, VALIDATE)}
    assert cluster.audited("exempt") == told
