"""Installed as the page says, drainproof mends Jobs through its Service, may do what it must, and goes entirely."""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests import rights
from tests.node import installation
from tests.node.image import BUSYBOX
from tests.node.installation import CONTROLLER, NAMESPACE, WEBHOOK
from tests.node.ring import Ring

pytestmark = pytest.mark.timeout(900)  # the first test builds the image, and on a new machine its base

MENDED_SECONDS: Final = 60
INJECT: Final = "drainproof.dev/inject"
CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
FAILED_OPEN: Final = re.compile(
    r'^apiserver_admission_webhook_fail_open_count\{name="(jobs\.\w+)\.drainproof\.dev".*\} (\d+)$', re.MULTILINE
)


@dataclass(frozen=True)
class Installed:
    """An installation: where its kustomization lies, what there was before it, and how many seconds it took."""

    folder: Path
    before: set[str]
    seconds: float


@pytest.fixture(scope="module")
def installed(installable: Ring, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    before = installation.things(installable)
    folder = installation.kustomization(tmp_path_factory.mktemp("install"))
    began = time.monotonic()
    installable.kubectl("apply", "--server-side", "-k", str(folder))
    installation.wait_until_mending(installable)
    seconds = time.monotonic() - began
    installation.wait_until_ready(installable)
    yield Installed(folder, before, seconds)
    if installation.things(installable) != before:  # only where the last test was not reached
        installation.uninstall(installable, "drainproof")


def job(name: str, namespace: str = "default") -> dict[str, Any]:
    container = {"name": "main", "image": BUSYBOX, "command": ["true"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}},
    }


def is_mended(found: dict[str, Any]) -> bool:
    return "podFailurePolicy" in found["spec"] and "drainproof.dev/mended" in found["metadata"]["annotations"]


def dry_run(ring: Ring, namespace: str) -> dict[str, Any]:
    return ring.plane.create(job("tried", namespace), "--dry-run=server")


def configurations(ring: Ring) -> list[dict[str, Any]]:
    found = [ring.plane.get(kind, "drainproof") for kind in CONFIGURATIONS]
    return [webhook for one in found for webhook in one["webhooks"]]


def test_the_first_job_is_mended_soon(installable: Ring, installed: Installed, tell: Callable[[str], None]) -> None:
    tell(f"from nothing to the first mended Job: {installed.seconds:.1f} s")
    assert installed.seconds < MENDED_SECONDS
    made = installable.plane.create(job("first"))
    assert is_mended(made)
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    installable.kubectl("wait", "job/first", "--for=condition=Complete", "--timeout=50s")
    installable.kubectl("delete", "job", "first", "--timeout=50s")


@pytest.mark.usefixtures("installed")
def test_the_api_server_calls_the_service_and_trusts_the_ca_of_the_controller(installable: Ring) -> None:
    clients = [webhook["clientConfig"] for webhook in configurations(installable)]
    assert {client["service"]["name"] for client in clients} == {"drainproof"}
    assert all("url" not in client for client in clients)
    (bundle,) = {client["caBundle"] for client in clients}
    assert bundle


@pytest.mark.usefixtures("installed")
def test_the_webhook_has_two_replicas_without_a_token_and_the_controller_has_one_with_it(installable: Ring) -> None:
    replicas = installation.pods(installable)
    (controller,) = installation.pods(installable, CONTROLLER)
    assert len(replicas) == installation.REPLICAS
    mounted = "/var/run/secrets/kubernetes.io"
    for pod in (*replicas, controller):
        status = pod["status"]["containerStatuses"][0]
        assert status["image"] == installation.IMAGE
        assert status["restartCount"] == 0
        assert (mounted in json.dumps(pod["spec"])) == (pod is controller)
    name = replicas[0]["metadata"]["name"]
    words = ("exec", name, "--namespace", NAMESPACE, "--", "python", "-c")
    said = installable.kubectl(*words, f"import os; print(os.getuid(), os.path.exists({mounted!r}))").stdout
    assert said == "65532 False\n"


@pytest.mark.usefixtures("installed")
def test_a_dry_run_shows_what_would_be_and_leaves_nothing(installable: Ring) -> None:
    assert is_mended(dry_run(installable, "default"))
    assert installable.kubectl("get", "job", "tried", "--ignore-not-found").stdout == ""


@pytest.mark.usefixtures("installed")
def test_the_controller_may_do_what_it_needs_and_nothing_else(installable: Ring) -> None:
    asked = {*rights.MAY, *rights.MAY_NOT, *rights.STAMP}
    assert rights.allowed(installable.plane, asked) == set(rights.MAY)
    assert rights.allowed(installable.plane, asked, "default") == {*rights.EVERYWHERE, *rights.CONFIGURING}
    words = ("auth", "can-i", "get", "secrets/drainproof-tls", f"--as={rights.ACCOUNT}", "--namespace")
    said = [installable.kubectl(*words, one, check=False).stdout for one in (NAMESPACE, "default")]
    assert said == ["yes\n", "no\n"]


def test_only_namespaces_that_opt_in_are_looked_at(installable: Ring, installed: Installed, tmp_path: Path) -> None:
    bundles = {webhook["clientConfig"]["caBundle"] for webhook in configurations(installable)}
    installable.kubectl("create", "namespace", "opting")
    overlay = installation.kustomization(tmp_path, "namespace-opt-in")
    try:
        installable.kubectl("apply", "--server-side", "-k", str(overlay))
        installation.until(lambda: not is_looked_at(installable, "opting"), seconds=20)
        installable.kubectl("label", "namespace", "opting", f"{INJECT}=enabled")
        installation.until(lambda: is_looked_at(installable, "opting"), seconds=20)
        assert not is_looked_at(installable, "default")
        installable.kubectl("label", "namespace", "opting", f"{INJECT}-")
        installation.until(lambda: not is_looked_at(installable, "opting"), seconds=20)
        # Applying anything of ours again takes no CA away.
        assert {webhook["clientConfig"]["caBundle"] for webhook in configurations(installable)} == bundles
    finally:
        installable.kubectl("apply", "--server-side", "-k", str(installed.folder))
        installable.kubectl("delete", "namespace", "opting", "--timeout=50s")
    installation.wait_until_mending(installable)


def is_looked_at(ring: Ring, namespace: str) -> bool:
    return "podFailurePolicy" in dry_run(ring, namespace)["spec"]


KARPENTER: Final = "system:serviceaccount:kube-system:karpenter"
STAMP: Final = "pods.stamp.drainproof.dev"
# What an apply without the component leaves behind, as docs/install.md says.
LEFT: Final = (
    ("delete", "clusterrole,clusterrolebinding", "drainproof-stamp"),
    ("-n", NAMESPACE, "delete", "service,poddisruptionbudget", "drainproof-controller"),
)


def test_with_the_stamp_a_job_does_not_count_what_karpenter_deletes(
    installable: Ring, installed: Installed, tmp_path: Path
) -> None:
    rules = {"disruption-stamp": {"fix": True}}
    folder = installation.kustomization(tmp_path, components=["disruption-stamp"], rules=rules)
    page = (installation.ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(f"`kubectl {' '.join(words)}`" in page for words in LEFT)
    try:
        installable.kubectl("apply", "--server-side", "-k", str(folder))
        installation.wait_until_ready(installable, 2, CONTROLLER)
        installation.until(lambda: STAMP in trusted(installable), seconds=30)
        asked = {*rights.MAY, *rights.MAY_NOT, *rights.STAMP}
        assert rights.allowed(installable.plane, asked) == {*rights.MAY, *rights.STAMP}
        installable.plane.create(works("forced"))
        installation.until(lambda: is_running(installable, "forced"), seconds=50)
        (before,) = pods_of(installable, "forced")
        as_karpenter = ("--wait=false", f"--as={KARPENTER}", "--as-group=system:masters")
        installable.kubectl("delete", before, "--grace-period=20", *as_karpenter)
        (marked,) = disruptions(installable, before)
        assert (marked["status"], marked["reason"]) == ("True", "DeletionByKarpenter")
        installation.until(lambda: pods_of(installable, "forced") not in ([], [before]), seconds=60)
        assert installable.plane.get("job", "forced")["status"].get("failed", 0) == 0
        installable.kubectl("delete", "job", "forced", "--timeout=50s")
    finally:
        installable.kubectl("apply", "--server-side", "-k", str(installed.folder))
        for words in LEFT:
            installable.kubectl(*words, "--ignore-not-found")
    installation.wait_until_ready(installable, 1, CONTROLLER)
    assert STAMP not in {webhook["name"] for webhook in configurations(installable)}


def works(name: str) -> dict[str, Any]:
    """A Job that fails when it is stopped."""
    made = job(name)
    made["spec"]["template"]["spec"]["containers"][0]["command"] = [
        "sh",
        "-c",
        "trap 'sleep 3; exit 1' TERM; sleep 600 & wait",
    ]
    return made


def trusted(ring: Ring) -> set[str]:
    """The webhooks with a CA that the API server goes by."""
    return {webhook["name"] for webhook in configurations(ring) if webhook["clientConfig"].get("caBundle")}


def pods_of(ring: Ring, job: str) -> list[str]:
    return ring.kubectl("get", "pods", f"--selector=batch.kubernetes.io/job-name={job}", "-o", "name").stdout.split()


def is_running(ring: Ring, job: str) -> bool:
    return any(ring.plane.get(pod)["status"]["phase"] == "Running" for pod in pods_of(ring, job))


def disruptions(ring: Ring, pod: str) -> list[dict[str, Any]]:
    conditions = ring.plane.get(pod)["status"]["conditions"]
    return [one for one in conditions if one["type"] == "DisruptionTarget"]


@pytest.mark.usefixtures("installed")
def test_without_any_replica_jobs_are_created_as_written_and_counted(installable: Ring) -> None:
    before = failed_open(installable)
    scale(installable, 0)
    made = installable.plane.create(job("unasked"))
    assert "podFailurePolicy" not in made["spec"]
    installable.kubectl("wait", "job/unasked", "--for=condition=Complete", "--timeout=50s")
    after = failed_open(installable)
    for name in ("jobs.mutate", "jobs.validate"):
        assert after[name] > before.get(name, 0)
    scale(installable, installation.REPLICAS)
    installation.wait_until_mending(installable)
    installable.kubectl("delete", "job", "unasked", "--timeout=50s")


def failed_open(ring: Ring) -> dict[str, int]:
    page = ring.kubectl("get", "--raw", "/metrics").stdout
    return {name: int(count) for name, count in FAILED_OPEN.findall(page)}


def scale(ring: Ring, replicas: int) -> None:
    ring.kubectl("scale", "deployment", "drainproof", "--namespace", NAMESPACE, f"--replicas={replicas}")
    installation.wait_until_ready(ring, replicas)


def test_uninstalling_leaves_nothing_and_mended_jobs_stay(installable: Ring, installed: Installed) -> None:
    assert is_mended(installable.plane.create(job("stays")))
    installation.uninstall(installable, "drainproof")
    assert installable.kubectl("get", "pods", "--all-namespaces", f"--selector={WEBHOOK}", "-o", "name").stdout == ""
    assert is_mended(installable.plane.get("job", "stays"))
    installable.kubectl("delete", "job", "stays", "--timeout=50s")
    assert installation.things(installable) == installed.before
    assert installation.drainproof(installable, "uninstall") == "There is nothing left to remove.\n"
