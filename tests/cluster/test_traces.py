"""A real API server that makes traces: ours are part of them."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from kubernetes import client, config

from tests.cluster import controlplane, deployment
from tests.cluster.controlplane import ControlPlane
from tests.cluster.programs import Program
from tests.collector import Collector, collecting, values

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NOBODY: Final = "127.0.0.1:1"  # its own spans go over gRPC, to wherever: only what it tells us of them counts here
TRACING: Final = f"""\
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: {NOBODY}
samplingRatePerMillion: 1000000
"""


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as one:
        yield one


@pytest.fixture(scope="module")
def plane(
    tmp_path_factory: pytest.TempPathFactory,
    collector: Collector,
    found_programs: dict[str, Program],  # noqa: ARG001 - without them the tests fail
) -> Iterator[ControlPlane]:
    """A control plane that makes a trace of every request, and our webhook, which does too."""
    folder = tmp_path_factory.mktemp("traces")
    file = folder / "tracing.yaml"
    file.write_text(TRACING, encoding="utf-8")
    flags = [f"--tracing-config-file={file}"]
    with (
        controlplane.running(folder / "plane", controllers=False, apiserver_flags=flags) as plane,
        deployment.serving(folder, "--traces", collector.url) as webhook,
        deployment.registered(plane, deployment.configurations(webhook), deployment.mends_and_judges),
    ):
        yield plane


def created(plane: ControlPlane, name: str, **headers: str) -> None:
    """A Job, made by a client that sends `headers`."""
    with config.new_client_from_config(str(plane.kubeconfig)) as api:  # type: ignore[no-untyped-call]
        api.default_headers.update(headers)
        jobs: Any = client.BatchV1Api(api)
        jobs.create_namespaced_job("default", {**deployment.CANARY, "metadata": {"name": name}})


def test_mutation_and_validation_of_an_object_are_in_one_trace_of_the_api_server(
    plane: ControlPlane, collector: Collector
) -> None:
    created(plane, "traced")
    found = collector.waited(2, lambda span: span.trace_id.hex() != TRACE and not values(span)["drainproof.dry_run"])
    mutation, validation = sorted(found, key=lambda span: span.name)
    assert [mutation.name, validation.name] == ["POST /mutate", "POST /validate"]
    assert mutation.trace_id == validation.trace_id
    assert b"" not in (mutation.parent_span_id, validation.parent_span_id)
    assert mutation.parent_span_id != validation.parent_span_id
    assert [values(span)["drainproof.outcome"] for span in (mutation, validation)] == ["mended", "warned"]
    assert values(mutation)["drainproof.kind"] == "Job"


def test_the_trace_that_a_client_begins_goes_on_through_the_api_server_to_us(
    plane: ControlPlane, collector: Collector
) -> None:
    created(plane, "followed", traceparent=f"00-{TRACE}-{CALLER}-01")
    found = collector.waited(2, lambda span: span.trace_id.hex() == TRACE)
    assert {span.name for span in found} == {"POST /mutate", "POST /validate"}
    assert CALLER not in {span.parent_span_id.hex() for span in found}, "the API server's spans are between"
