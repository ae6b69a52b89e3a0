"""Under a steady load, with refused what could not be judged, nothing planned loses an admission."""

import base64
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from tests.node import installation, load
from tests.node.installation import NAMESPACE
from tests.node.load import Load
from tests.node.ring import Ring

# In the order in which they stand: the load goes on from the first to the last.
pytestmark = pytest.mark.timeout(900)

ADMISSIONS: Final = 10_000
SLOWEST_SECONDS: Final = 3  # of an answer to the client, also while Pods start on the same two cores
RECOVERED_SECONDS: Final = 15  # after a kill -9, for which nothing can prepare
FLIPS: Final = 20
LOADED: Final = "loaded"


@pytest.fixture(scope="module")
def closed(installable: Ring, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    """The ring with an installation that refuses what could not be judged."""
    folder = installation.kustomization(tmp_path_factory.mktemp("closed"), components=["fail-closed"])
    installation.install(installable, folder)
    installable.kubectl("create", "namespace", LOADED)
    yield installable
    installation.uninstall(installable, "kubectl", folder)
    installable.kubectl("delete", "namespace", LOADED, "--timeout=50s")


@pytest.fixture(scope="module")
def under_load(closed: Ring) -> Iterator[Load]:
    with load.running(closed.plane, LOADED) as going:
        yield going


def nothing_is_lost(under_load: Load) -> None:
    row = under_load.rows[-1]
    assert row.admissions
    assert row.fresh
    assert [one.problem for one in (*row.lost, *row.failed)] == []
    assert row.slowest < SLOWEST_SECONDS


def ours(ring: Ring, *words: str) -> str:
    return ring.kubectl("--namespace", NAMESPACE, *words, timeout=120).stdout


def names(ring: Ring) -> set[str]:
    return {pod["metadata"]["name"] for pod in installation.pods(ring)}


def stored(ring: Ring, secret: str, key: str = "tls.crt") -> str:
    """A certificate in a Secret, as PEM; empty while there is none."""
    told = ours(ring, "get", "secret", secret, "--ignore-not-found", "-o", "json")
    return base64.b64decode(json.loads(told)["data"][key]).decode() if told else ""


def bundles(ring: Ring) -> set[str]:
    """The different caBundles of our configurations, as PEM."""
    kinds = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")
    found = [webhook for kind in kinds for webhook in ring.plane.get(kind, "drainproof")["webhooks"]]
    return {base64.b64decode(webhook["clientConfig"]["caBundle"]).decode() for webhook in found}


def is_served(ring: Ring, certificate: str) -> bool:
    """Whether every replica serves it; the kubelet is sent to look."""
    installation.poke(ring)
    return {installation.served(pod).strip() for pod in installation.pods(ring)} == {certificate.strip()}


@pytest.mark.parametrize("turn", [1, 2])
def test_a_rolling_restart_loses_nothing(closed: Ring, under_load: Load, turn: int) -> None:
    before = names(closed)
    with under_load.during(f"rolling restart {turn}"):
        ours(closed, "rollout", "restart", "deployment", "drainproof")
        ours(closed, "rollout", "status", "deployment", "drainproof", "--timeout=100s")
        installation.wait_until_ready(closed)  # those that end are gone too
    assert names(closed).isdisjoint(before)
    nothing_is_lost(under_load)


def test_the_eviction_of_a_replica_loses_nothing(closed: Ring, under_load: Load) -> None:
    evicted = min(names(closed))
    metadata = {"name": evicted, "namespace": NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{evicted}/eviction"
    with under_load.during("eviction of a replica"):
        closed.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(eviction))
        installation.until(lambda: evicted not in names(closed), seconds=60)
        installation.wait_until_ready(closed)
    nothing_is_lost(under_load)


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_another_certificate_loses_nothing(closed: Ring, under_load: Load, turn: int) -> None:
    before = stored(closed, "drainproof-tls")
    with under_load.during(f"another certificate {turn}"):
        ours(closed, "delete", "secret", "drainproof-tls")
        installation.until(lambda: stored(closed, "drainproof-tls") not in ("", before), seconds=60)
        after = stored(closed, "drainproof-tls")
        installation.until(lambda: is_served(closed, after), seconds=60)
    nothing_is_lost(under_load)


def test_another_ca_loses_nothing(closed: Ring, under_load: Load) -> None:
    before = bundles(closed)
    with under_load.during("another CA"):
        ours(closed, "delete", "secret", "drainproof-ca")
        installation.until(lambda: stored(closed, "drainproof-ca") not in ("", *before), seconds=60)
        after = stored(closed, "drainproof-ca")
        installation.until(lambda: is_signed_and_served(closed, after), seconds=90)
        installation.until(lambda: {one.strip() for one in bundles(closed)} == {after.strip()}, seconds=90)
    nothing_is_lost(under_load)


def is_signed_and_served(ring: Ring, ca: str) -> bool:
    """Whether every replica serves the certificate stored, and that is of this CA."""
    leaf = stored(ring, "drainproof-tls")
    certificate, signer = (x509.load_pem_x509_certificate(one.encode()) for one in (leaf, ca))
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, InvalidSignature):
        return False
    return is_served(ring, leaf)


def test_a_policy_that_changes_loses_nothing(closed: Ring, under_load: Load) -> None:
    before = generations(closed)
    with under_load.during(f"{FLIPS} changes of the policy"):
        for flip in range(1, FLIPS + 1):
            change(closed, "ignore" if flip % 2 else "warn")
            installation.until(lambda: is_in_force(closed, before, flip), seconds=30)  # noqa: B023
    nothing_is_lost(under_load)


def change(ring: Ring, level: str) -> None:
    policy: dict[str, Any] = {"apiVersion": "drainproof.dev/v1", "kind": "Policy", "mode": "enforce"}
    policy["rules"] = {"restart-policy": {"level": level}}
    patch = json.dumps({"data": {"policy.yaml": json.dumps(policy)}})
    ours(ring, "patch", "configmap", "drainproof-policy", "--type=merge", "--patch", patch)
    installation.poke(ring)


def generations(ring: Ring) -> dict[str, int]:
    """The number of the policy in force, by replica."""
    metric = "drainproof_policy_generation "
    pages = {pod["metadata"]["name"]: installation.page(pod, "/metrics") for pod in installation.pods(ring)}
    found = {name: [line for line in page.splitlines() if line.startswith(metric)] for name, page in pages.items()}
    return {name: int(float(lines[0].removeprefix(metric))) for name, lines in found.items() if lines}


def is_in_force(ring: Ring, before: dict[str, int], flips: int) -> bool:
    return generations(ring) == {name: number + flips for name, number in before.items()}


def test_more_replicas_and_fewer_again_lose_nothing(closed: Ring, under_load: Load) -> None:
    # Those that have the connections go again, not those that have just come.
    cheap = "controller.kubernetes.io/pod-deletion-cost=-1"
    ours(closed, "annotate", "pods", f"--selector={installation.WEBHOOK}", cheap)
    before = names(closed)
    for event, replicas in (("from 2 replicas to 4", 4), ("from 4 replicas to 2", 2)):
        with under_load.during(event):
            ours(closed, "scale", "deployment", "drainproof", f"--replicas={replicas}")
            installation.wait_until_ready(closed, replicas)
        nothing_is_lost(under_load)
    assert names(closed).isdisjoint(before)


def test_only_for_a_moment_is_anything_lost_to_the_kill_of_a_replica(
    closed: Ring, under_load: Load, tell: Callable[[str], None]
) -> None:
    busiest = max(installation.pods(closed), key=reviews)
    answered = reviews(busiest)
    assert answered > 0
    with under_load.during("kill -9 of the busiest replica"):
        killed = time.monotonic()
        kill(busiest)
        installation.until(lambda: has_restarted(closed, busiest["metadata"]["name"]), seconds=60)
        installation.wait_until_ready(closed)
    under_way = sum(one.began <= killed <= one.ended for one in list(under_load.admissions))
    row = under_load.rows[-1]
    tell(f"{under_way} admissions were under way at the kill of the replica, which had answered {answered} reviews")
    tell("\n".join(sorted({one.problem for one in (*row.lost, *row.failed)})))
    assert all(one.began - killed < RECOVERED_SECONDS for one in (*row.lost, *row.failed))


def reviews(pod: dict[str, Any]) -> int:
    """How many reviews a replica has answered since it started."""
    lines = installation.page(pod, "/metrics").splitlines()
    return sum(int(float(line.rpartition(" ")[2])) for line in lines if line.startswith("drainproof_reviews_total{"))


def has_restarted(ring: Ring, name: str) -> bool:
    (pod,) = (one for one in installation.pods(ring) if one["metadata"]["name"] == name)
    return bool(pod["status"]["containerStatuses"][0]["restartCount"])


def kill(pod: dict[str, Any]) -> None:
    """Kill the program of a Pod, as a kernel without memory does; its cgroup tells which process it is."""
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    found = [int(place.parent.name) for place in Path("/proc").glob("[0-9]*/cgroup") if container in _text(place)]
    assert found
    for process in found:
        os.kill(process, signal.SIGKILL)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:  # it ended meanwhile
        return ""


def test_nothing_is_lost_between_the_events(under_load: Load) -> None:
    assert [one.problem for one in under_load.lost_between()] == []


def test_enough_was_asked_to_say_so(under_load: Load, tell: Callable[[str], None]) -> None:
    tell(under_load.table())
    assert len(under_load.admissions) >= ADMISSIONS


def test_with_no_replica_at_all_jobs_are_refused_and_our_own_pods_come_back(closed: Ring, under_load: Load) -> None:
    del under_load
    ours(closed, "scale", "deployment", "drainproof", "--replicas=0")
    installation.wait_until_ready(closed, 0)
    words = ("create", "job", "probe", "--image=example.test/none", "--dry-run=server", "--", "true")
    refused = closed.kubectl(*words, check=False)
    assert 'failed calling webhook "jobs.validate.drainproof.dev"' in refused.stderr
    ours(closed, "scale", "deployment", "drainproof", "--replicas=2")
    installation.wait_until_ready(closed)
    installation.wait_until_mending(closed)
