"""What kustomize makes of deploy/, as objects."""

import os
import subprocess
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests.cluster import programs

ROOT: Final = Path(__file__).resolve().parents[1]
DEPLOY: Final = ROOT / "deploy"
OVERLAYS: Final = ("cluster-wide", "namespace-opt-in", "cert-manager", "monitoring")

Objects = dict[tuple[str, str], dict[str, Any]]


def rendered(folder: Path) -> str:
    """The text that `kubectl kustomize` makes of a folder."""
    done = subprocess.run(
        [programs.find()["kubectl"].path, "kustomize", folder], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def objects(text: str) -> Objects:
    """The objects of a YAML stream by kind and name, with CEL expressions and the policy in a form that compares."""
    found = [one for one in YAML(typ="safe").load_all(text) if one]
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    for webhook in (webhook for one in found for webhook in one.get("webhooks", [])):
        for condition in webhook.get("matchConditions", []):
            condition["expression"] = " ".join(condition["expression"].split())
    policy = named.get(("ConfigMap", "drainproof-policy"))
    if policy:
        policy["data"]["policy.yaml"] = YAML(typ="safe").load(policy["data"]["policy.yaml"])
    return named


def composed(folder: Path, *components: str) -> str:
    """What the base with these components renders to; `folder` is an empty one, for a kustomization."""
    deploy = os.path.relpath(DEPLOY, folder.resolve())
    lines = [f"resources: [{deploy}/base]", "components:", *(f"  - {deploy}/components/{name}" for name in components)]
    (folder / "kustomization.yaml").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return rendered(folder)


def stamp() -> dict[str, Any]:
    """The webhook that the component disruption-stamp adds, as it is written."""
    ((step,),) = YAML(typ="safe").load_all(DEPLOY / "components" / "disruption-stamp" / "stamp.yaml")
    assert (step["op"], step["path"]) == ("add", "/webhooks/-")
    webhook: dict[str, Any] = step["value"]
    return webhook
