"""What we make of kinds of cert-manager and the Prometheus operator is accepted by their own schemas.

A real API server has their definitions and is asked strictly: a field that they do not know is an error.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from tests import manifests
from tests.cluster import definitions, helm
from tests.cluster.controlplane import ControlPlane
from tests.manifests import DEPLOY, OVERLAYS, ROOT
from tests.test_chart import template

# Helm may have to be built first.
pytestmark = pytest.mark.timeout(1800)

GROUPS: Final = ("cert-manager.io/", "monitoring.coreos.com/")
KINDS: Final = {"Issuer", "Certificate", "ServiceMonitor", "PodMonitor", "PrometheusRule"}
WAYS: Final = {"created": (), "applied on the server's side": ("--server-side",)}
ISSUER: Final = "certificates.certManager.issuerRef"
MONITORING: Final = tuple(f"monitoring.{part}.enabled=true" for part in ("serviceMonitor", "rules", "dashboard"))
VALUES: Final = {
    "cert-manager": (("certificates.source=cert-manager",), {"Issuer", "Certificate"}),
    "an Issuer of one's own": (
        ("certificates.source=cert-manager", f"{ISSUER}.kind=ClusterIssuer,{ISSUER}.name=corporate"),
        {"Certificate"},
    ),
    "monitoring": (MONITORING, {"ServiceMonitor", "PodMonitor", "PrometheusRule"}),
    "monitoring, found by labels": (
        (*MONITORING, "monitoring.serviceMonitor.labels.a=b", "monitoring.rules.labels.a=b"),
        {"ServiceMonitor", "PodMonitor", "PrometheusRule"},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def defined(control_plane: ControlPlane, pytestconfig: pytest.Config) -> Iterator[None]:
    """The definitions in the control plane. What is fetched or built for it is told."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        files = definitions.find()
        helm.find()
    words = [word for file in files for word in ("-f", str(file))]
    control_plane.kubectl("apply", "--server-side", *words)
    try:
        control_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", *words)
        yield
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", *words)


def rendered(text: str) -> list[dict[str, Any]]:
    """Those of the objects in a YAML stream that are of kinds of others, in a namespace that is there."""
    found = [one for one in YAML(typ="safe").load_all(text) if one and one["apiVersion"].startswith(GROUPS)]
    for one in found:
        assert one["metadata"].pop("namespace") == "drainproof"
    return found


def chart(*values: str) -> list[dict[str, Any]]:
    """Those objects of what the chart makes of values."""
    return rendered(template(helm.find(), *values).stdout)


def of(folder: Path, kinds: set[str]) -> list[dict[str, Any]]:
    """Those of some kinds among what all components make; `folder` is an empty one."""
    names = sorted(one.name for one in (DEPLOY / "components").iterdir())
    return [one for one in rendered(manifests.composed(folder, *names)) if one["kind"] in kinds]


def asked(plane: ControlPlane, found: list[dict[str, Any]], *words: str) -> "subprocess.CompletedProcess[str]":
    """What kubectl says of objects that it applies strictly and without leaving anything."""
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": found})
    return plane.kubectl("apply", *words, "--dry-run=server", "--validate=strict", "-f", "-", input=bundle, check=False)


def accept(plane: ControlPlane, found: list[dict[str, Any]], kinds: set[str]) -> None:
    """Asserts that there are objects of just these kinds, and that the API server takes them without a warning."""
    assert {one["kind"] for one in found} == kinds
    for words in WAYS.values():
        done = asked(plane, found, *words)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        assert len(done.stdout.splitlines()) == len(found)


def test_what_the_overlays_make_is_accepted(control_plane: ControlPlane) -> None:
    made = {name: rendered(manifests.rendered(DEPLOY / "overlays" / name)) for name in OVERLAYS}
    accept(control_plane, made["cert-manager"], {"Issuer", "Certificate"})
    accept(control_plane, made["monitoring"], {"ServiceMonitor", "PodMonitor", "PrometheusRule"})
    assert not made["cluster-wide"] + made["namespace-opt-in"]


def test_the_certificates_by_themselves_are_accepted(control_plane: ControlPlane) -> None:
    accept(control_plane, rendered(manifests.rendered(ROOT / "certs")), {"Issuer", "Certificate"})


def test_all_components_together_are_accepted(control_plane: ControlPlane, tmp_path: Path) -> None:
    accept(control_plane, of(tmp_path, KINDS), KINDS)


@pytest.mark.parametrize(("values", "kinds"), VALUES.values(), ids=VALUES)
def test_what_the_chart_makes_is_accepted(
    control_plane: ControlPlane, values: tuple[str, ...], kinds: set[str]
) -> None:
    accept(control_plane, chart(*values), kinds)


@pytest.mark.parametrize(
    ("kind", "place", "right", "wrong"),
    [
        ("Issuer", ("spec",), "ca", "cas"),
        ("Certificate", ("spec", "privateKey"), "rotationPolicy", "rotationpolicy"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "tlsConfig"), "serverName", "servername"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0), "relabelings", "relabeling"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0), "for", "until"),
    ],
)
@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS)
def test_a_misspelt_field_is_refused(
    control_plane: ControlPlane,
    tmp_path: Path,
    kind: str,
    place: Sequence[str | int],
    right: str,
    wrong: str,
    words: tuple[str, ...],
) -> None:
    one = next(one for one in of(tmp_path, {kind}) if right in within(one, place))
    assert asked(control_plane, [one], *words).returncode == 0
    owner = within(one, place)
    owner[wrong] = owner.pop(right)
    done = asked(control_plane, [one], *words)
    assert done.returncode
    assert wrong in done.stderr


@pytest.mark.parametrize(
    ("kind", "place", "field", "value"),
    [
        ("Certificate", ("spec",), "usages", ["serving"]),
        ("Certificate", ("spec", "privateKey"), "rotationPolicy", "Sometimes"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0), "interval", "half a minute"),
    ],
)
def test_a_value_that_a_field_cannot_have_is_refused(
    control_plane: ControlPlane, tmp_path: Path, kind: str, place: Sequence[str | int], field: str, value: Any
) -> None:
    one = of(tmp_path, {kind})[0]
    within(one, place)[field] = value
    done = asked(control_plane, [one])
    assert done.returncode
    assert field in done.stderr


def within(one: Any, place: Sequence[str | int]) -> Any:
    """What stands at a place in an object."""
    for step in place:
        one = one[step]
    return one
