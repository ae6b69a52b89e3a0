"""The chart: its default is the base, and each value does what it says."""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests import manifests
from tests.cluster import helm
from tests.manifests import DEPLOY, Objects, objects
from webhook import __version__

# Both programs may have to be built first.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

CHART: Final = DEPLOY / "chart"
SHARED: Final = {
    "mutating.yaml": DEPLOY / "base" / "mutating.yaml",
    "validating.yaml": DEPLOY / "base" / "validating.yaml",
    "alerts.yaml": DEPLOY / "components" / "monitoring" / "alerts.yaml",
    "dashboard.json": DEPLOY / "components" / "monitoring" / "dashboard.json",
}


@pytest.fixture(scope="module")
def program(pytestconfig: pytest.Config) -> Path:
    """Helm; without it these tests fail. The progress of a build is not held back by pytest's capturing."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return helm.find()
    with capture.global_and_fixture_disabled():
        return helm.find()


def template(program: Path, *values: str, namespace: str = "drainproof", check: bool = True) -> Any:
    """What `helm template` says; each value is for --set."""
    words = [word for value in values for word in ("--set", value)]
    command: list[str | Path] = [program, "template", "drainproof", CHART, "--namespace", namespace, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def made(program: Path, *values: str, namespace: str = "drainproof") -> Objects:
    return objects(template(program, *values, namespace=namespace).stdout)


def test_the_default_is_the_base(program: Path) -> None:
    base = objects(manifests.rendered(DEPLOY / "base"))
    del base["Namespace", "drainproof"]  # of a release, Helm makes it or you do
    assert made(program) == base


def test_opting_in_is_the_overlay(program: Path) -> None:
    overlay = objects(manifests.rendered(DEPLOY / "overlays" / "namespace-opt-in"))
    del overlay["Namespace", "drainproof"]
    assert made(program, "webhooks.namespaces=opt-in") == overlay


def test_cert_manager_is_the_overlay(program: Path) -> None:
    overlay = objects(manifests.rendered(DEPLOY / "overlays" / "cert-manager"))
    del overlay["Namespace", "drainproof"]
    assert made(program, "certificates.source=cert-manager") == overlay


def test_monitoring_is_the_overlay(program: Path) -> None:
    overlay = objects(manifests.rendered(DEPLOY / "overlays" / "monitoring"))
    del overlay["Namespace", "drainproof"]
    parts = ("serviceMonitor", "rules", "dashboard")
    assert made(program, *(f"monitoring.{part}.enabled=true" for part in parts)) == overlay


@pytest.mark.parametrize("name", SHARED)
def test_what_base_and_chart_share_is_the_same_file(name: str) -> None:
    # A copy, for a link out of the chart is lost where a chart is packed from a Git archive.
    shared = SHARED[name]
    same = shared.read_bytes() == (CHART / "files" / name).read_bytes()
    assert same, f"cp {shared.relative_to(manifests.ROOT)} deploy/chart/files/{name}"
    assert {one.name for one in (CHART / "files").iterdir()} == set(SHARED)


def test_nothing_of_another_namespace_is_left_over(program: Path) -> None:
    values = ("certificates.source=cert-manager", "monitoring.rules.enabled=true", "monitoring.dashboard.enabled=true")
    for given in ((), (*values, "monitoring.serviceMonitor.enabled=true")):
        found = made(program, *given, namespace="elsewhere")
        for (kind, name), one in found.items():
            assert one["metadata"].get("namespace") in ("elsewhere", None), (kind, name)
        for one in found.values():
            for webhook in one.get("webhooks", []):
                assert webhook["clientConfig"]["service"]["namespace"] == "elsewhere"
                excluded = webhook["namespaceSelector"]["matchExpressions"][0]["values"]
                assert excluded == ["kube-system", "kube-node-lease", "elsewhere"]
            for subject in one.get("subjects", []):
                assert subject["namespace"] == "elsewhere"
    controller = made(program, namespace="elsewhere")["Deployment", "drainproof-controller"]
    assert "--namespace=elsewhere" in controller["spec"]["template"]["spec"]["containers"][0]["args"]


def test_validation_fails_closed_by_choice_and_mutation_never_does(program: Path) -> None:
    found = made(program, "webhooks.failurePolicy=Fail", "webhooks.timeoutSeconds=1")
    policies = {
        kind: {webhook["failurePolicy"] for webhook in found[kind, "drainproof"]["webhooks"]}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    }
    assert policies == {"MutatingWebhookConfiguration": {"Ignore"}, "ValidatingWebhookConfiguration": {"Fail"}}
    webhooks = [webhook for one in found.values() for webhook in one.get("webhooks", [])]
    assert {webhook["timeoutSeconds"] for webhook in webhooks} == {1}


def test_a_certificate_of_ones_own_needs_no_controller(program: Path) -> None:
    found = made(program, "certificates.source=secret", "certificates.caBundle=PEM", "certificates.secretName=mine")
    assert not [name for _, name in found if name == "drainproof-controller"]
    webhooks = [webhook for one in found.values() for webhook in one.get("webhooks", [])]
    assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {"UEVN"}
    volumes = found["Deployment", "drainproof"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[0]["secret"]["secretName"] == "mine"


def test_an_issuer_of_ones_own_takes_the_place_of_ours(program: Path) -> None:
    issuer = {"kind": "ClusterIssuer", "name": "corporate"}
    values = [f"certificates.certManager.issuerRef.{key}={value}" for key, value in issuer.items()]
    found = made(program, "certificates.source=cert-manager", *values)
    assert found["Certificate", "drainproof"]["spec"]["issuerRef"] == issuer
    assert [kind for kind, _ in found if kind == "Issuer"] == []


def test_the_grace_period_follows_the_drain_time(program: Path) -> None:
    template = made(program, "webhook.drainSeconds=40")["Deployment", "drainproof"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {"drainproof.dev/max-task-duration": "45s"}
    assert template["spec"]["terminationGracePeriodSeconds"] == 60
    assert "--drain-seconds=40" in template["spec"]["containers"][0]["args"]


def test_pods_go_where_values_say(program: Path) -> None:
    values = (
        "nodeSelector.a=b",
        "tolerations[0].key=c",
        "podLabels.d=e",
        "podAnnotations.f=g",
        "affinity.nodeAffinity=null",
    )
    found = made(
        program,
        *(f"{part}.{value}" for part in ("webhook", "controller") for value in values),
        "image.pullSecrets[0]=h",
    )
    for name in ("drainproof", "drainproof-controller"):
        template = found["Deployment", name]["spec"]["template"]
        assert template["spec"]["nodeSelector"] == {"a": "b"}
        assert template["spec"]["tolerations"] == [{"key": "c"}]
        assert template["spec"]["imagePullSecrets"] == [{"name": "h"}]
        assert template["metadata"]["labels"]["d"] == "e"
        assert template["metadata"]["annotations"]["f"] == "g"


def test_the_webhook_can_run_in_the_network_of_its_node(program: Path) -> None:
    found = made(program, "webhook.hostNetwork=true", "webhook.port=9443")
    pod = found["Deployment", "drainproof"]["spec"]["template"]["spec"]
    assert pod["hostNetwork"] is True
    assert pod["containers"][0]["ports"][0]["containerPort"] == 9443
    assert "--port=9443" in pod["containers"][0]["args"]
    to_replicas = found["NetworkPolicy", "drainproof-controller"]["spec"]["egress"][1]
    assert to_replicas["ports"] == [{"port": 9443, "protocol": "TCP"}]


def test_traces_go_where_values_say(program: Path) -> None:
    url = "http://collector.example:4318"
    found = made(program, f"webhook.traces={url}")
    containers = found["Deployment", "drainproof"]["spec"]["template"]["spec"]["containers"]
    assert containers[0]["args"][-1] == f"--traces={url}"


def test_without_autoscaling_there_are_as_many_replicas_as_are_asked_for(program: Path) -> None:
    found = made(program, "webhook.autoscaling.enabled=false", "webhook.autoscaling.minReplicas=3")
    assert ("HorizontalPodAutoscaler", "drainproof") not in found
    assert found["Deployment", "drainproof"]["spec"]["replicas"] == 3


def test_the_rest_of_a_policy_is_put_around_what_the_values_say(program: Path) -> None:
    policy = made(program, "policy.mode=monitor")["ConfigMap", "drainproof-policy"]["data"]["policy.yaml"]
    assert policy == {"apiVersion": "drainproof.dev/v1", "kind": "Policy", "mode": "monitor"}


def test_a_digest_counts_before_a_tag(program: Path) -> None:
    digest = "sha256:" + "a" * 64
    found = made(program, "image.repository=registry.example/d", "image.tag=v9", f"image.digest={digest}")
    names = [name for kind, name in found if kind == "Deployment"]
    images = {found["Deployment", name]["spec"]["template"]["spec"]["containers"][0]["image"] for name in names}
    assert images == {f"registry.example/d@{digest}"}


def test_what_can_be_left_out_is_left_out(program: Path) -> None:
    found = made(program, "networkPolicy.enabled=false", "priorityClass.create=false", "priorityClass.name=mine")
    assert not {"NetworkPolicy", "PriorityClass"} & {kind for kind, _ in found}
    assert found["Deployment", "drainproof"]["spec"]["template"]["spec"]["priorityClassName"] == "mine"


@pytest.mark.parametrize(
    "value",
    [
        "webhooks.timeoutSeconds=4",
        "webhooks.timeoutSeconds=0",
        "webhooks.failurePolicy=Never",
        "webhooks.namespace=opt-in",
        "webhook.autoscaling.minReplicas=1",
        "webhook.drainSeconds=0",
        "webhook.traces=collector:4318",
        "certificates.source=vault",
        "image.digest=latest",
        "replicas=3",
        "priorityClass.value=2000000000",
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(program: Path, value: str) -> None:
    done = template(program, value, check=False)
    assert done.returncode
    assert "don't meet the specifications of the schema" in done.stderr


def test_a_certificate_of_ones_own_needs_its_ca(program: Path) -> None:
    done = template(program, "certificates.source=secret", check=False)
    assert "certificates.caBundle is needed" in done.stderr


def test_helm_has_nothing_to_say_about_the_chart(program: Path) -> None:
    done = subprocess.run([program, "lint", "--strict", CHART], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert "[WARNING]" not in done.stdout


def test_the_chart_has_the_version_of_the_program() -> None:
    lines = (CHART / "Chart.yaml").read_text(encoding="utf-8").splitlines()
    assert {f"version: {__version__}", f"appVersion: {__version__}"} <= set(lines)
