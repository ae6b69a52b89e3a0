"""The JSON Schema of a policy document, made from the rules' own options, so that editors know what can be written."""

import typing
from collections.abc import Iterable
from typing import Any, Final, Literal

from webhook.core import page
from webhook.core.cluster import PLATFORMS
from webhook.core.duration import SECOND, UNITS
from webhook.core.option import LARGEST, Duration
from webhook.core.rule import Level, Rule
from webhook.core.ruleset import API_VERSION, OWNERS, Mode
from webhook.core.workload import EVERY

Json = dict[str, Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ID: Final = f"https://{API_VERSION}/policy.schema.json"
FACTS_ID: Final = f"https://{API_VERSION}/facts.schema.json"

SAYS: Final = {
    "mode": "whether the policy acts (enforce), or changes and refuses nothing and logs what it would do (monitor)",
    "owners": "the kinds of controllers whose Jobs are looked at; a Job of any other controller is left alone",
    "cronJobs.fix": "whether CronJobs are rewritten as well as their Jobs; what Git holds then shows as drift for ever",
    "karpenter.version": "the version that runs: auto (as found in the cluster), none, or one such as 1.12.0",
    "platform": "how long the places where Pods run let them stop; what is not stated is not guessed",
    "platform.spot": "what a Spot instance grants after its notice of interruption",
    "platform.cluster-autoscaler": "what cluster-autoscaler grants (its --max-graceful-termination-sec)",
    "platform.node-shutdown": "what the kubelet grants when its machine shuts down (its shutdownGracePeriod)",
    "platform.nodepools": "the terminationGracePeriod of each Karpenter NodePool, or auto: as found in the cluster",
    "rules": "what becomes of the findings of each rule, and its options",
    "overrides": "other settings for some namespaces; the first one that matches counts, on top of rules",
    "exempt": "objects with which no rule has to do; everything that an entry says must match",
}
LEVEL: Final = "what becomes of a finding: ignore (nothing is said), warn, or deny (the object is refused)"
FIX: Final = "whether objects are mended"

_NUMBER: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_LENGTH: Final = rf"^(?:[0-9]{{1,11}}|\+?0|\+?(?:{_NUMBER}(?:{'|'.join(UNITS)}))+)$"
_VERSION: Final = r"^v?[0-9]{1,6}\.[0-9]{1,6}\.[0-9]{1,6}$"
_DURATION: Final[Json] = {"$ref": "#/$defs/duration"}
_GLOBS: Final[Json] = {"$ref": "#/$defs/globs"}
_LENGTHS: Final[Json] = {
    "description": "a duration such as 90s, 10m or 1h30m, or whole seconds",
    "anyOf": [
        {"type": "string", "pattern": _LENGTH},
        {"type": "integer", "minimum": 0, "maximum": ((1 << 62) - 1) // SECOND},
    ],
}


def schema(rules: Iterable[Rule]) -> Json:
    """The schema of a policy document under these rules, in draft 2020-12."""
    return {
        "$schema": DIALECT,
        "$id": ID,
        "title": "Policy of drainproof",
        "description": "What drainproof says and mends in a cluster. What is not written has its default.",
        **_document("Policy", _sections()),
        "$defs": {
            "duration": _LENGTHS,
            "globs": {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
            "rules": _map({rule.id: _rule(rule) for rule in rules}, SAYS["rules"]),
        },
    }


def facts_schema() -> Json:
    """The schema of a facts document, in which the controller writes down what it finds in the cluster."""
    return {
        "$schema": DIALECT,
        "$id": FACTS_ID,
        "title": "Facts for drainproof",
        "description": "What is known of a cluster; a policy that says auto goes by it.",
        **_document(
            "Facts",
            {
                "karpenter": _map({"version": {"anyOf": [{"type": "string", "pattern": _VERSION}, {"type": "null"}]}}),
                "nodepools": _node_pools(SAYS["platform.nodepools"]),
            },
        ),
        "$defs": {"duration": _LENGTHS},
    }


def _document(kind: str, sections: Json) -> Json:
    head = {"apiVersion": {"const": API_VERSION}, "kind": {"const": kind}}
    return {
        "type": "object",
        "required": list(head),
        "properties": {**head, **sections},
        "additionalProperties": False,
    }


def _map(properties: Json, description: str = "") -> Json:
    """A section: a map of what it knows, or nothing."""
    said = {"description": description} if description else {}
    return {**said, "type": ["object", "null"], "properties": properties, "additionalProperties": False}


def _one_of(words: Iterable[str], default: str, description: str) -> Json:
    return {"description": description, "enum": list(words), "default": default}


def _flag(default: bool, description: str) -> Json:
    return {"description": description, "type": "boolean", "default": default}


def _sections() -> Json:
    version = {"anyOf": [{"enum": ["auto", "none"]}, {"type": "string", "pattern": _VERSION}], "default": "auto"}
    return {
        "mode": _one_of(Mode, Mode.ENFORCE, SAYS["mode"]),
        "owners": {**_names(), "description": SAYS["owners"], "default": list(OWNERS)},
        "cronJobs": _map({"fix": _flag(False, SAYS["cronJobs.fix"])}),
        "karpenter": _map({"version": {"description": SAYS["karpenter.version"], **version}}),
        "platform": _platform(),
        "rules": {"$ref": "#/$defs/rules"},
        "overrides": _list(SAYS["overrides"], _override()),
        "exempt": _list(SAYS["exempt"], _exemption()),
    }


def _list(description: str, item: Json) -> Json:
    return {"description": description, "type": ["array", "null"], "items": item}


def _names() -> Json:
    return {"type": "array", "items": {"type": "string", "minLength": 1}}


def _node_pools(description: str, *also: Json) -> Json:
    limits = {"type": ["object", "null"], "additionalProperties": _DURATION}
    return {"description": description, **({"anyOf": [*also, limits]} if also else limits)}


def _platform() -> Json:
    places = {name: {"description": SAYS[f"platform.{name}"], **_DURATION} for name in PLATFORMS}
    pools = _node_pools(SAYS["platform.nodepools"], {"const": "auto"})
    return _map({**places, "nodepools": pools}, SAYS["platform"])


def _override() -> Json:
    namespaces = {**_GLOBS, "description": "the namespaces, as globs such as team-*"}
    rules = {"$ref": "#/$defs/rules"}
    return {
        "type": "object",
        "required": ["namespaces"],
        "properties": {"namespaces": namespaces, "rules": rules},
        "additionalProperties": False,
    }


def _exemption() -> Json:
    kinds = {"enum": sorted(EVERY), "description": "a kind"}
    globs = {"type": "string", "pattern": r"[*?\[]", "description": "a glob"}
    which = {
        "namespaces": {**_GLOBS, "description": "the namespaces, as globs"},
        "kinds": {"type": "array", "minItems": 1, "items": {"anyOf": [kinds, globs]}},
        "names": {**_GLOBS, "description": "the objects' own names, as globs"},
        "owners": {**_GLOBS, "description": "the kinds of the objects' controllers, as globs"},
    }
    reason = {"description": "why; it is logged and counted", "type": "string", "pattern": r"\S"}
    return {
        "type": "object",
        "properties": {**which, "reason": reason},
        "anyOf": [{"required": [name]} for name in which],
        "additionalProperties": False,
    }


def _rule(rule: Rule) -> Json:
    options = {
        one.name: {"description": one.says, **_option(one.kind), "default": one.default} for one in page.entries(rule)
    }
    fix = {} if rule.fix is None else {"fix": _flag(rule.fix, FIX)}
    return _map({"level": _one_of(Level, rule.level, LEVEL), **fix, **options}, page.summary(rule))


def _option(kind: Any) -> Json:
    """What an option of a type takes, as webhook.core.option.value_of reads it."""
    if kind is Duration:
        return dict(_DURATION)
    if page.is_optional(kind):
        return {"anyOf": [{"const": "none"}, _DURATION]}
    if typing.get_origin(kind) is Literal:
        return {"enum": list(typing.get_args(kind))}
    if typing.get_origin(kind) is tuple:
        return _names()
    if kind is int:
        return {"type": "integer", "minimum": 0, "maximum": LARGEST}
    return {"type": "boolean"} if kind is bool else {"type": "string", "pattern": r"\S"}
