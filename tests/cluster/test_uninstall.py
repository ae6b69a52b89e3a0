"""`drainproof uninstall` against a real API server: what is installed goes entirely, and nothing of others does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from tests import manifests
from tests.cluster import helm
from tests.cluster.controlplane import ControlPlane
from tests.manifests import DEPLOY
from tests.test_controller_authority import OLD, OLD_LEAF
from webhook.controller.api import connect
from webhook.controller.authority import Step
from webhook.controller.lease import Lease, lease
from webhook.controller.metrics import Complaints, metrics
from webhook.controller.secret import Secrets, secret

# Helm may have to be built first.
pytestmark = pytest.mark.timeout(1200)

ROOT: Final = DEPLOY.parent
NAMESPACE: Final = "drainproof"
FIRST: Final = ("Namespace", "PriorityClass", "ServiceAccount")  # what others of them need to be there
# Kinds of others, by group and plural, of which nothing but the names is needed here.
FOREIGN: Final = {
    "cert-manager.io": {"certificates": "Certificate", "issuers": "Issuer"},
    "monitoring.coreos.com": {
        "servicemonitors": "ServiceMonitor",
        "podmonitors": "PodMonitor",
        "prometheusrules": "PrometheusRule",
    },
}
PLACE: Final = '{range .items[*]}{.kind}/{.metadata.name}{"\\n"}{end}'


def run(plane: ControlPlane, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`drainproof uninstall` as the administrator, or as who a kubeconfig says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig or plane.kubeconfig)}
    command = [sys.executable, "-m", "webhook", "uninstall", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)


def uninstalled(plane: ControlPlane, *words: str, **more: Any) -> list[str]:
    """The lines of a run that did all that it had to do."""
    done = run(plane, *words, **more)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout.splitlines()


def cluster_wide(plane: ControlPlane) -> set[str]:
    """Everything that is in no namespace, but for addresses, which Services have and give back."""
    listed = plane.kubectl("api-resources", "--namespaced=false", "--verbs=list", "-o", "name").stdout.split()
    kinds = ",".join(one for one in listed if not one.startswith(("componentstatuses", "ipaddresses")))
    return {*plane.kubectl("get", kinds, "-o", f"jsonpath={PLACE}").stdout.split()}


def of_namespace(plane: ControlPlane) -> set[str]:
    """Everything in our namespace, but for events and what a cluster puts into each."""
    listed = plane.kubectl("api-resources", "--namespaced=true", "--verbs=list", "-o", "name").stdout.split()
    kinds = ",".join(one for one in listed if not one.startswith("events"))
    found = {*plane.kubectl("-n", NAMESPACE, "get", kinds, "-o", f"jsonpath={PLACE}").stdout.split()}
    return found - {"ServiceAccount/default", "ConfigMap/kube-root-ca.crt"}


def apply(plane: ControlPlane, items: Sequence[Any]) -> None:
    bundle = {"apiVersion": "v1", "kind": "List", "items": sorted(items, key=lambda one: one["kind"] not in FIRST)}
    plane.kubectl("apply", "--server-side", "-f", "-", input=json.dumps(bundle))


def definition(group: str, plural: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


@pytest.fixture(scope="module", autouse=True)
def foreign_kinds(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds of cert-manager and of the Prometheus operator, without those."""
    made = [definition(group, *names) for group, kinds in FOREIGN.items() for names in kinds.items()]
    apply(control_plane, made)
    named = [f"crd/{one['metadata']['name']}" for one in made]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=50s", *named)
    yield
    control_plane.kubectl("delete", *named)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The base with everything that can be added to it, and the certificates of cert-manager."""
    text = manifests.composed(tmp_path_factory.mktemp("composed"), "monitoring")
    found = [one for one in YAML(typ="safe").load_all(text) if one]
    for file in ("authority.yaml", "serving.yaml"):
        found += YAML(typ="safe").load_all(ROOT / "certs" / file)
    return found


@pytest.fixture
def plane(control_plane: ControlPlane, shipped: list[dict[str, Any]]) -> Iterator[ControlPlane]:
    """A control plane with an installation, and what its controller makes; its Pods are pending."""
    control_plane.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=50s")
    apply(control_plane, shipped)
    api = connect(control_plane.kubeconfig)
    stored = Secrets(api, secret(NAMESPACE, "drainproof-tls"), secret(NAMESPACE, "drainproof-ca"), "test")
    stored.write(Step("new-ca", "", authority=OLD, leaf=OLD_LEAF), stored.read())
    Lease(api, lease(NAMESPACE, "drainproof-controller"), "test", 15, Complaints(metrics())).round()
    control_plane.kubectl("-n", NAMESPACE, "create", "configmap", "drainproof-facts", "--from-literal=facts.json={}")
    yield control_plane
    named = [(one["kind"], one["metadata"]["name"]) for one in shipped if "namespace" not in one["metadata"]]
    for kind, name in named:
        control_plane.kubectl("delete", kind, name, "--ignore-not-found", "--wait=false")


@contextmanager
def account(plane: ControlPlane, folder: Path, name: str, namespace: str = "default") -> Iterator[Path]:
    """A kubeconfig of a ServiceAccount."""
    token = plane.kubectl("-n", namespace, "create", "token", name).stdout.strip()
    cluster = {"server": plane.server, "certificate-authority": str(plane.ca)}
    written = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (folder / "kubeconfig").write_text(json.dumps(written))
    yield folder / "kubeconfig"


def test_an_installation_goes_entirely_and_a_second_run_finds_nothing(
    control_plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    control_plane.kubectl("wait", "--for=delete", f"namespace/{NAMESPACE}", "--timeout=50s")
    before = cluster_wide(control_plane)
    request.getfixturevalue("plane")
    made = cluster_wide(control_plane) - before
    assert len(made) >= 6  # two configurations, two of rights, priority, namespace
    assert [one for one in made if "drainproof" not in one] == []
    pods = ("wait", "pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=controller", "--for=create")
    control_plane.kubectl(*pods, "--timeout=50s")
    lines = uninstalled(control_plane)
    assert [one.split()[1] for one in lines[:2]] == ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    assert cluster_wide(control_plane) == before
    assert uninstalled(control_plane) == ["There is nothing left to remove."]


def test_a_dry_run_changes_nothing_and_says_what_a_run_removes(plane: ControlPlane) -> None:
    before = (cluster_wide(plane), of_namespace(plane))
    would = [one.replace("would remove", "removed") for one in uninstalled(plane, "--dry-run")[:-1]]
    assert (cluster_wide(plane), of_namespace(plane)) == before
    did = [one for one in uninstalled(plane)[:-1] if not one.startswith("waiting")]
    assert would == did


def test_what_others_made_stays_and_with_it_the_namespace(plane: ControlPlane) -> None:
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": NAMESPACE}}
    webhook = {"name": "a.b.test", "clientConfig": {"url": "https://x.test"}, "sideEffects": "None"}
    foreign = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "theirs"},
        "webhooks": [{**webhook, "admissionReviewVersions": ["v1"]}],
    }
    apply(plane, [theirs, foreign])
    try:
        lines = uninstalled(plane)
        assert f"namespaces {NAMESPACE} stays: it holds what is not ours: configmaps {NAMESPACE}/theirs" in lines
        settled = ("wait", "--for=delete", "pods,endpointslices,replicasets", "--all", "--timeout=50s")
        plane.kubectl("-n", NAMESPACE, *settled)
        assert of_namespace(plane) == {"ConfigMap/theirs"}
        assert "MutatingWebhookConfiguration/theirs" in cluster_wide(plane)
        plane.kubectl("-n", NAMESPACE, "delete", "configmap", "theirs")
        assert f"removed namespaces {NAMESPACE}" in uninstalled(plane)
    finally:
        plane.kubectl("delete", "mutatingwebhookconfiguration", "theirs")


def test_who_lacks_a_right_is_told_and_the_rest_goes(plane: ControlPlane, tmp_path: Path) -> None:
    every = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]
    kinds = {
        "": ["services", "configmaps", "secrets", "serviceaccounts"],
        "apps": ["deployments"],
        "admissionregistration.k8s.io": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "coordination.k8s.io": ["leases"],
    }
    some = [{"apiGroups": [group], "resources": names, "verbs": ["delete"]} for group, names in kinds.items()]
    metadata = {"name": "uninstaller"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **metadata}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata}
    subject = {"kind": "ServiceAccount", "namespace": "default", **metadata}
    made = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {**metadata, "namespace": "default"}},
        {**rbac, "kind": "ClusterRole", "rules": [*every, *some]},
        {**rbac, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    ]
    apply(plane, made)
    try:
        with account(plane, tmp_path, "uninstaller") as kubeconfig:
            done = run(plane, kubeconfig=kubeconfig)
    finally:
        plane.kubectl("delete", "clusterrole,clusterrolebinding,serviceaccount", "uninstaller")
    assert done.returncode == 1
    assert f"Error: could not delete roles {NAMESPACE}/drainproof-controller: 403: " in done.stderr
    assert f"Error: could not delete namespaces {NAMESPACE}: 403: " in done.stderr
    gone = {line.removeprefix("removed ").split()[0] for line in done.stdout.splitlines() if line.startswith("removed")}
    assert gone == {name for names in kinds.values() for name in names}
    uninstalled(plane)


def test_the_hooks_of_the_chart_may_do_what_they_do_and_fit_a_restricted_namespace(
    plane: ControlPlane, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        program = helm.find()
    words: list[str | Path] = [
        "template",
        NAMESPACE,
        DEPLOY / "chart",
        "-n",
        NAMESPACE,
        "-s",
        "templates/uninstall.yaml",
    ]
    text = subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=True).stdout
    found = [one for one in YAML(typ="safe").load_all(text) if one]
    jobs = [one for one in found if one["kind"] == "Job"]
    for job in jobs:
        done = plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(job))
        assert done.stderr == ""  # neither a warning of Pod Security nor one of ours
        pod = {"apiVersion": "v1", "kind": "Pod", **job["spec"]["template"]}
        pod["metadata"] = {**pod["metadata"], "name": "hook", "namespace": NAMESPACE}
        assert pod["spec"]["serviceAccountName"] == "drainproof-uninstall"
        plane.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps({**pod, **account_of(pod)}))
    apply(plane, [one for one in found if one["kind"] != "Job"])
    try:
        with account(plane, tmp_path, "drainproof-uninstall", NAMESPACE) as kubeconfig:
            lines = [uninstalled_by(plane, jobs[0], kubeconfig)]
            plane.kubectl("-n", NAMESPACE, "delete", "deployment", "drainproof-controller")
            lines += [uninstalled_by(plane, jobs[1], kubeconfig)]
        assert [len(one) for one in lines] == [3, 5]
        assert not {"Secret/drainproof-tls", "Secret/drainproof-ca", "ConfigMap/drainproof-facts"} & of_namespace(plane)
    finally:
        for kind in ("clusterrole", "clusterrolebinding"):
            plane.kubectl("delete", kind, "drainproof-uninstall")
    uninstalled(plane)


def account_of(pod: dict[str, Any]) -> dict[str, Any]:
    """A Pod is let in only with a ServiceAccount that is there, and the one of a hook is not."""
    return {"spec": {**pod["spec"], "serviceAccountName": "drainproof"}}


def uninstalled_by(plane: ControlPlane, job: dict[str, Any], kubeconfig: Path) -> list[str]:
    """What a hook's command says, run with its rights."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return uninstalled(plane, *container["args"][1:], kubeconfig=kubeconfig)
