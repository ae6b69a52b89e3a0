"""drainproof installed on the node by the commands of docs/install.md, and looks at what then runs there."""

import json
import os
import re
import shlex
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final

from tests.node.ring import Ring
from webhook import __version__

ROOT: Final = Path(__file__).resolve().parents[2]
DEPLOY: Final = ROOT / "deploy"
REPOSITORY: Final = "registry.example/drainproof"
IMAGE: Final = f"{REPOSITORY}:{__version__}"
NAMESPACE: Final = "drainproof"
WEBHOOK: Final = "app.kubernetes.io/component=webhook"
CONTROLLER: Final = "app.kubernetes.io/component=controller"
PORT: Final = 8443
REPLICAS: Final = 2
OVERLAY: Final = "deploy/overlays/cluster-wide"
# All that an installation makes.
KINDS: Final = (
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles,clusterrolebindings,namespaces,"
    "priorityclasses,roles,rolebindings,serviceaccounts,secrets,leases,configmaps,jobs,deployments,services,"
    "networkpolicies,poddisruptionbudgets,horizontalpodautoscalers"
)
PLACE: Final = '{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{"\\n"}{end}'


def kustomization(
    folder: Path, overlay: str = "cluster-wide", components: Sequence[str] = (), rules: Mapping[str, Any] | None = None
) -> Path:
    """`folder`, with a kustomization as docs/install.md shows one: an overlay, components, the image, and a policy."""
    deploy = Path(os.path.relpath(DEPLOY, folder.resolve()))
    written: dict[str, Any] = {
        "resources": [str(deploy / "overlays" / overlay)],
        "components": [str(deploy / "components" / name) for name in components],
        "images": [{"name": "drainproof", "newName": REPOSITORY, "newTag": __version__}],
    }
    if rules:
        policy = {"apiVersion": "drainproof.dev/v1", "kind": "Policy", "rules": rules}
        (folder / "policy.yaml").write_text(json.dumps(policy), encoding="utf-8")
        ours = {"name": "drainproof-policy", "namespace": NAMESPACE, "behavior": "replace", "files": ["policy.yaml"]}
        written["configMapGenerator"] = [{**ours, "options": {"disableNameSuffixHash": True}}]
    (folder / "kustomization.yaml").write_text(json.dumps(written), encoding="utf-8")
    return folder


def install(ring: Ring, folder: Path) -> None:
    """Apply a kustomization, and wait until every replica is ready and Jobs are mended."""
    ring.kubectl("apply", "--server-side", "-k", str(folder))
    wait_until_mending(ring)
    wait_until_ready(ring)


def uninstall(ring: Ring, way: str, folder: Path | None = None, helm: Callable[..., object] | None = None) -> None:
    """Run the block of commands under "Uninstalling" in docs/install.md that begins with `way`.

    A kustomization in `folder` takes the place of the overlay; `helm` is called for that program.
    """
    for program, *words in commands(way):
        if program == "helm":
            assert helm is not None
            helm(*words)
        elif program == "drainproof":
            drainproof(ring, *words)
        else:
            ring.kubectl(*(str(folder) if word == OVERLAY else word for word in words), timeout=120)


def commands(way: str) -> list[list[str]]:
    """The words of each command in the block under "Uninstalling" that begins with `way`."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    section = page.partition("\n## Uninstalling\n")[2]
    blocks = [block.strip() for block in re.findall(r"^```$(.*?)^```$", section, re.MULTILINE | re.DOTALL)]
    block = next(one for one in blocks if one.startswith(way))
    return [shlex.split(line, comments=True) for line in block.splitlines()]


def drainproof(ring: Ring, *words: str) -> str:
    """What a command of ours says, run on the host as the administrator. Its end in an error fails the test."""
    environment = {**ring.plane.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "webhook", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert not done.returncode, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def things(ring: Ring) -> set[str]:
    """Everything of KINDS that there is, as KIND/NAMESPACE/NAME."""
    return {*ring.kubectl("get", KINDS, "--all-namespaces", "-o", f"jsonpath={PLACE}").stdout.splitlines()}


def probe(ring: Ring) -> bool:
    """Whether the Job by which docs/install.md looks is mended."""
    words = ("create", "job", "probe", "--image=example.test/none", "--dry-run=server", "-o", "json", "--", "true")
    done = ring.kubectl(*words, check=False)
    return done.returncode == 0 and "podFailurePolicy" in json.loads(done.stdout)["spec"]


def wait_until_mending(ring: Ring) -> None:
    """Returns once the API server has a Job mended."""
    until(lambda: probe(ring), seconds=90)


def wait_until_ready(ring: Ring, replicas: int = REPLICAS, labels: str = WEBHOOK) -> None:
    """Returns once exactly so many Pods with these labels are there, and all of them are ready.

    The autoscaler, which looks every 15 seconds, makes the second one.
    """
    until(lambda: len(running := pods(ring, labels)) == replicas and all(map(_is_ready, running)), seconds=120)


def until(holds: Callable[[], bool], seconds: float) -> None:
    """Returns once `holds` does; raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come within {seconds:.0f} s"
        time.sleep(0.2)


def pods(ring: Ring, labels: str = WEBHOOK) -> list[dict[str, Any]]:
    """The Pods of ours with these labels, those that are ending too."""
    found: list[dict[str, Any]] = ring.plane.get("pods", "--namespace", NAMESPACE, f"--selector={labels}")["items"]
    return found


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def poke(ring: Ring, labels: str = WEBHOOK) -> None:
    """Have the kubelet look now at what Pods with these labels have mounted, as it does about once a minute."""
    words = ("annotate", "pods", f"--selector={labels}", "--overwrite", f"drainproof.dev/looked-at={time.time_ns()}")
    ring.kubectl("--namespace", NAMESPACE, *words)


def served(pod: Mapping[str, Any]) -> str:
    """The certificate that a replica serves, as PEM."""
    return ssl.get_server_certificate((pod["status"]["podIP"], PORT), timeout=5)


def page(pod: Mapping[str, Any], path: str) -> str:
    """What a replica answers to a GET; empty where it does not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = HTTPSConnection(pod["status"]["podIP"], PORT, timeout=5, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    except (OSError, HTTPException):
        return ""
    finally:
        connection.close()
