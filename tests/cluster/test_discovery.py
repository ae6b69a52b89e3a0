"""The controller's discovery against a real API server: NodePools and Deployments come, change, go or are forbidden."""

import base64
import json
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cluster import deployment, process, watching
from tests.cluster.controlplane import ControlPlane
from tests.cluster.test_controller import waited
from tests.cluster.test_watch import RIGHTS as WATCHING
from tests.cluster.watching import FACTS, Account, Site, facts, shipped
from tests.test_observability import review

Json = dict[str, Any]
GROUP: Final = "karpenter.sh"
RIGHTS: Final = [
    ("deployments", "get"),
    ("nodepools", "list"),
    ("configmaps", "get"),
    ("configmaps", "create"),
    ("configmaps", "patch"),
]


@pytest.fixture
def site(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with watching.site(control_plane, tmp_path) as made:
        yield made


def test_the_rights_that_are_tried_are_all_that_are_shipped() -> None:
    rights = {
        (resource, verb)
        for role in shipped()
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert rights - {("leases", verb) for verb in ("get", "create", "update")} == {*RIGHTS, *WATCHING}


def definition() -> Json:
    """As much of the CRD of NodePools as is looked at."""
    duration = {"type": "string", "pattern": "^([0-9]+(s|m|h))+$"}
    schema: Json = {"type": "object", "properties": {"terminationGracePeriod": duration}}
    for name in ("spec", "template", "spec"):
        schema = {"type": "object", "properties": {name: schema}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "nodepools", "singular": "nodepool", "kind": "NodePool"}
    spec = {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": f"nodepools.{GROUP}"}, "spec": spec}


def pool(name: str, limit: str | None = None) -> Json:
    spec = {} if limit is None else {"terminationGracePeriod": limit}
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "NodePool", "metadata": {"name": name}}
    return {**kind, "spec": {"template": {"spec": spec}}}


def karpenter(version: str) -> Json:
    labels = {"app": "karpenter"}
    container = {"name": "controller", "image": f"example.test/karpenter/controller:{version}@sha256:{'0' * 64}"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
    metadata = {"name": "karpenter", "namespace": "kube-system"}
    return {
        **kind,
        "metadata": metadata,
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


@pytest.fixture
def pools(control_plane: ControlPlane) -> Iterator[Callable[..., None]]:
    """Applies NodePools; their CRD is made with the first ones."""

    def put(document: Json) -> bool:
        done = control_plane.kubectl("apply", "-f", "-", input=json.dumps(document), check=False)
        return done.returncode == 0

    def applied(*documents: Json) -> None:
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(definition()))
        control_plane.kubectl("wait", "--for=condition=Established", f"crd/nodepools.{GROUP}", "--timeout=30s")
        for document in documents:
            waited("a NodePool", partial(put, document))

    yield applied
    control_plane.kubectl("delete", "crd", f"nodepools.{GROUP}", "--ignore-not-found", timeout=120)
    control_plane.kubectl("delete", "deployment", "karpenter", "-n", "kube-system", "--ignore-not-found")


def test_facts_follow_karpenter_as_it_comes_changes_and_goes(site: Site, pools: Callable[..., None]) -> None:
    controller = site.controller("--no-watch", kubeconfig=Account(site).kubeconfig())
    waited("facts", lambda: facts(site) == {"karpenter": None, "nodepools": {}})
    pools(pool("spot", "2m"), pool("free"), pool("batch", "48h"))
    site.plane.create(karpenter("1.11.2"))
    found = {"karpenter": {"version": "1.11.2"}, "nodepools": {"batch": "48h", "spot": "2m"}}
    waited("facts", lambda: facts(site) == found)
    for alter in (
        ("patch", "configmap", FACTS, "--type=merge", "-p", json.dumps({"data": {"facts.json": "junk"}})),
        ("patch", "configmap", FACTS, "--type=merge", "-p", json.dumps({"data": None})),
        ("delete", "configmap", FACTS),
    ):
        before = len(controller.lines("facts put back"))
        site.plane.kubectl(*alter, "-n", site.namespace)
        waited("facts put back", lambda: len(controller.lines("facts put back")) > before)  # noqa: B023
        assert facts(site) == found
    pools(pool("spot", "3m"))
    waited("facts", lambda: facts(site)["nodepools"]["spot"] == "3m")
    site.plane.kubectl("delete", "deployment", "karpenter", "-n", "kube-system")
    site.plane.kubectl("delete", "crd", f"nodepools.{GROUP}", timeout=120)
    waited("facts", lambda: facts(site) == {"karpenter": None, "nodepools": {}})
    assert not controller.lines("call to the API server failed", status=403)
    metrics = controller.got("/metrics")[1]
    assert 'drainproof_controller_facts_timestamp_seconds{source="nodepools"}' in metrics
    assert "watch" not in controller.got("/healthz")[1]


@pytest.mark.parametrize(("resource", "verb"), RIGHTS)
def test_a_right_to_look_or_write_that_is_missing_is_one_clear_error_and_what_was_known_stays(
    site: Site, pools: Callable[..., None], resource: str, verb: str
) -> None:
    account = Account(site)
    pools(pool("spot", "2m"))
    site.plane.create(karpenter("1.11.2"))
    found = {"karpenter": {"version": "1.11.2"}, "nodepools": {"spot": "2m"}}
    if verb != "create":
        before = site.controller(kubeconfig=account.kubeconfig())
        waited("facts", lambda: facts(site) == found)
        process.stop(before.process)
    account.has(without=(resource, verb))
    controller = site.controller(kubeconfig=account.kubeconfig())
    controller.waited("leading")
    pools(pool("spot", "3m"))
    site.plane.kubectl("apply", "-f", "-", input=json.dumps(karpenter("1.15.0")))
    line = controller.waited("call to the API server failed", status=403, resource=resource)
    assert line["level"] == "error"
    assert f'cannot {verb} resource "{resource}"' in line["reason"]
    site.drained("drained")
    waited("an Event", lambda: site.events("drained"))
    time.sleep(1)
    assert len(controller.lines("call to the API server failed", status=403)) == 1
    assert controller.got("/readyz") == (200, "ok\n")
    known = {
        "deployments": {"karpenter": {"version": "1.11.2"}, "nodepools": {"spot": "3m"}},
        "nodepools": {"karpenter": {"version": "1.15.0"}, "nodepools": {"spot": "2m"}},
        "configmaps": None if verb == "create" else found,
    }
    assert facts(site) == known[resource]
    account.has()
    waited("facts", lambda: facts(site) == {"karpenter": {"version": "1.15.0"}, "nodepools": {"spot": "3m"}}, 60)


def test_the_webhook_goes_by_the_facts_that_the_controller_wrote(site: Site, pools: Callable[..., None]) -> None:
    """Durations protect nothing on Karpenter 1.11, so that an unbounded annotation is left as it is there."""
    site.plane.create(karpenter("1.11.2"))
    pools(pool("spot", "2m"))
    site.controller("--no-watch")
    mounted = site.folder / "facts.json"
    with deployment.serving(site.folder, "--facts", str(mounted), "--reload-seconds", "0.1") as webhook:
        assert "24h" in str(mutated(webhook))
        waited("facts", lambda: (facts(site) or {}).get("nodepools"))
        found = site.plane.get("configmap", FACTS, "-n", site.namespace)
        mounted.write_text(found["data"]["facts.json"])
        waited("the facts to be in force", lambda: "24h" not in str(mutated(webhook)))


def mutated(webhook: deployment.Deployment) -> list[Json]:
    """The patch of a Job with an unbounded do-not-disrupt."""
    body = review("mutate", {"name": "c", "image": "example.test/c:1"}, **{"karpenter.sh/do-not-disrupt": "true"})
    request = urllib.request.Request(f"{webhook.url}/mutate", body, {"Content-Type": "application/json"})
    context = ssl.create_default_context(cafile=webhook.ca)
    with urllib.request.urlopen(request, context=context, timeout=10) as answer:
        response = json.loads(answer.read())["response"]
    return list(json.loads(base64.b64decode(response.get("patch", "W10="))))
