"""Everything that kustomize renders is accepted by a real API server, without a warning.

Kinds of cert-manager and of the Prometheus operator have tests of their own: test_definitions.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from tests import manifests, rights
from tests.cluster.controlplane import ControlPlane
from tests.manifests import DEPLOY, OVERLAYS, Objects, objects
from webhook import cli

OTHERS: Final = ("cert-manager.io/", "monitoring.coreos.com/")
NAMESPACE: Final = "drainproof"
FIRST: Final = ("Namespace", "PriorityClass", "ServiceAccount")  # what others of them need to be there
COMPONENTS: Final = ("namespace-opt-in", "fail-closed", "cert-manager", "monitoring", "disruption-stamp")
STAMP: Final = "pods.stamp.drainproof.dev"
CERTIFICATES: Final = "drainproof-certificates"  # rights that go with cert-manager


@pytest.fixture(scope="module")
def base() -> Objects:
    return objects(manifests.rendered(DEPLOY / "base"))


@pytest.fixture(scope="module", autouse=True)
def grounds(control_plane: ControlPlane, base: Objects) -> Iterator[None]:
    """What must be there before a Pod of ours is accepted."""
    made = [one for kind in FIRST for one in base.values() if one["kind"] == kind]
    for one in made:
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(one))
    yield
    for one in reversed(made):
        if one["kind"] != "ServiceAccount":
            control_plane.kubectl("delete", one["kind"], one["metadata"]["name"], "--wait=false")


def accepted(plane: ControlPlane, text: str) -> None:
    """Asserts that the API server would take everything, without a warning."""
    known = [one for one in YAML(typ="safe").load_all(text) if not one["apiVersion"].startswith(OTHERS)]
    assert len(known) > 10
    bundle = {"apiVersion": "v1", "kind": "List", "items": known}
    words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    done = plane.kubectl(*words, input=json.dumps(bundle), check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert len(done.stdout.splitlines()) == len(known)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_overlay_is_accepted(control_plane: ControlPlane, overlay: str) -> None:
    accepted(control_plane, manifests.rendered(DEPLOY / "overlays" / overlay))


@pytest.mark.parametrize("order", [COMPONENTS, COMPONENTS[::-1]], ids=["one way", "the other way round"])
def test_all_components_together_are_accepted(
    control_plane: ControlPlane, tmp_path: Path, order: tuple[str, ...]
) -> None:
    text = manifests.composed(tmp_path, *order)
    accepted(control_plane, text)
    found = objects(text)
    validating = found["ValidatingWebhookConfiguration", "drainproof"]["webhooks"]
    closed = {webhook["name"]: webhook["failurePolicy"] for webhook in validating}
    assert closed.pop(STAMP) == "Ignore"
    assert set(closed.values()) == {"Fail"}
    mutating = found["MutatingWebhookConfiguration", "drainproof"]["webhooks"]
    assert {webhook["failurePolicy"] for webhook in mutating} == {"Ignore"}
    for webhook in [*validating, *mutating]:
        label = {"key": "drainproof.dev/inject", "operator": "In", "values": ["enabled"]}
        assert webhook["namespaceSelector"]["matchExpressions"][1] == label
    assert not [kind for kind, name in found if name == CERTIFICATES]
    flags = set(found["Deployment", "drainproof-controller"]["spec"]["template"]["spec"]["containers"][0]["args"])
    assert {"--certificates=external", "--certificate=/etc/drainproof/tls/tls.crt"} < flags
    assert not [kind for kind, _ in found if kind in ("NamespaceSelector", "Choice")]


def test_the_stamp_is_asked_about_the_namespaces_of_the_other_webhooks(tmp_path: Path) -> None:
    found = objects(manifests.composed(tmp_path, "disruption-stamp"))
    webhooks = found["ValidatingWebhookConfiguration", "drainproof"]["webhooks"]
    assert webhooks[-1]["name"] == STAMP
    assert webhooks[-1]["namespaceSelector"] == webhooks[0]["namespaceSelector"]


def test_without_a_component_an_overlay_is_the_base(base: Objects) -> None:
    assert objects(manifests.rendered(DEPLOY / "overlays" / "cluster-wide")) == base


@pytest.mark.parametrize("name", ["drainproof", "drainproof-controller"])
def test_the_pods_are_let_into_a_restricted_namespace(control_plane: ControlPlane, tmp_path: Path, name: str) -> None:
    template = objects(manifests.composed(tmp_path, "disruption-stamp"))["Deployment", name]["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "pod", "namespace": NAMESPACE},
        "spec": template["spec"],
    }
    done = control_plane.kubectl("create", "--dry-run=server", "-f", "-", "-o", "json", input=json.dumps(pod))
    assert not done.stderr
    assert json.loads(done.stdout)["spec"]["priority"] == 1000000000
    # The namespace does hold Pods to it: less would not do.
    weak = {**pod, "spec": {**pod["spec"], "securityContext": {}}}
    refused = control_plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(weak), check=False)
    assert "violates PodSecurity" in refused.stderr


@pytest.mark.parametrize("components", [(), *((one,) for one in COMPONENTS), COMPONENTS], ids=lambda one: " ".join(one))
def test_our_own_rules_find_nothing_in_what_is_rendered(tmp_path: Path, components: tuple[str, ...]) -> None:
    file = tmp_path / "rendered.yaml"
    file.write_text(manifests.composed(tmp_path, *components), encoding="utf-8")
    done = CliRunner().invoke(cli.main, ["check", "--fail-on", "warn", str(file)])
    assert done.exit_code == 0, done.output
    assert "0 denied, 0 warned" in done.output


@pytest.mark.parametrize(
    ("components", "changed"),
    [
        ((), set()),
        (("cert-manager",), set(rights.CERTIFICATES)),
        (("disruption-stamp",), set(rights.STAMP)),
        (("cert-manager", "disruption-stamp"), {*rights.CERTIFICATES, *rights.STAMP}),
    ],
    ids=["base", "with cert-manager", "with the stamp", "with both"],
)
def test_the_controller_may_do_what_it_needs_and_nothing_else(
    control_plane: ControlPlane, tmp_path: Path, components: tuple[str, ...], changed: set[rights.Right]
) -> None:
    found = objects(manifests.composed(tmp_path, *components))
    granting = [one for (kind, _), one in found.items() if "Role" in kind]
    expected = {*rights.MAY} ^ changed  # a component takes some, or gives some
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": granting})
    control_plane.kubectl("apply", "-f", "-", input=bundle)
    try:
        asked = {*rights.MAY, *rights.MAY_NOT, *rights.STAMP}
        assert settled(lambda: rights.allowed(control_plane, asked), expected) == expected
        elsewhere = {*rights.EVERYWHERE, *rights.CONFIGURING, *rights.STAMP} & expected
        assert rights.allowed(control_plane, asked, "default") == elsewhere
    finally:
        control_plane.kubectl("delete", "-f", "-", input=bundle)


def settled(look: Callable[[], set[rights.Right]], expected: set[rights.Right]) -> set[rights.Right]:
    """What is seen once it is as expected, or after ten seconds: the API server learns of rights by a watch."""
    end = time.monotonic() + 10
    while (seen := look()) != expected and time.monotonic() < end:
        time.sleep(0.2)
    return seen


def test_the_api_server_counts_what_our_alerts_look_for(control_plane: ControlPlane, base: Objects) -> None:
    del base
    alerts = (DEPLOY / "components" / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
    dashboard = (DEPLOY / "components" / "monitoring" / "dashboard.json").read_text(encoding="utf-8")
    wanted = set(re.findall(r"apiserver_\w+", alerts + dashboard))
    assert len(wanted) == 3
    for policy in ("Ignore", "Fail"):
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(unreachable(policy)))
    try:
        end = time.monotonic() + 30
        while not wanted <= counted(control_plane):
            assert time.monotonic() < end, wanted - counted(control_plane)
            probe: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "probe"}}
            for namespace in ("probe-ignore", "probe-fail"):
                words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
                control_plane.kubectl(*words, input=json.dumps(probe), check=False)
        labels = {"name": "[.]drainproof[.]dev"}
        page = control_plane.kubectl("get", "--raw", "/metrics").stdout
        assert re.search(rf'fail_open_count{{name="probe-ignore.validate{labels["name"]}"', page)
        assert re.search(r'rejection_count{error_type="calling_webhook_error",name="probe-fail.validate', page)
    finally:
        for policy in ("ignore", "fail"):
            control_plane.kubectl("delete", "validatingwebhookconfiguration", f"probe-{policy}")
            control_plane.kubectl("delete", "namespace", f"probe-{policy}", "--wait=false")


def unreachable(policy: str) -> dict[str, Any]:
    """A namespace, and a webhook for its ConfigMaps of which nothing comes."""
    name = f"probe-{policy.lower()}"
    namespaces = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    webhook = {
        "name": f"{name}.validate.drainproof.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/validate"},
        "failurePolicy": policy,
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "namespaceSelector": namespaces,
        "rules": [rule],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    items = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {**kind, "metadata": {"name": name}, "webhooks": [webhook]},
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def counted(plane: ControlPlane) -> set[str]:
    """The metrics of the API server that have a value for a webhook of ours."""
    page = plane.kubectl("get", "--raw", "/metrics").stdout
    return set(re.findall(r'^(apiserver_\w+){[^}]*name="probe-[^}]*drainproof[.]dev"', page, re.MULTILINE))
