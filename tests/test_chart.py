"""The chart: its default is the base, and each value does what it says."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests import manifests
from tests.cluster import helm
from tests.manifests import DEPLOY, Objects, objects
from tests.test_uninstall import assert_is_removed
from webhook import __version__, cli
from webhook.uninstall.kinds import kept
from webhook.uninstall.run import uninstall

# Both programs may have to be built first.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

CHART: Final = DEPLOY / "chart"
HOOK: Final = "helm.sh/hook"
HOOK_JOBS: Final = ("drainproof-uninstall", "drainproof-leftovers")
SHARED: Final = {
    "mutating.yaml": DEPLOY / "base" / "mutating.yaml",
    "validating.yaml": DEPLOY / "base" / "validating.yaml",
    "stamp.yaml": DEPLOY / "components" / "disruption-stamp" / "stamp.yaml",
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


def everything(program: Path, *values: str, namespace: str = "drainproof") -> Objects:
    return objects(template(program, *values, namespace=namespace).stdout)


def made(program: Path, *values: str, namespace: str = "drainproof") -> Objects:
    """What a release holds: everything but its hooks, which are there only while Helm uninstalls it."""
    found = everything(program, *values, namespace=namespace)
    return {key: one for key, one in found.items() if HOOK not in one["metadata"].get("annotations", {})}


def hooks(program: Path, event: str, *values: str, namespace: str = "drainproof") -> Objects:
    """What there is while an event of the release goes on."""
    found = everything(program, *values, namespace=namespace)
    told = {key: one["metadata"].get("annotations", {}).get(HOOK, "") for key, one in found.items()}
    return {key: found[key] for key, events in told.items() if event in events.split(",")}


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


STAMPING: Final = {"disruption-stamp": {"fix": True}}


def test_the_stamp_is_the_component_with_its_line_in_the_policy(program: Path, tmp_path: Path) -> None:
    component = objects(manifests.composed(tmp_path, "disruption-stamp"))
    del component["Namespace", "drainproof"]
    component["ConfigMap", "drainproof-policy"]["data"]["policy.yaml"]["rules"] = STAMPING
    assert made(program, "stamp.enabled=true") == component


def test_all_together_is_all_components(program: Path, tmp_path: Path) -> None:
    components = ("disruption-stamp", "cert-manager", "namespace-opt-in", "fail-closed", "monitoring")
    composed = objects(manifests.composed(tmp_path, *components))
    del composed["Namespace", "drainproof"]
    composed["ConfigMap", "drainproof-policy"]["data"]["policy.yaml"]["rules"] = STAMPING
    values = ("stamp.enabled=true", "certificates.source=cert-manager", "webhooks.namespaces=opt-in")
    monitoring = (f"monitoring.{part}.enabled=true" for part in ("serviceMonitor", "rules", "dashboard"))
    assert made(program, *values, "webhooks.failurePolicy=Fail", *monitoring) == composed


def test_what_the_policy_says_of_the_stamp_counts_before_the_switch(program: Path) -> None:
    values = ("stamp.enabled=true", "policy.mode=monitor", "policy.rules.grace-budget.level=warn")
    rule = "policy.rules.disruption-stamp"
    given = {"mode": "monitor", "rules": {**STAMPING, "grace-budget": {"level": "warn"}}}
    assert policy(made(program, *values)).items() >= given.items()
    found = made(program, *values, f"{rule}.fix=false")
    assert policy(found)["rules"]["disruption-stamp"] == {"fix": False}
    assert ("Service", "drainproof-controller") in found


def test_the_stamp_is_asked_for_the_users_that_the_policy_names(program: Path) -> None:
    rule = "policy.rules.disruption-stamp.users"
    found = made(program, "stamp.enabled=true", f"{rule}={{system:serviceaccount:*:scaler.*,node-?}}")
    expression = "request.userInfo.username.matches(r'^(system:serviceaccount:.*:scaler\\..*|node-.)$')"
    stamp = found["ValidatingWebhookConfiguration", "drainproof"]["webhooks"][-1]
    assert stamp["matchConditions"][0] == {"name": "by-karpenter", "expression": expression}
    assert policy(found)["rules"]["disruption-stamp"]["fix"] is True


def policy(found: Objects) -> dict[str, Any]:
    document: dict[str, Any] = found["ConfigMap", "drainproof-policy"]["data"]["policy.yaml"]
    return document


def test_a_stamp_that_nothing_would_call_is_refused(program: Path) -> None:
    done = template(program, "policy.rules.disruption-stamp.fix=true", check=False)
    assert done.returncode
    assert "nothing would call the stamp: set stamp.enabled" in done.stderr


@pytest.mark.parametrize(("given", "replicas"), [("1", 2), ("3", 3)])
def test_with_the_stamp_there_are_two_controllers_at_least(program: Path, given: str, replicas: int) -> None:
    values = (f"controller.replicas={given}", "networkPolicy.from[0].ipBlock.cidr=192.0.2.0/24")
    plain, stamping = made(program, *values), made(program, *values, "stamp.enabled=true")
    name = ("Deployment", "drainproof-controller")
    assert (plain[name]["spec"]["replicas"], stamping[name]["spec"]["replicas"]) == (int(given), replicas)
    _, stamp = stamping["NetworkPolicy", "drainproof-controller"]["spec"]["ingress"]
    assert stamp["from"] == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]


def test_a_part_that_is_switched_off_has_no_rights(program: Path) -> None:
    def granted(*values: str) -> set[str]:
        roles = [one for (kind, _), one in made(program, *values).items() if kind in ("Role", "ClusterRole")]
        return {resource for role in roles for rule in role["rules"] for resource in rule["resources"]}

    watched, found_out = {"pods", "jobs", "events"}, {"nodepools", "deployments", "configmaps"}
    assert granted() - granted("controller.watch=false") == watched
    assert granted() - granted("controller.discovery=false") == found_out
    both = ("controller.watch=false", "controller.discovery=false")
    assert granted() - granted(*both) == watched | found_out
    assert {kind for kind, name in made(program, *both) if name == "drainproof-controller"} >= {"Role", "Deployment"}
    assert ("ClusterRole", "drainproof-controller") not in made(program, *both)
    assert granted("stamp.enabled=true") - granted() == {"pods/status"}


def test_karpenter_is_looked_for_where_the_values_say(program: Path) -> None:
    places = ["nodes/karpenter", "nodes/scaler", "more/scaler"]
    found = made(program, f"controller.karpenter={{{','.join(places)}}}")
    (rule,) = (rule for rule in found["ClusterRole", "drainproof-controller"]["rules"] if rule["apiGroups"] == ["apps"])
    assert rule["resourceNames"] == ["karpenter", "scaler"]
    assert f"--karpenter={','.join(places)}" in flags(found)
    off = made(program, "controller.watch=false", "controller.discovery=false")
    assert {"--no-watch", "--no-discovery"} < set(flags(off))


def flags(found: Objects) -> list[str]:
    given: list[str] = found["Deployment", "drainproof-controller"]["spec"]["template"]["spec"]["containers"][0]["args"]
    return given


@pytest.mark.parametrize("name", SHARED)
def test_what_base_and_chart_share_is_the_same_file(name: str) -> None:
    # A copy, for a link out of the chart is lost where a chart is packed from a Git archive.
    shared = SHARED[name]
    same = shared.read_bytes() == (CHART / "files" / name).read_bytes()
    assert same, f"cp {shared.relative_to(manifests.ROOT)} deploy/chart/files/{name}"
    assert {one.name for one in (CHART / "files").iterdir()} == set(SHARED)


def test_nothing_of_another_namespace_is_left_over(program: Path) -> None:
    values = ("certificates.source=cert-manager", "monitoring.rules.enabled=true", "monitoring.dashboard.enabled=true")
    for given in ((), (*values, "monitoring.serviceMonitor.enabled=true"), ("stamp.enabled=true",)):
        found = everything(program, *given, namespace="elsewhere")
        for (kind, name), one in found.items():
            assert one["metadata"].get("namespace") in ("elsewhere", None), (kind, name)
        for one in found.values():
            for webhook in one.get("webhooks", []):
                assert webhook["clientConfig"]["service"]["namespace"] == "elsewhere"
                excluded = webhook["namespaceSelector"]["matchExpressions"][0]["values"]
                assert excluded == ["kube-system", "kube-node-lease", "elsewhere"]
            for subject in one.get("subjects", []):
                assert subject["namespace"] == "elsewhere"
    found = everything(program, namespace="elsewhere")
    for key in (("Deployment", "drainproof-controller"), *(("Job", name) for name in HOOK_JOBS)):
        assert "--namespace=elsewhere" in found[key]["spec"]["template"]["spec"]["containers"][0]["args"]


def test_validation_fails_closed_by_choice_and_mutation_never_does(program: Path) -> None:
    found = made(program, "webhooks.failurePolicy=Fail", "webhooks.timeoutSeconds=1")
    policies = {
        kind: {webhook["failurePolicy"] for webhook in found[kind, "drainproof"]["webhooks"]}
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    }
    assert policies == {"MutatingWebhookConfiguration": {"Ignore"}, "ValidatingWebhookConfiguration": {"Fail"}}
    webhooks = [webhook for one in found.values() for webhook in one.get("webhooks", [])]
    assert {webhook["timeoutSeconds"] for webhook in webhooks} == {1}


def test_a_certificate_of_ones_own_is_left_to_whoever_makes_it(program: Path) -> None:
    own = ("certificates.source=secret", "certificates.caBundle=PEM", "certificates.secretName=mine")
    found = made(program, *own, "stamp.enabled=true")
    assert "--certificates=external" in flags(found)
    assert not [kind for kind, name in found if name == "drainproof-certificates"]
    webhooks = [webhook for one in found.values() for webhook in one.get("webhooks", [])]
    assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {"UEVN"}
    for name in ("drainproof", "drainproof-controller"):
        volumes = found["Deployment", name]["spec"]["template"]["spec"]["volumes"]
        assert volumes[0]["secret"]["secretName"] == "mine"
    idle = made(program, *own, "controller.watch=false", "controller.discovery=false")
    assert not [kind for kind, name in idle if name == "drainproof-controller"]


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
    found = everything(
        program,
        *(f"{part}.{value}" for part in ("webhook", "controller") for value in values),
        "image.pullSecrets[0]=h",
    )
    deployments = (("Deployment", name) for name in ("drainproof", "drainproof-controller"))
    for key in (*deployments, *(("Job", name) for name in HOOK_JOBS)):
        template = found[key]["spec"]["template"]
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
    found = everything(program, "image.repository=registry.example/d", "image.tag=v9", f"image.digest={digest}")
    runs = [one["spec"]["template"]["spec"] for (kind, _), one in found.items() if kind in ("Deployment", "Job")]
    assert len(runs) == 4
    images = {one["containers"][0]["image"] for one in runs}
    assert images == {f"registry.example/d@{digest}"}


def test_what_can_be_left_out_is_left_out(program: Path) -> None:
    found = everything(program, "networkPolicy.enabled=false", "priorityClass.create=false", "priorityClass.name=mine")
    assert not {"NetworkPolicy", "PriorityClass"} & {kind for kind, _ in found}
    assert found["Deployment", "drainproof"]["spec"]["template"]["spec"]["priorityClassName"] == "mine"


def test_what_is_in_the_chart_is_of_kinds_that_uninstalling_knows_and_carries_the_label(program: Path) -> None:
    parts = [f"monitoring.{part}.enabled=true" for part in ("serviceMonitor", "rules", "dashboard")]
    for source in ("controller", "cert-manager"):
        for one in everything(program, *parts, f"certificates.source={source}").values():
            assert_is_removed(one)


def test_before_helm_uninstalls_the_configurations_go_by_somebody_who_may_do_nothing_else(program: Path) -> None:
    found = hooks(program, "pre-delete")
    kinds = ("ClusterRole", "ClusterRoleBinding", "Job", "NetworkPolicy", "ServiceAccount")
    assert sorted(found) == [(kind, "drainproof-uninstall") for kind in kinds]
    (rule,) = found["ClusterRole", "drainproof-uninstall"]["rules"]
    assert rule == {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "resourceNames": ["drainproof"],
        "verbs": ["get", "delete"],
    }
    assert command(found["Job", "drainproof-uninstall"]) == ["--namespace=drainproof", "--configurations-only"]


def test_after_helm_has_uninstalled_what_the_controller_made_goes_by_name(program: Path) -> None:
    found = hooks(program, "post-delete", "certificates.secretName=mine")
    kinds = ("NetworkPolicy", "Role", "RoleBinding", "ServiceAccount")
    assert sorted(found) == [("Job", "drainproof-leftovers"), *((kind, "drainproof-uninstall") for kind in kinds)]
    rules = found["Role", "drainproof-uninstall"]["rules"]
    names = {(rule["resources"][0], name) for rule in rules for name in rule["resourceNames"]}
    made_by_controller = {(kind.resource, name) for kind in kept("mine") for name in kind.names}
    assert names == made_by_controller | {("deployments", "drainproof-controller")}
    verbs = {rule["resources"][0]: rule["verbs"] for rule in rules}
    assert verbs.pop("deployments") == ["get"]
    assert set(map(tuple, verbs.values())) == {("get", "delete")}
    words = command(found["Job", "drainproof-leftovers"])
    assert words == ["--namespace=drainproof", "--leftovers-only", "--secret=mine"]


def command(job: Mapping[str, Any]) -> list[str]:
    """The flags that a hook's Job gives to `drainproof uninstall`, which knows them."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words: list[str] = container["args"][1:]
    assert container["args"][0] == uninstall.name
    known = {option for parameter in uninstall.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words} <= known
    return words


def test_nothing_of_a_hook_is_left_and_none_is_waited_for_without_end(program: Path) -> None:
    found = hooks(program, "pre-delete", "uninstallHook.activeDeadlineSeconds=77")
    found |= hooks(program, "post-delete", "uninstallHook.activeDeadlineSeconds=77")
    assert len(found) == 8
    for (kind, _), one in found.items():
        annotations = one["metadata"]["annotations"]
        assert set(annotations["helm.sh/hook-delete-policy"].split(",")) == {"before-hook-creation", "hook-succeeded"}
        weight = int(annotations["helm.sh/hook-weight"])
        assert weight == (0 if kind == "Job" else -1)  # what the Job needs is there before it
    for name in HOOK_JOBS:
        spec = found["Job", name]["spec"]
        assert spec["activeDeadlineSeconds"] == 77
        assert spec["ttlSecondsAfterFinished"] > 0
        pod = spec["template"]["spec"]
        assert pod["serviceAccountName"] == "drainproof-uninstall"
        assert "priorityClassName" not in pod  # after the release there is none


def test_without_hooks_there_are_none(program: Path) -> None:
    assert everything(program, "uninstallHook.enabled=false") == made(program)


def test_our_own_rules_find_nothing_in_what_the_chart_makes(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(template(program).stdout, encoding="utf-8")
    done = CliRunner().invoke(cli.main, ["check", "--fail-on", "warn", str(file)])
    assert done.exit_code == 0, done.output
    assert "0 denied, 0 warned" in done.output


@pytest.mark.parametrize(
    "value",
    [
        "uninstallHook.activeDeadlineSeconds=0",
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
        "stamp.enable=true",
        "controller.karpenter={karpenter}",
        "controller.karpenter={}",
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
