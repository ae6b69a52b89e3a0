"""What is found out about Karpenter: read from its objects, written once, kept when it cannot be read."""

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from kubernetes import client
from prometheus_client import generate_latest

from tests import apiserver
from tests.apiserver import ApiServer
from webhook import policyfile
from webhook.controller import discovery
from webhook.controller.api import Api, ApiError
from webhook.controller.discovery import Discovery
from webhook.controller.metrics import Complaints, led_no_more, metrics
from webhook.core import karpenter
from webhook.core.karpenter import Known
from webhook.core.ruleset import Facts

PLACE: Final = "/api/v1/namespaces/here/configmaps/drainproof-facts"
POOLS: Final = "/apis/karpenter.sh/v1/nodepools"
NAMES: Final = ("kube-system/karpenter", "karpenter/karpenter")


def deployment(label: str | None = None, image: str = "example.test/x@sha256:0", name: str = "controller") -> Any:
    labels = {"app.kubernetes.io/version": label} if label else {}
    containers = [{"name": "proxy", "image": "example.test/proxy:9.9.9"}, {"name": name, "image": image}]
    return {
        "metadata": {"name": "karpenter", "labels": labels},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def pool(name: str, limit: Any = None) -> dict[str, Any]:
    spec = {} if limit is None else {"terminationGracePeriod": limit}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize(
    ("document", "version"),
    [
        (deployment("1.15.0"), (1, 15, 0)),
        (deployment("v1.15.0"), (1, 15, 0)),
        (deployment("1.15.0", "example.test/karpenter/controller:1.11.2"), (1, 15, 0)),
        (deployment("latest", "example.test/karpenter/controller:1.11.2"), (1, 11, 2)),
        (deployment(None, "example.test:5000/karpenter/controller:v1.11.2@sha256:0"), (1, 11, 2)),
        (deployment(None, "controller:1.12.0-rc.1", "karpenter"), (1, 12, 0)),
        (deployment(None, "example.test:5000/karpenter/controller@sha256:0"), None),
        (deployment(None, "example.test:5000/karpenter/controller"), None),
        (deployment(None, "controller:1.12.0", "other"), None),
        (deployment("1.12"), None),
        ({"spec": {"template": {"spec": {"containers": [{"name": "controller"}, 7]}}}}, None),
        (None, None),
    ],
)
def test_the_version_is_that_of_the_label_or_else_of_the_image(document: Any, version: Any) -> None:
    assert karpenter.version(document) == version


def test_limits_are_those_that_a_policy_can_read() -> None:
    pools = [pool("a", "48h"), pool("b"), pool("c", "1h30m"), pool("d", "2d"), pool("e", "9999999999h"), 7]
    assert karpenter.limits(pools) == {"a": "48h", "c": "1h30m"}


def test_a_document_is_read_as_it_was_written() -> None:
    for known in (Known(), Known((1, 2, 3), {"b": "1h", "a": "2m"}), Known(None, {"a": "1s"})):
        assert karpenter.known(known.document) == known
    assert list(Known((1, 2, 3), {"b": "1h", "a": "2m"}).document["nodepools"]) == ["a", "b"]
    assert karpenter.known({"kind": "Facts"}) is None
    assert karpenter.known([]) is None


class Site:
    """An API server, and discovery against it."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.metrics, self.leads = server, metrics(), True
        self.discovery = self.another()

    def another(self) -> Discovery:
        configuration = client.Configuration()
        configuration.host = self.server.url
        return Discovery(
            Api(configuration),
            discovery.config_map("here", "drainproof-facts"),
            discovery.deployments(NAMES),
            lambda: self.leads,
            self.metrics,
            Complaints(self.metrics),
        )

    def put(self, *pools: dict[str, Any], namespace: str = "karpenter", **deployed: Any) -> None:
        if deployed:
            self.server.put(f"/apis/apps/v1/namespaces/{namespace}/deployments/karpenter", deployment(**deployed))
        for one in pools:
            self.server.put(f"{POOLS}/{one['metadata']['name']}", one)

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.server.objects[PLACE]["data"]["facts.json"])
        return {name: one for name, one in found.items() if name in ("karpenter", "nodepools")}

    def writes(self) -> int:
        return self.server.asks("patch", "configmaps")


@pytest.fixture
def site(caplog: pytest.LogCaptureFixture) -> Iterator[Site]:
    caplog.set_level(logging.INFO, "drainproof")
    with ExitStack() as stack:
        yield Site(stack.enter_context(apiserver.serving()))


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, Any]]:
    return [dict(record.__dict__["fields"]) for record in caplog.records if record.getMessage() == message]


def test_what_is_found_is_written_once_and_again_when_it_changes(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.put(pool("spot", "2m"), pool("free"), pool("batch", "48h"), label="1.15.0")
    for _ in range(3):
        assert site.discovery.once() is False
    assert site.document() == {"karpenter": {"version": "1.15.0"}, "nodepools": {"batch": "48h", "spot": "2m"}}
    assert site.writes() == 1
    [line] = lines(caplog, "facts changed")
    assert (line["karpenter"], line["nodepools"], line["config_map"]) == (
        "1.15.0",
        2,
        "configmaps here/drainproof-facts",
    )
    site.put(pool("batch", "24h"))
    site.discovery.once()
    assert site.document()["nodepools"] == {"batch": "24h", "spot": "2m"}
    assert site.writes() == 2
    query = next(query for verb, _, query in site.server.asked if verb == "patch")
    assert query == {"fieldManager": "drainproof-controller", "force": "true"}


def test_what_is_written_is_what_the_webhook_reads(site: Site, tmp_path: Path) -> None:
    site.put(pool("spot", "2m"), label="1.11.2")
    site.discovery.once()
    content = site.server.objects[PLACE]["data"]["facts.json"].encode()
    assert policyfile.facts(tmp_path / "facts.json", content) == Facts((1, 11, 2), (("spot", 120),))


def test_a_cluster_without_karpenter_has_facts_that_say_nothing(site: Site) -> None:
    site.server.refuse("list", "nodepools", 404)
    site.discovery.once()
    assert site.document() == {"nodepools": {}}


def test_of_several_versions_the_lowest_counts_and_that_is_told(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.put(namespace="kube-system", label="1.15.0")
    site.put(namespace="karpenter", label="1.11.2")
    site.discovery.once()
    site.discovery.once()
    assert site.document()["karpenter"] == {"version": "1.11.2"}
    [line] = lines(caplog, "several versions of Karpenter")
    assert (line["versions"], line["counts"]) == (["1.11.2", "1.15.0"], "1.11.2")
    site.server.delete("/apis/apps/v1/namespaces/karpenter/deployments/karpenter")
    site.discovery.once()
    assert site.document()["karpenter"] == {"version": "1.15.0"}


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_what_cannot_be_read_stays_as_it_was_known_and_the_rest_goes_on(status: int, site: Site) -> None:
    site.put(pool("spot", "2m"), label="1.11.2")
    site.discovery.once()
    fault = site.server.refuse("get", "deployments", status)
    site.put(pool("spot", "3m"), label="1.15.0")
    for instance in (site.discovery, site.another()):  # one that was started anew reads what was written
        with pytest.raises(ApiError, match=str(status)):
            instance.once()
        assert site.document() == {"karpenter": {"version": "1.11.2"}, "nodepools": {"spot": "3m"}}
    fault.times = 0
    site.discovery.once()
    assert site.document()["karpenter"] == {"version": "1.15.0"}
    fault = site.server.refuse("list", "nodepools", status)
    site.put(pool("spot", "4m"), label="1.16.0")
    for instance in (site.discovery, site.another()):
        with pytest.raises(ApiError, match=str(status)):
            instance.once()
        assert site.document() == {"karpenter": {"version": "1.16.0"}, "nodepools": {"spot": "3m"}}


def test_one_deployment_that_cannot_be_read_may_be_the_older_one(site: Site) -> None:
    site.put(namespace="karpenter", label="1.11.2")
    site.discovery.once()
    site.server.refuse("get", "namespaces/karpenter/deployments", 403)
    site.put(namespace="kube-system", label="1.15.0")
    with pytest.raises(ApiError):
        site.discovery.once()
    assert site.document()["karpenter"] == {"version": "1.11.2"}


def test_a_source_that_says_none_takes_away_what_was_known(site: Site) -> None:
    site.put(pool("spot", "2m"), label="1.11.2")
    site.discovery.once()
    site.put(pool("spot"), image="example.test/karpenter@sha256:0")
    site.discovery.once()
    assert site.document() == {"nodepools": {}}
    site.put(pool("spot", "2m"))
    site.discovery.once()
    site.server.refuse("list", "nodepools", 404)  # the CRD is gone
    site.discovery.once()
    assert site.document() == {"nodepools": {}}


@pytest.mark.parametrize(
    "data",
    [{"facts.json": "junk"}, {"facts.json": '{"kind": "Facts"}'}, {"facts.json": 7}, {"other": "x"}, None, "gone"],
)
def test_what_somebody_altered_is_put_back_also_while_nothing_can_be_read(
    data: Any, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.put(pool("spot", "2m"), label="1.11.2")
    site.discovery.once()
    before = site.document()
    site.server.refuse("list", "nodepools", 503)
    if data == "gone":
        site.server.delete(PLACE)
    else:
        site.server.put(PLACE, {**site.server.objects[PLACE], "data": data})
    with pytest.raises(ApiError):
        site.discovery.once()
    assert site.document() == before
    assert lines(caplog, "facts put back")


def test_a_config_map_that_cannot_be_read_is_not_written(site: Site) -> None:
    fault = site.server.refuse("get", "configmaps", 403)
    with pytest.raises(ApiError, match="configmaps"):
        site.discovery.once()
    assert PLACE not in site.server.objects
    fault.times = 0
    site.server.refuse("patch", "configmaps", 403, times=1)
    with pytest.raises(ApiError, match="configmaps"):
        site.discovery.once()
    site.discovery.once()
    assert site.document() == {"nodepools": {}}


def test_every_error_is_counted_and_the_last_one_raised(site: Site) -> None:
    site.server.refuse("get", "deployments", 403)
    site.server.refuse("list", "nodepools", 403)
    with pytest.raises(ApiError, match="nodepools"):
        site.discovery.once()
    errors = site.metrics.errors.labels("get", "deployments", "403")._value.get()
    assert errors == len(NAMES)


def test_who_leads_no_more_writes_nothing_and_what_another_leader_found_counts(site: Site) -> None:
    site.put(pool("spot", "2m"))
    site.leads = False
    site.discovery.once()
    assert PLACE not in site.server.objects
    site.leads = True
    site.discovery.once()
    other = site.another()
    site.put(pool("spot", "5m"))
    other.once()
    site.server.refuse("list", "nodepools", 503)
    site.discovery.forget()
    with pytest.raises(ApiError):
        site.discovery.once()
    assert site.document()["nodepools"] == {"spot": "5m"}


def test_thousands_of_node_pools_are_no_trouble(site: Site, tmp_path: Path) -> None:
    site.server.page = 100
    site.put(*(pool(f"pool-{number:04}", f"{number + 1}m") for number in range(3000)))
    site.discovery.once()
    site.discovery.once()
    assert len(site.document()["nodepools"]) == 3000
    assert site.writes() == 1
    content = site.server.objects[PLACE]["data"]["facts.json"].encode()
    assert len(policyfile.facts(tmp_path / "facts.json", content).node_pools) == 3000


def test_metrics_say_when_each_source_could_last_be_read_and_how_many_node_pools_there_are(site: Site) -> None:
    site.put(pool("spot", "2m"), pool("free"), pool("wild"))
    site.server.refuse("get", "deployments", 403)
    with pytest.raises(ApiError):
        site.discovery.once()
    page = generate_latest(site.metrics.registry).decode()
    assert 'drainproof_controller_facts_timestamp_seconds{source="nodepools"}' in page
    assert 'drainproof_controller_facts_timestamp_seconds{source="karpenter"}' not in page
    assert 'drainproof_controller_facts_nodepools{limit="set"} 1.0' in page
    assert 'drainproof_controller_facts_nodepools{limit="none"} 2.0' in page
    led_no_more(site.metrics)
    assert "drainproof_controller_facts_nodepools{" not in generate_latest(site.metrics.registry).decode()
