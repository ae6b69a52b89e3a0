"""Alerts and dashboard ask only for metrics and labels that there are, fire when they should, and have a runbook."""

import contextlib
import http.client
import json
import re
import shutil
import ssl
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from tests.cluster import deployment
from webhook.controller.api import ApiError, Thing
from webhook.controller.metrics import Complaints
from webhook.controller.metrics import metrics as controller_metrics

ROOT: Final = Path(__file__).resolve().parents[1]
MONITORING: Final = ROOT / "deploy" / "components" / "monitoring"
UNITS: Final = Path(__file__).with_name("observability") / "alerts.test.yaml"
RUNBOOK: Final = ROOT / "docs" / "runbook.md"
PROMETHEUS: Final = {"job", "instance", "pod", "namespace", "service", "endpoint", "container"}  # what a scrape adds
OTHERS: Final[
    dict[str, set[str]]
] = {  # of the API server, which tests/cluster/test_manifests.py asks; and of Prometheus
    "up": set(),
    "apiserver_admission_webhook_fail_open_count": {"name", "type"},
    "apiserver_admission_webhook_rejection_count": {"name", "type", "operation", "error_type", "rejection_code"},
    "apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "type", "operation", "rejected", "le"},
}
FUNCTIONS: Final = {
    "sum",
    "by",
    "rate",
    "increase",
    "absent",
    "count",
    "min",
    "max",
    "time",
    "histogram_quantile",
    "and",
    "or",
    "vector",
}


def alerts() -> list[dict[str, Any]]:
    (group,) = rules()["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def rules() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(MONITORING / "alerts.yaml")["spec"]
    return found


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Every query by the name of its alert or panel."""
    for alert in alerts():
        yield alert["alert"], alert["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "5m")


QUERIES: Final = pytest.mark.parametrize(("name", "query"), list(queries()))


def review(deed: str, container: dict[str, Any], **annotations: str) -> bytes:
    """A review of a Job."""
    template = {"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "n"},
        "spec": {"template": template},
    }
    request = {
        "uid": deed,
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": "CREATE",
        "namespace": "n",
        "userInfo": {},
        "object": job,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The labels of each metric that the webhook and the controller show, once each counter has counted."""
    page = _served(tmp_path_factory.mktemp("served")) + _controlled()
    found: dict[str, set[str]] = defaultdict(set)
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found[sample.name] |= set(sample.labels)
    return {**found, **OTHERS}


def _served(folder: Path) -> str:
    container = {"name": "c", "image": "example.test/c:1"}
    slow = {**container, "lifecycle": {"preStop": {"sleep": {"seconds": 30}}}}
    with deployment.serving(folder) as served:
        context = ssl.create_default_context(cafile=str(served.ca))
        address = served.url.removeprefix("https://")
        with contextlib.closing(http.client.HTTPSConnection(address, context=context, timeout=10)) as connection:
            for path, body in (
                ("/mutate", review("a", container)),
                ("/validate", review("b", slow, **{"drainproof.dev/ignore.exit-code": "a test"})),
                ("/validate", b"no review"),
            ):
                connection.request("POST", path, body)
                connection.getresponse().read()
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()


def _controlled() -> str:
    made = controller_metrics()
    made.injections.labels("validatingwebhookconfigurations", "done")
    made.expiry.labels("leaf").set(1)
    made.facts.labels("karpenter").set(1)
    made.node_pools.labels("set").set(1)
    Complaints(made).about("test", ApiError("get", Thing("/api/v1", "secrets"), 403, "no"))
    return generate_latest(made.registry).decode()


@QUERIES
def test_a_query_asks_for_metrics_and_labels_that_are_there(known: dict[str, set[str]], name: str, query: str) -> None:
    bare = re.sub(r'"[^"]*"', '""', query)
    asked = re.findall(r"([a-z_]\w*)(?:{([^}]*)})?", re.sub(r"\bby \([^)]*\)|\[[^\]]*\]", "", bare))
    metrics = {metric: matchers for metric, matchers in asked if metric not in FUNCTIONS}
    assert metrics, name
    for metric, matchers in metrics.items():
        assert metric in known, f"{name}: {metric} is not served"
        matched = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)", matchers))
        assert matched <= known[metric] | PROMETHEUS, f"{name}: {metric} has no {matched - known[metric] - PROMETHEUS}"
    grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", bare) for label in labels.split(",")}
    for metric in metrics:
        assert grouped <= known[metric] | PROMETHEUS, f"{name}: {metric} has no {grouped - known[metric] - PROMETHEUS}"


def test_every_metric_of_ours_is_looked_at_by_somebody_or_said_to_be_for_people(known: dict[str, set[str]]) -> None:
    ours = {
        name for name in known if name.startswith("drainproof_") and not name.endswith(("_created", "_sum", "_count"))
    }
    asked = " ".join(query for _, query in queries())
    for_people = {
        "drainproof_policy_generation",
        "drainproof_policy_loaded_timestamp_seconds",
        "drainproof_facts_generation",
        "drainproof_facts_loaded_timestamp_seconds",
        "drainproof_facts_reloads_total",
        "drainproof_controller_certificate_expiry_timestamp_seconds",
        "drainproof_controller_facts_nodepools",
        "drainproof_controller_rotations_total",
        "drainproof_controller_injections_total",
        "drainproof_controller_stamp_errors_total",
    }
    assert {name for name in ours if name not in asked} <= for_people


def test_panels_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("alert", alerts(), ids=lambda one: str(one["alert"]))
def test_each_alert_leads_to_a_section_of_the_runbook(alert: dict[str, Any]) -> None:
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert alert["alert"] in headings
    assert alert["annotations"]["runbook"] == f"docs/runbook.md#{alert['alert'].lower()}"
    assert alert["labels"]["severity"] in ("critical", "warning")


def test_the_runbook_has_no_section_for_an_alert_that_is_gone() -> None:
    headings = re.findall(r"^## (Drainproof\w+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [alert["alert"] for alert in alerts()]


def test_each_alert_has_a_unit_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = [case for test in YAML(typ="safe").load(UNITS)["tests"] for case in test["alert_rule_test"]]
    names = {alert["alert"] for alert in alerts()}
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == names
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == names


@pytest.fixture
def promtool() -> str:
    """Prometheus's own checker."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on PATH: apt-get install prometheus, or a release of Prometheus")
    return found


def test_alerts_fire_when_they_should(promtool: str, tmp_path: Path) -> None:
    with (tmp_path / "alerts.yaml").open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(rules(), file)
    shutil.copy(UNITS, tmp_path)
    done = subprocess.run(
        [promtool, "test", "rules", UNITS.name], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_understands_every_query(promtool: str, tmp_path: Path) -> None:
    recorded = [{"record": f"query_{number}", "expr": query} for number, (_, query) in enumerate(queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": recorded}]}), encoding="utf-8")
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
