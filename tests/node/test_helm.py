"""The chart installs, and releases of others go on to work: upgrades, and hooks with the webhook up and down."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import helm
from tests.node import installation
from tests.node.image import BUSYBOX
from tests.node.installation import DEPLOY, NAMESPACE, REPOSITORY
from tests.node.ring import Ring

pytestmark = pytest.mark.timeout(900)

RULE: Final = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
IGNORE: Final = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
SECONDS: Final = 120
Helm = Callable[..., str]


@pytest.fixture(scope="module")
def run(installable: Ring, pytestconfig: pytest.Config) -> Helm:
    """Helm as the administrator: what it prints. Its end in an error fails the test."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        program = helm.find()
    environment = dict(installable.plane.environment)

    def said(*words: str | Path) -> str:
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=SECONDS, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return said


@pytest.fixture(scope="module")
def released(installable: Ring, run: Helm) -> Iterator[Ring]:
    """The ring with the chart, installed as docs/install.md says."""
    before = installation.things(installable)
    words = ("--namespace", NAMESPACE, "--create-namespace", "--set", f"image.repository={REPOSITORY}")
    run("install", "drainproof", DEPLOY / "chart", *words)
    installation.wait_until_mending(installable)
    installation.wait_until_ready(installable)
    yield installable
    installation.uninstall(installable, lambda: run("-n", NAMESPACE, "uninstall", "drainproof"))
    assert installation.things(installable) == before


def job(name: str, command: str, annotations: dict[str, str], **more: Any) -> dict[str, Any]:
    container = {"name": "main", "image": BUSYBOX, "command": ["sh", "-c", command]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{{{{ .Release.Name }}}}-{name}", "annotations": annotations},
        "spec": {
            **more,
            "template": {
                "metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
                "spec": {"restartPolicy": "{{ .Values.restart }}", "containers": [container]},
            },
        },
    }


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A chart of somebody: a Job with a policy of its own, a ConfigMap that changes, and a Job for hooks."""
    hooks = "post-install,pre-upgrade,pre-delete"
    deletion = {"helm.sh/hook": hooks, "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"}
    works = job("works", "trap 'exit 0' TERM; sleep 600 & wait", {}, podFailurePolicy={"rules": [RULE]})
    said = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}"}}
    files: dict[str, dict[str, Any]] = {
        "values.yaml": {"said": "nothing", "restart": "OnFailure"},
        "Chart.yaml": {"apiVersion": "v2", "name": "somebody", "version": "0.1.0"},
        "templates/works.yaml": works,
        "templates/hook.yaml": job("hook", "true", deletion),
        "templates/said.yaml": {**said, "data": {"said": "{{ .Values.said }}"}},
    }
    (tmp_path / "templates").mkdir()
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    return tmp_path


def test_an_upgrade_with_an_unchanged_job_that_was_rewritten_succeeds(released: Ring, run: Helm, chart: Path) -> None:
    run("install", "theirs", chart, "--set", "said=one")
    before = released.plane.get("job", "theirs-works")
    assert before["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert [rule["action"] for rule in before["spec"]["podFailurePolicy"]["rules"]] == ["Ignore", "FailJob"]
    for said in ("two", "three"):
        run("upgrade", "theirs", chart, "--set", f"said={said}")
        after = released.plane.get("job", "theirs-works")
        assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
        assert released.plane.get("configmap", "theirs")["data"] == {"said": said}
    run("uninstall", "theirs")


def test_hooks_of_a_release_run_with_the_webhook_up_and_down(released: Ring, run: Helm, chart: Path) -> None:
    valid = ("--set", "restart=Never")  # beside a policy, and without anybody who would rewrite it
    for replicas in (0, installation.REPLICAS):
        released.kubectl("scale", "deployment", "drainproof", "--namespace", NAMESPACE, f"--replicas={replicas}")
        installation.wait_until_ready(released, replicas)
        if replicas:
            installation.wait_until_mending(released)
        for words in (("install", "hooked", chart, *valid), ("uninstall", "hooked")):
            run(*words)
        installation.until(lambda: "hooked" not in released.kubectl("get", "jobs", "-o", "name").stdout, seconds=30)
