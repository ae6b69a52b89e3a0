"""What a real API server answers when an object is created or applied, with our part of it told apart."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.cluster.controlplane import ControlPlane
from webhook.rules import RULES

_OURS = re.compile(rf"\(({'|'.join(rule.id for rule in RULES)})\)$")


@dataclass(frozen=True)
class Answer:
    """The object as admitted (None: it was refused), our warnings in order, and the error as kubectl shows it."""

    admitted: dict[str, Any] | None
    warnings: list[str]
    error: str

    @property
    def denied_by_us(self) -> bool:
        """Whether one of our webhooks refused the object."""
        return "drainproof.dev" in self.error and "denied the request" in self.error


def create(plane: ControlPlane, document: Mapping[str, Any], *flags: str, dry_run: bool = True) -> Answer:
    """What comes of creating `document`; nothing is stored with `dry_run`."""
    return _asked(plane, document, "create", *(["--dry-run=server"] if dry_run else []), *flags)


def apply(plane: ControlPlane, document: Mapping[str, Any], *flags: str) -> Answer:
    """What comes of `kubectl apply` with `document`, client-side unless `flags` say otherwise."""
    return _asked(plane, document, "apply", *flags)


def diff(plane: ControlPlane, document: Mapping[str, Any], *flags: str) -> str:
    """What `kubectl diff` shows; empty where applying would change nothing."""
    done = plane.kubectl("diff", "-f", "-", *flags, input=json.dumps(document), check=False)
    return done.stdout + (done.stderr if done.returncode > 1 else "")


def _asked(plane: ControlPlane, document: Mapping[str, Any], *words: str) -> Answer:
    done = plane.kubectl(*words, "-o", "json", "-f", "-", input=json.dumps(document), check=False)
    lines = done.stderr.splitlines()
    warnings = [line.removeprefix("Warning: ") for line in lines if line.startswith("Warning: ")]
    rest = "\n".join(line for line in lines if not line.startswith("Warning: "))
    return Answer(
        json.loads(done.stdout) if done.returncode == 0 else None,
        [warning for warning in warnings if _OURS.search(warning)],
        rest if done.returncode else "",
    )


def essence(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of an object that rules read or change, as they stand in a Job, a Pod or a template."""
    spec = document.get("spec") or {}
    job = spec.get("jobTemplate", {}).get("spec", {}) if document["kind"] == "CronJob" else spec
    pod = spec if document["kind"] == "Pod" else (job.get("template") or {}).get("spec") or {}
    metadata = document["metadata"] if document["kind"] == "Pod" else (job.get("template") or {}).get("metadata") or {}
    return {
        "record": json.loads((document["metadata"].get("annotations") or {}).get("drainproof.dev/mended", "null")),
        "podFailurePolicy": job.get("podFailurePolicy"),
        "podReplacementPolicy": job.get("podReplacementPolicy"),
        "restartPolicy": pod.get("restartPolicy"),
        "terminationGracePeriodSeconds": pod.get("terminationGracePeriodSeconds"),
        "annotations": {
            key: value
            for key, value in (metadata.get("annotations") or {}).items()
            if key != "kubectl.kubernetes.io/last-applied-configuration" and key != "drainproof.dev/mended"
        },
    }
