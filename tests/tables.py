"""The tables of tests/cases: a base object, and cases that state only a difference."""

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from webhook.core import policy, ruleset
from webhook.core.policy import Policy
from webhook.rules import RULES

CASES = Path(__file__).parent / "cases"
RECORD = "drainproof.dev/mended"
CORE = {
    *("exemption", "restart-policy", "pod-failure-policy", "pod-replacement-policy", "grace-budget", "do-not-disrupt")
}


@dataclass(frozen=True)
class Case:
    """One case: an object under a policy, what is found, and what is there after mutation.

    `found` has the rule, the level and a part of the text for each notice, in order. `after` is the object with every
    fix; `record` what it remembers of the author's values (None: it has no record).
    """

    table: str
    name: str
    given: dict[str, Any]
    old: dict[str, Any] | None
    policy: Policy
    found: list[dict[str, str]]
    after: dict[str, Any]
    record: dict[str, Any] | None
    is_status: bool = False  # the object is a Pod whose status is reported: it comes to the guard, not to mutation
    deleted_by: str = ""  # the user who deletes the object, a Pod: it comes to the stamp


def read(path: Path) -> Any:
    """The one YAML document of a file."""
    return YAML(typ="safe", pure=True).load(path)


def merged(target: Any, patch: Any) -> Any:
    """`target` with a JSON Merge Patch (RFC 7396) applied; neither argument is changed."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def applied_on(stored: Any, manifest: Any) -> Any:
    """A stored object as the API server has it after the manifest is applied again, before admission.

    What the manifest says replaces what is stored; a null is as good as absent, but for the list `rules`, which the
    API server encodes even when it is null (Kubernetes 1.37.2 api batch/v1 types.go: no omitempty).
    """
    if not isinstance(manifest, dict) or not isinstance(stored, dict):
        return manifest
    said = {key: value for key, value in manifest.items() if value is not None or key == "rules"}
    return {**stored, **{key: applied_on(stored.get(key), value) for key, value in said.items()}}


def policy_of(rules: dict[str, Any] | None = None, **sections: Any) -> Policy:
    """A policy that differs from the default in what is given."""
    document = {"apiVersion": ruleset.API_VERSION, "kind": "Policy", "rules": rules or {}, **sections}
    return policy.load(document, RULES)


def cases(table: Path) -> Iterator[Case]:
    """The cases of one table."""
    document = read(table)
    bases = document["bases"]
    for case in document["cases"]:
        base = bases[case.get("base", "job")]
        given = copy.deepcopy(merged(base, case.get("given", {})))  # `raw` below changes it in place
        if "raw" in case:  # a value that a merge patch cannot say: null
            _place(given, case["raw"]["at"], case["raw"].get("value"))
        yield Case(
            table.stem,
            case["name"],
            given,
            merged(given, case["old"]) if "old" in case else None,
            policy_of(merged(_quiet(table.stem), case.get("rules", {})), **case.get("policy", {})),
            case.get("found", []),
            merged(given, case.get("after", {})),
            case.get("record"),
            case.get("status", False),
            case.get("deleted-by", ""),
        )


def _quiet(table: str) -> dict[str, Any]:
    """What a table is not about says nothing in it: the rules that advise, and for these all the others."""
    told = CORE if table in CORE else {table}
    return {rule.id: {"level": "ignore"} for rule in RULES if rule.id not in told}


def _place(target: dict[str, Any], pointer: str, value: Any) -> None:
    *way, last = pointer.strip("/").split("/")
    for key in way:
        target = target.setdefault(key, {})
    target[last] = value


def every_case() -> list[Any]:
    """Every case of every rule's table in which an object is created or updated, as pytest parameters."""
    return [one for one in _parameters() if not one.values[0].is_status and not one.values[0].deleted_by]


def every_report() -> list[Any]:
    """Every case in which the status of a Pod is reported (`status: true`), as pytest parameters."""
    return [one for one in _parameters() if one.values[0].is_status]


def every_deletion() -> list[Any]:
    """Every case in which a Pod is deleted (`deleted-by: <user>`), as pytest parameters."""
    return [one for one in _parameters() if one.values[0].deleted_by]


def _parameters() -> list[Any]:
    found = [case for table in sorted(CASES.glob("*.yaml")) for case in cases(table)]
    return [pytest.param(case, id=f"{case.table}: {case.name}") for case in found]


def without_record(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """An object without its record, and what the record said (None: there is none)."""
    annotations = document.get("metadata", {}).get("annotations") or {}
    if RECORD not in annotations:
        return document, None
    rest = {key: value for key, value in annotations.items() if key != RECORD}
    metadata = {**document["metadata"], "annotations": rest}
    if not rest:
        del metadata["annotations"]
    return {**document, "metadata": metadata}, json.loads(annotations[RECORD])


def reviews() -> list[Any]:
    """Every captured AdmissionReview, as pytest parameters."""
    paths = sorted((CASES / "reviews").glob("*.json"))
    return [pytest.param(json.loads(path.read_text()), id=path.name.removesuffix(".mutate.json")) for path in paths]
