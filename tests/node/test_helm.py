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
WORDS: Final = ("--namespace", NAMESPACE, "--create-namespace")
EVERYWHERE: Final = {f"ConfigMap/{NAMESPACE}/kube-root-ca.crt", f"ServiceAccount/{NAMESPACE}/default"}
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
    run("install", "drainproof", DEPLOY / "chart", *WORDS, "--set", f"image.repository={REPOSITORY}")
    installation.wait_until_mending(installable)
    installation.wait_until_ready(installable)
    yield installable
    if "drainproof" in run("list", "--all", "--short", "--namespace", NAMESPACE).split():  # where a test failed
        run("uninstall", "drainproof", "--namespace", NAMESPACE, "--no-hooks")
        installation.drainproof(installable, "uninstall")


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


def test_an_uninstall_by_the_program_is_left_to_helm(released: Ring) -> None:
    before = installation.things(released)
    with pytest.raises(AssertionError, match=f"helm --namespace {NAMESPACE} uninstall drainproof"):
        installation.drainproof(released, "uninstall")
    assert installation.things(released) == before


def test_helm_alone_leaves_nothing_but_the_namespace(released: Ring, run: Helm) -> None:
    watch = ("get", "events", "--namespace", NAMESPACE, "-o", "jsonpath={.items[*].involvedObject.name}")
    (namespace, *more) = installation.commands("helm")
    run(*namespace[1:])
    left = {one for one in installation.things(released) if "drainproof" in one}
    assert left == {f"Namespace//{NAMESPACE}", *EVERYWHERE}
    told = released.kubectl(*watch).stdout.split()
    assert {"drainproof-uninstall", "drainproof-leftovers"} <= set(told)
    for program, *words in more:
        assert program == "kubectl"
        released.kubectl(*words, timeout=120)


def test_an_image_out_of_reach_holds_up_helm_for_a_bounded_time_and_nothing_is_removed(
    installable: Ring, run: Helm
) -> None:
    values = ("image.repository=none.test/none", "uninstallHook.activeDeadlineSeconds=30")
    run("install", "drainproof", DEPLOY / "chart", *WORDS, *(word for one in values for word in ("--set", one)))
    installed = installation.things(installable)
    with pytest.raises(AssertionError, match="DeadlineExceeded"):
        run("uninstall", "drainproof", "--namespace", NAMESPACE)
    assert installed <= installation.things(installable)
    installation.uninstall(installable, "drainproof uninstall --configurations-only", helm=run)
    left = {one for one in installation.things(installable) if "drainproof" in one}
    assert left == {f"Namespace//{NAMESPACE}", *EVERYWHERE}
    installable.kubectl("delete", "namespace", NAMESPACE, "--timeout=50s")
