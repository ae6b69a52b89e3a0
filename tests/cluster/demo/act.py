"""The four acts of the demo. Each shows what a person could type and what comes of it, and notes what went wrong."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.cluster.answer import create
from tests.cluster.controlplane import ControlPlane
from tests.cluster.demo import example
from tests.cluster.demo.difference import difference
from tests.cluster.demo.example import Example
from tests.cluster.demo.screen import Screen

DRY: Final = "--dry-run=server"
COLUMN: Final = 58  # where short answers start, after the longest command
COLUMNS_FILE: Final = "tests/cluster/demo/pods.columns"
BY_HAND: Final = "backup-by-hand"
_PATIENCE: Final = 20  # seconds for the Job controller to make its Pods


@dataclass(slots=True)
class Stage:
    """Where the acts are played, and what they leave for each other."""

    plane: ControlPlane
    screen: Screen
    examples: Sequence[Example]
    unmended: dict[str, Any] = field(default_factory=dict)  # by file: the answer without the webhook
    mended: dict[str, Any] = field(default_factory=dict)  # by file: the answer with it; only what was not refused
    said: dict[str, str] = field(default_factory=dict)  # by file: what kubectl wrote to stderr
    outcomes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def measure(self) -> None:
        """Before the webhook is there: what this API server makes of each manifest by itself."""
        for one in self.examples:
            answer = create(self.plane, one.document)
            # What Kubernetes itself refuses can only be compared with the text that was written.
            self.unmended[one.file] = answer.admitted or one.document

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What kubectl answers."""
        return self.plane.kubectl(*words, check=False)

    def hold(self, is_right: bool, fault: str) -> bool:
        """Note a fault unless all is right; say which it was."""
        if not is_right:
            self.faults.append(fault)
        return is_right


def dry_runs(stage: Stage) -> None:
    """What the webhook would do to each manifest."""
    stage.screen.title("1  What would happen")
    stage.screen.say(
        "A dry run on the server: admission does all its work, and nothing is stored. Below each answer stands what "
        "the webhook changes in the manifest: what `kubectl create --dry-run=server -o yaml` shows now, against what "
        "it showed before the webhook was registered, without the defaults that the author did not write."
    )
    for one in stage.examples:
        _dry_run(stage, one)


def _dry_run(stage: Stage, one: Example) -> None:
    screen = stage.screen
    screen.gap()
    screen.say(one.path.name, "bold cyan")
    screen.say(one.purpose)
    screen.command(f"kubectl apply {DRY} -f {one.file}")
    done = stage.kubectl("apply", DRY, "-f", one.file)
    stage.said[one.file] = done.stderr
    screen.answer(done.stderr + done.stdout)
    changes = _changes(stage, one)
    screen.diff(changes)
    seen = _outcome(bool(changes), done)
    stage.outcomes.append(seen)
    fault = f"{one.file}: its comment says {one.claim!r}, and what came of it is {seen!r}"
    is_right = stage.hold(seen == one.claim, fault)
    screen.verdict(f"{seen}, as its comment says" if is_right else f"{seen}; its comment says: {one.claim}", is_right)


def _outcome(is_changed: bool, done: subprocess.CompletedProcess[str]) -> str:
    """What came of a manifest, read from kubectl's answer."""
    lines = done.stderr.splitlines()
    warned = example.rules(line for line in lines if line.startswith("Warning: "))
    refused = example.rules(line for line in lines if not line.startswith("Warning: "))
    return example.outcome(is_changed, warned, (refused or ["not by us"]) if done.returncode else [])


def _changes(stage: Stage, one: Example) -> list[str]:
    """What the webhook changes in a manifest, as lines of a diff; none where it is refused."""
    admitted = create(stage.plane, one.document).admitted
    if admitted is None:
        return []
    stage.mended[one.file] = admitted
    return difference(one.document, stage.unmended[one.file], admitted)


def for_real(stage: Stage) -> None:
    """Store the manifests; each is answered as in its dry run."""
    stage.screen.title("2  For real")
    stage.screen.say("The same manifests, stored. Warnings and refusals are word for word those of the dry run.")
    stage.screen.gap()
    for one in stage.examples:
        done = stage.kubectl("apply", "-f", one.file)
        is_warned = bool(example.rules(done.stderr.splitlines()))
        word = "refused" if done.returncode else "created, warned" if is_warned else "created"
        stage.screen.command(f"kubectl apply -f {one.file}", word, COLUMN)
        alike = done.stderr == stage.said[one.file] and (done.returncode == 0) == (one.file in stage.mended)
        stage.hold(alike, f"{one.file}: applied for real, it is answered otherwise than in its dry run: {_text(done)}")


def again(stage: Stage) -> None:
    """Apply the same files once more: what was mended must not stand in the way."""
    stage.screen.title("3  Once more, unchanged")
    stage.screen.say(
        "Much of a Job is immutable. Applying the same files again works all the same, and shows no difference."
    )
    stage.screen.gap()
    for one in (one for one in stage.examples if one.file in stage.mended):
        done = stage.kubectl("apply", "-f", one.file)
        word = done.stdout.rpartition(" ")[2].strip() if done.returncode == 0 else "refused"
        stage.screen.command(f"kubectl apply -f {one.file}", word, COLUMN)
        stage.hold(word in ("unchanged", "configured"), f"{one.file}: applied again: {_text(done)}")
        compared = stage.kubectl("diff", "-f", one.file)
        empty = compared.returncode == 0 and not compared.stdout
        stage.screen.command(f"kubectl diff -f {one.file}", "no difference" if empty else "a difference", COLUMN)
        stage.hold(empty, f"{one.file}: kubectl diff after it was applied again: {_text(compared)}")


def pods(stage: Stage) -> None:
    """What runs in the end: the Pods that the Job controller made."""
    stage.screen.title("4  What runs")
    stage.screen.say(
        "The Job controller has made Pods from what was mended, and a Job made from the CronJob is mended like any "
        "other. The Pods stay Pending: this control plane has no nodes."
    )
    words = ("create", "job", BY_HAND, "--from=cronjob/nightly-backup")
    done = _shown(stage, *words)
    stage.hold(done.returncode == 0, f"kubectl {' '.join(words)}: {_text(done)}")
    found = _pods(stage)
    _shown(stage, "get", "jobs,pods")
    _shown(stage, "get", "pods", "-o", f"custom-columns-file={COLUMNS_FILE}")
    for name, template in _templates(stage).items():
        is_right = name in found and _carries(found[name], template)
        stage.hold(is_right, f"the Pod of Job {name} does not carry what was mended")
    by_hand = found.get(BY_HAND, {}).get("spec", {}).get("restartPolicy")
    stage.hold(by_hand == "Never", f"the Pod of Job {BY_HAND} has restartPolicy {by_hand}, not Never")


def _shown(stage: Stage, *words: str) -> subprocess.CompletedProcess[str]:
    """Show a command, and the whole of its answer."""
    done = stage.kubectl(*words)
    stage.screen.gap()
    stage.screen.command(f"kubectl {' '.join(words)}")
    stage.screen.answer(done.stderr)
    stage.screen.table(done.stdout)
    return done


def _pods(stage: Stage) -> dict[str, Any]:
    """The Pod of each Job by the Job's name, as soon as all are there or patience ends."""
    expected = {BY_HAND, *_templates(stage)}
    end = time.monotonic() + _PATIENCE
    while True:
        items = stage.plane.get("pods")["items"]
        found = {pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-name"): pod for pod in items}
        if expected <= found.keys() or time.monotonic() > end:
            return found
        time.sleep(0.1)


def _templates(stage: Stage) -> dict[str, Any]:
    """The Pod template of each stored Job of the examples, as the dry run showed it, by the Job's name."""
    jobs = (admitted for admitted in stage.mended.values() if admitted["kind"] == "Job")
    return {job["metadata"]["name"]: job["spec"]["template"] for job in jobs}


def _carries(pod: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
    same = ("restartPolicy", "terminationGracePeriodSeconds")
    written = template["metadata"].get("annotations", {}).items()
    has = pod["metadata"].get("annotations", {}).items()
    return written <= has and all(pod["spec"][name] == template["spec"][name] for name in same)


def _text(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit code {done.returncode}: {(done.stderr + done.stdout).strip() or 'nothing said'}"
