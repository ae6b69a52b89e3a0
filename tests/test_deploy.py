"""The manifests in deploy/ and certs/ say what the code does, and keep to what we ask of others."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests import manifests
from webhook import __version__, cli, connection
from webhook.controller import crew
from webhook.controller.settings import Settings as ControllerSettings
from webhook.core.workload import KINDS, MENDED
from webhook.flags import flag
from webhook.review import Deed
from webhook.settings import Settings

ROOT: Final = Path(__file__).resolve().parents[1]
BASE: Final = ROOT / "deploy" / "base"
STAMP: Final = ROOT / "deploy" / "components" / "disruption-stamp"
CERTS: Final = ROOT / "certs"
CONFIGURATIONS: Final = {"mutate": "mutating.yaml", "guard": "mutating.yaml", "validate": "validating.yaml"}
DEFERRED: Final = "CronJob"  # mutation meets the Jobs that it makes
OWN_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}")


def documents(*paths: Path) -> list[Any]:
    """The documents in YAML files."""
    return [one for path in paths for one in YAML(typ="safe").load_all(path) if one]


def webhooks(deed: str) -> list[dict[str, Any]]:
    """The entries that ask for a deed: a configuration may hold several."""
    (found,) = documents(BASE / CONFIGURATIONS[deed])
    return [one for one in found["webhooks"] if one["clientConfig"]["service"]["path"] == f"/{deed}"]


def objects() -> dict[tuple[str, str], dict[str, Any]]:
    """Everything in deploy/base by kind and name."""
    return {
        (one["kind"], one["metadata"]["name"]): one
        for one in documents(*sorted(BASE.glob("[!k]*.yaml")))
        if "metadata" in one
    }


def deployments() -> list[dict[str, Any]]:
    return [one for (kind, _), one in objects().items() if kind == "Deployment"]


def defaults(settings: type[Any]) -> dict[str, Any]:
    return {setting.name: setting.default for setting in fields(settings)}


DEPLOYMENTS: Final = pytest.mark.parametrize("deployment", deployments(), ids=lambda one: str(one["metadata"]["name"]))
WEBHOOKS: Final = pytest.mark.parametrize(
    ("deed", "webhook"),
    [(deed, webhook) for deed in CONFIGURATIONS for webhook in webhooks(deed)],
    ids=lambda one: one["name"] if isinstance(one, dict) else "",
)


def plural(kind: str) -> str:
    return f"{kind.lower()}s"


def asked(deed: str) -> dict[tuple[str, str], set[str]]:
    """The operations that a configuration sends us, by group and resource."""
    return {
        (group, resource): set(rule["operations"])
        for webhook in webhooks(deed)
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_there_is_a_configuration_for_each_deed() -> None:
    assert set(CONFIGURATIONS) == set(get_args(Deed)) - {"stamp"}  # the controller's, which a component adds
    named = [one["name"] for name in set(CONFIGURATIONS.values()) for one in documents(BASE / name)[0]["webhooks"]]
    assert sorted(named) == sorted(one["name"] for deed in CONFIGURATIONS for one in webhooks(deed))


def test_validation_is_asked_about_every_kind_that_the_code_knows() -> None:
    assert set(asked("validate")) == {(group, plural(kind)) for group, kind in KINDS}


def test_mutation_is_asked_about_the_kinds_that_the_code_mends() -> None:
    mended = {(group, plural(kind)) for group, kind in KINDS if kind in MENDED - {DEFERRED}}
    assert set(asked("mutate")) == mended


def test_no_operation_is_sent_that_the_code_leaves_alone() -> None:
    # What the code looks at is in review.py; Pods are not validated when they are updated, as the file says.
    both = {"CREATE", "UPDATE"}
    assert all(operations == both for operations in asked("mutate").values())
    validated = asked("validate")
    assert validated.pop(("", "pods")) == {"CREATE"}
    assert asked("guard") == {("", "pods/status"): {"UPDATE"}}
    assert all(operations == both for operations in validated.values())


@WEBHOOKS
def test_each_webhook_is_called_as_the_code_answers(deed: str, webhook: dict[str, Any]) -> None:
    assert webhook["name"].endswith(f".{deed}.drainproof.dev")
    service = webhook["clientConfig"]["service"]
    assert service == {"namespace": "drainproof", "name": "drainproof", "path": f"/{deed}"}
    assert ("Service", service["name"]) in objects()
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert all(rule["apiVersions"] == ["v1"] and rule["scope"] == "Namespaced" for rule in webhook["rules"])
    assert webhook["sideEffects"] == "None"
    assert webhook["matchPolicy"] == "Equivalent"
    assert webhook["failurePolicy"] == "Ignore"
    assert 1 <= webhook["timeoutSeconds"] <= 3
    assert webhook.get("reinvocationPolicy") == {"mutate": "IfNeeded", "guard": "Never", "validate": None}[deed]


def test_the_stamp_is_called_as_the_controller_answers_and_never_in_the_way() -> None:
    webhook = manifests.stamp()
    service = webhook["clientConfig"]["service"]
    assert webhook["name"] == "pods.stamp.drainproof.dev"
    assert service == {"namespace": "drainproof", "name": "drainproof-controller", "path": "/stamp"}
    assert service["name"] == defaults(ControllerSettings)["controller_service"]
    named = {one["kind"]: one for one in documents(STAMP / "service.yaml")}
    (port,) = named["Service"]["spec"]["ports"]
    assert (named["Service"]["metadata"]["name"], port["name"], port["port"]) == (service["name"], "https", 443)
    assert webhook["admissionReviewVersions"] == ["v1"]
    (rule,) = webhook["rules"]
    kind = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "Namespaced"}
    assert rule == {**kind, "operations": ["DELETE"]}
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["sideEffects"] == "NoneOnDryRun"
    assert webhook["matchPolicy"] == "Equivalent"
    assert 1 <= webhook["timeoutSeconds"] <= 3
    assert "namespaceSelector" not in webhook  # the component copies that of the others


def test_what_fails_closed_is_every_webhook_that_judges() -> None:
    (component,) = documents(STAMP.parent / "fail-closed" / "kustomization.yaml")
    closed = component["replacements"][0]["targets"][0]["fieldPaths"]
    assert closed == [f"webhooks.[name={one['name']}].failurePolicy" for one in webhooks("validate")]


@WEBHOOKS
def test_no_webhook_is_asked_about_the_system_itself_or_namespaces_that_opted_out(
    deed: str, webhook: dict[str, Any]
) -> None:
    del deed
    excluded, label = webhook["namespaceSelector"]["matchExpressions"]
    namespaces = ["kube-system", "kube-node-lease", "drainproof"]
    assert excluded == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": namespaces}
    assert label == {"key": "drainproof.dev/inject", "operator": "NotIn", "values": ["disabled"]}


@pytest.mark.parametrize("folder", ["deploy/base", "certs"])
def test_our_own_rules_find_nothing_in_our_own_manifests(folder: str) -> None:
    done = CliRunner().invoke(cli.main, ["check", "-R", "--fail-on", "warn", str(ROOT / folder)])
    assert done.exit_code == 0, done.output
    assert "0 denied, 0 warned" in done.output


def test_the_grace_period_covers_what_the_webhook_does_when_it_is_stopped() -> None:
    template = objects()["Deployment", "drainproof"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    drain = int(next(one for one in container["args"] if one.startswith("--drain-seconds=")).partition("=")[2])
    declared = int(template["metadata"]["annotations"]["drainproof.dev/max-task-duration"].removesuffix("s"))
    assert declared == drain + connection.FINISH_SECONDS
    assert pauses(template) + declared < template["spec"]["terminationGracePeriodSeconds"]


def pauses(template: dict[str, Any]) -> int:
    """How many seconds before SIGTERM a Pod of ours sleeps."""
    (container,) = template["spec"]["containers"]
    return int(container.get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})["preStop"]["sleep"]["seconds"])


def test_the_grace_period_covers_what_the_controller_does_when_it_is_stopped() -> None:
    template = objects()["Deployment", "drainproof-controller"]["spec"]["template"]
    declared = int(template["metadata"]["annotations"]["drainproof.dev/max-task-duration"].removesuffix("s"))
    assert declared == crew.END_SECONDS + crew.LAST_SECONDS
    (patch,) = documents(STAMP / "controller.yaml")
    assert pauses(template) == 0  # without the stamp, nobody calls it
    assert pauses(patch["spec"]["template"]) == pauses(objects()["Deployment", "drainproof"]["spec"]["template"])
    for one in (template, patch["spec"]["template"]):
        assert pauses(one) + declared < one["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("name", "settings"), [("drainproof", Settings), ("drainproof-controller", ControllerSettings)]
)
def test_each_flag_in_a_manifest_is_one_of_the_command(name: str, settings: type[Any]) -> None:
    (container,) = objects()["Deployment", name]["spec"]["template"]["spec"]["containers"]
    known = {flag(setting) for setting in fields(settings)}
    assert {one.partition("=")[0] for one in container["args"][1:]} <= known
    assert container["ports"][0]["containerPort"] == defaults(settings)["port"]


def added(component: str) -> list[str]:
    """The flags that a component gives the controller."""
    (found,) = documents(STAMP.parent / component / "kustomization.yaml")
    patches = [one for one in found["patches"] if one.get("target", {}).get("kind") == "Deployment"]
    assert [one["target"]["name"] for one in patches] == ["drainproof-controller"]
    steps = YAML(typ="safe").load(patches[0]["patch"])
    assert all(step["path"] == "/spec/template/spec/containers/0/args/-" for step in steps)
    return [step["value"] for step in steps]


def test_each_flag_that_a_component_adds_is_one_of_the_controller() -> None:
    known = {flag(setting) for setting in fields(ControllerSettings)}
    given = [*added("disruption-stamp"), *added("cert-manager")]
    assert {one.partition("=")[0] for one in given} == {"--certificate", "--key", "--certificates"} & known
    (patch,) = documents(STAMP / "controller.yaml")
    (port,) = patch["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert (port["name"], port["containerPort"]) == ("https", defaults(ControllerSettings)["stamp_port"])


def read_and_mounted(args: list[str], pod: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The folders of the files that a process is told to read, and those that its Pod mounts."""
    (container,) = pod["containers"]
    assert not any("subPath" in mount for mount in container["volumeMounts"])
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    files = [Path(one.partition("=")[2]) for one in args if "=/" in one]
    return {str(file.parent) for file in files}, {mount["mountPath"] for mount in container["volumeMounts"]}


@DEPLOYMENTS
def test_each_file_that_is_read_is_mounted_as_a_folder(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    read, mounted = read_and_mounted(pod["containers"][0]["args"], pod)
    assert read == mounted


def test_the_secret_is_mounted_where_it_is_read_and_may_be_missing_only_where_it_is_made() -> None:
    (patch,) = documents(STAMP / "controller.yaml")
    stamping = patch["spec"]["template"]["spec"]
    read, mounted = read_and_mounted(added("disruption-stamp"), stamping)
    assert read == mounted
    webhook = objects()["Deployment", "drainproof"]["spec"]["template"]["spec"]
    for pod, optional in ((webhook, None), (stamping, True)):
        (secret,) = (volume["secret"] for volume in pod["volumes"] if "secret" in volume)
        assert secret["defaultMode"] == 0o440
        assert secret["secretName"] == defaults(ControllerSettings)["secret"]
        assert secret.get("optional") is optional
        assert pod["securityContext"]["fsGroup"] == webhook["securityContext"]["runAsGroup"]


@DEPLOYMENTS
def test_every_pod_keeps_to_the_restricted_standard(deployment: dict[str, Any]) -> None:
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {*container["resources"]["requests"], *container["resources"]["limits"]} == {"cpu", "memory"}


@DEPLOYMENTS
def test_no_service_of_the_namespace_gets_into_the_environment(deployment: dict[str, Any]) -> None:
    # A Service named drainproof makes DRAINPROOF_PORT, which is a setting of ours.
    assert deployment["spec"]["template"]["spec"]["enableServiceLinks"] is False


@DEPLOYMENTS
def test_a_rollout_never_has_fewer_replicas(deployment: dict[str, Any]) -> None:
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


def test_there_are_always_two_replicas_of_the_webhook_on_two_nodes() -> None:
    found = objects()
    scaler = found["HorizontalPodAutoscaler", "drainproof"]["spec"]
    assert scaler["minReplicas"] >= 2
    assert scaler["scaleTargetRef"]["name"] == "drainproof"
    spec = found["Deployment", "drainproof"]["spec"]
    assert "replicas" not in spec  # it would fight the autoscaler at every apply
    labels = spec["selector"]["matchLabels"]
    assert found["PodDisruptionBudget", "drainproof"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service", "drainproof"]["spec"]["selector"] == labels
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert {one["topologyKey"] for one in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    assert all(one["labelSelector"]["matchLabels"] == labels for one in spread)


def test_the_webhook_has_no_token_and_nowhere_to_go() -> None:
    found = objects()
    assert found["Deployment", "drainproof"]["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert found["ServiceAccount", "drainproof"]["automountServiceAccountToken"] is False
    policy = found["NetworkPolicy", "drainproof"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy  # none is allowed; an empty list is not stored, and would show up as a difference
    subjects = [subject for one in found.values() for subject in one.get("subjects", [])]
    assert {subject["name"] for subject in subjects} == {"drainproof-controller"}


# What the controller may do to objects that it does not know by name: to look, and to say something.
UNNAMED: Final = {
    "endpointslices": ["list"],
    "pods": ["list", "watch"],
    "jobs": ["get"],
    "events": ["create"],
    "nodepools": ["list"],
}


def test_the_controller_has_rights_to_named_objects_and_looks_at_others() -> None:
    rules = [rule for (kind, _), one in objects().items() if kind.endswith("Role") for rule in one["rules"]]
    for rule in rules:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert not {"delete", "deletecollection", "escalate", "bind", "impersonate"} & set(rule["verbs"])
    unnamed = [rule for rule in rules if "resourceNames" not in rule]
    assert {resource: rule["verbs"] for rule in unnamed for resource in rule["resources"]} == UNNAMED
    told = defaults(ControllerSettings)
    named = {name for rule in rules for name in rule.get("resourceNames", [])}
    configurations = {"drainproof"}
    assert told["mutating"] == told["validating"] == tuple(configurations)
    deployments = {place.partition("/")[2] for place in told["karpenter"]}
    assert named == {*(told[one] for one in ("secret", "ca_secret", "lease", "facts")), *configurations, *deployments}


def test_only_with_the_stamp_may_the_controller_write_to_pods() -> None:
    role, binding = documents(STAMP / "rights.yaml")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == objects()["ClusterRoleBinding", "drainproof-controller"]["subjects"]


def test_with_the_stamp_there_are_two_controllers_on_two_nodes() -> None:
    (patch,) = documents(STAMP / "controller.yaml")
    assert patch["spec"]["replicas"] == 2
    labels = objects()["Deployment", "drainproof-controller"]["spec"]["selector"]["matchLabels"]
    service, budget = documents(STAMP / "service.yaml")
    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"] == labels
    spread = patch["spec"]["template"]["spec"]["topologySpreadConstraints"]
    ours = objects()["Deployment", "drainproof"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [{**one, "labelSelector": {"matchLabels": labels}} for one in ours] == spread


def test_the_image_in_the_manifests_is_of_this_version() -> None:
    images = {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in deployments()}
    assert images == {f"drainproof:{__version__}"}


def test_the_shipped_policy_is_valid() -> None:
    done = CliRunner().invoke(cli.main, ["policy", "validate", str(BASE / "policy.yaml")])
    assert done.exit_code == 0, done.output


def test_cert_manager_makes_what_the_webhook_mounts_and_the_api_server_calls() -> None:
    found = {
        (one["kind"], one["metadata"]["name"]): one["spec"] for one in documents(*sorted(CERTS.glob("[as]*.yaml")))
    }
    serving = found["Certificate", "drainproof"]
    assert serving["secretName"] == "drainproof-tls"
    services = (defaults(ControllerSettings)[one] for one in ("service", "controller_service"))
    assert {f"{service}.drainproof.svc" for service in services} < set(serving["dnsNames"])
    assert found["Issuer", serving["issuerRef"]["name"]] == {"ca": {"secretName": "drainproof-ca"}}
    authority = found["Certificate", "drainproof-ca"]
    assert authority["isCA"]
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert ("Issuer", authority["issuerRef"]["name"]) in found


def test_the_script_makes_a_certificate_that_can_be_served(tmp_path: Path) -> None:
    from webhook import tls  # noqa: PLC0415 - only here

    made = tmp_path / "made"
    done = subprocess.run([CERTS / "development.sh", made, "webhook.test", "10.1.2.3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {one.name for one in made.iterdir()} == {"ca.crt", "tls.crt", "tls.key"}
    assert {oct(one.stat().st_mode & 0o077) for one in made.iterdir()} == {"0o0"}
    assert tls.Serving(tls.Pair(made / "tls.crt", made / "tls.key", made / "ca.crt")).problem() == ""
    again = subprocess.run([CERTS / "development.sh", made], capture_output=True, text=True)
    assert again.returncode == 1
    assert "must not be there yet" in again.stderr


def kept() -> Iterator[Path]:
    """The files that Git keeps, or would keep if everything were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        yield from (path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.parts)
    yield from (ROOT / name for name in listed.stdout.decode().split("\0") if name)


def test_no_key_is_kept_in_git() -> None:
    found = [path for path in kept() if path.is_file() and OWN_KEY.search(path.read_bytes())]
    assert not found
    ignored = ["certs/tls.key", "certs/mine.pem", "certs/development/tls.crt"]
    command = ["git", "check-ignore", *ignored]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 128:  # not a repository: a release as an archive
        assert listed.stdout.split() == ignored


def test_the_values_of_the_chart_are_documented_with_their_schema() -> None:
    chart = ROOT / "deploy" / "chart"
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    page = (chart / "README.md").read_text(encoding="utf-8")
    (values,) = documents(chart / "values.yaml")
    for path, value in leaves(values, schema):
        assert f"| `{path}` |" in page, f"{path} has no row in {chart / 'README.md'}"
        assert value == "documented", f"{path} has no description in values.schema.json"


def leaves(values: Any, schema: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each value that can be set, and whether the schema describes it."""
    if "description" in schema:
        yield path, "documented"
        return
    assert isinstance(values, dict), path
    assert set(values) <= set(schema["properties"]), path
    assert schema["additionalProperties"] is False, path
    for name, value in values.items():
        below = schema["properties"][name]
        if "properties" not in below and "description" not in below:
            yield f"{path}.{name}".lstrip("."), "not documented"
        else:
            yield from leaves(value, below, f"{path}.{name}".lstrip("."))
