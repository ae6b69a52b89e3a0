"""The demo from its first line to its last: a control plane, our webhook in front of it, and the four acts."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.cluster import controlplane, deployment
from tests.cluster.controlplane import ControlPlane
from tests.cluster.demo import act, example
from tests.cluster.demo.act import Stage
from tests.cluster.demo.screen import Screen
from tests.cluster.deployment import Deployment


def play(end: Callable[[], None]) -> str:
    """Play the demo; what did not come out as claimed, in words, or nothing. `end` is called before all is stopped.

    Raises ProgramError, ProcessError or KubectlError where the control plane or the webhook does not start.
    """
    began = time.monotonic()
    os.chdir(deployment.ROOT)  # so that commands and messages name files as a person there would
    screen = Screen()
    with ExitStack() as stack:
        try:
            return _played(screen, stack, began)
        finally:
            end()


def _played(screen: Screen, stack: ExitStack, began: float) -> str:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drainproof-demo-")))
    os.environ["TMPDIR"] = str(folder)  # a compiler, or a webhook, that is killed while it starts clears nothing up
    stage, webhook = _opened(screen, folder, stack)
    for show in (act.dry_runs, act.for_real, act.again, act.pods):
        show(stage)
    _summary(stage, time.monotonic() - began)
    if os.environ.get("KEEP", "0") not in ("", "0"):
        _keep(screen, stage.plane, webhook)
    return _complaint(stage.faults)


def _opened(screen: Screen, folder: Path, stack: ExitStack) -> tuple[Stage, Deployment]:
    """The stage, with the control plane and the webhook in place until `stack` is closed."""
    began = time.monotonic()
    screen.title("drainproof demo")
    screen.say("Starting a Kubernetes control plane on this machine: etcd, API server, controllers; no nodes.")
    plane = stack.enter_context(controlplane.running(folder))
    stage = Stage(plane, screen, example.story())
    stage.measure()
    policy = f"{example.FOLDER.name}/{example.POLICY.name}"
    webhook = stack.enter_context(deployment.serving(folder, "--policy", policy))
    documents = deployment.configurations(webhook)
    stack.enter_context(deployment.registered(plane, documents, deployment.mends_and_judges))
    _introduction(screen, plane, policy, time.monotonic() - began)
    return stage, webhook


def _introduction(screen: Screen, plane: ControlPlane, policy: str, seconds: float) -> None:
    server = plane.programs["kube-apiserver"]
    folder = deployment.CONFIGURATIONS.relative_to(deployment.ROOT)
    names = " ".join(f"-f {folder / path.name}" for path in sorted(deployment.CONFIGURATIONS.glob("*ing.yaml")))
    screen.verdict(f"Kubernetes {server.version} and the webhook are ready after {seconds:.1f} s.", True)
    screen.command(f"drainproof serve --dev --port 0 --policy {policy}")
    screen.command(f"kubectl apply {names}")


def _summary(stage: Stage, seconds: float) -> None:
    counts = [
        f"{sum(word in outcome for outcome in stage.outcomes)} {word}" for word in ("mended", "warned", "refused")
    ]
    stage.screen.title("In short")
    stage.screen.say(f"{len(stage.examples)} manifests in {seconds:.1f} s: {', '.join(counts)}.", "bold")
    faults = len(stage.faults)
    right = "Everything came out as the manifests' own comments say."
    stage.screen.verdict(
        f"{faults} of the things above did not come out as they should." if faults else right, not faults
    )


def _keep(screen: Screen, plane: ControlPlane, webhook: Deployment) -> None:
    """Say how to reach what runs, and wait for a signal."""
    screen.title("Still running, until Ctrl-C")
    screen.table(f"export KUBECONFIG={plane.kubeconfig}")
    screen.table(f"webhook  {webhook.url}\nits CA   {webhook.ca}\nits log  {webhook.log}")
    while True:
        signal.pause()


def _complaint(faults: Sequence[str]) -> str:
    return "\n".join(["error: not as it should be:", *(f"  {fault}" for fault in faults)]) if faults else ""
