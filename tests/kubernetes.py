"""What kube-apiserver 1.37.2 refuses in a Job, written a second time and only for tests.

Source: pkg/apis/batch/validation/validation.go and pkg/apis/core/validation/validation.go, where the rules go near it.
Texts follow the field and the kind of error, so that a test can compare two lists of them.
"""

from itertools import pairwise
from typing import Any


def refusals(document: Any) -> list[str]:
    """Why a Job (or the Jobs of a CronJob) would be refused; nothing where it would be accepted."""
    if document["kind"] == "Job":
        return _job(document.get("spec") or {}, is_defaulted=True) + _annotations(document)
    if document["kind"] == "CronJob":
        return _job(document["spec"]["jobTemplate"].get("spec") or {}, is_defaulted=False) + _annotations(document)
    spec = document.get("spec") or {}
    if document["kind"] == "PodDisruptionBudget":
        expressions = (spec.get("selector") or {}).get("matchExpressions") or []
        return ["selector: invalid" for expression in expressions if not expression.get("key")]
    return _annotations(document) + _pod_spec(spec if document["kind"] == "Pod" else spec["template"].get("spec") or {})


def _annotations(document: Any) -> list[str]:
    spec = document.get("spec") or {}
    template = (spec.get("jobTemplate", {}).get("spec", {}) if document["kind"] == "CronJob" else spec).get(
        "template"
    ) or {}
    found = []
    for metadata in (document.get("metadata") or {}, template.get("metadata") or {}):
        annotations = metadata.get("annotations") or {}
        if not all(isinstance(value, str) for value in annotations.values()):
            return ["metadata.annotations: not decodable"]
        if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > 256 * 1024:
            found.append("metadata.annotations: too long")
    return found


def _job(spec: Any, is_defaulted: bool) -> list[str]:
    pod = (spec.get("template") or {}).get("spec") or {}
    policy = spec.get("podFailurePolicy")
    found = _pod_spec(pod)
    if policy is not None and pod.get("restartPolicy") != "Never":
        found.append("restartPolicy: only Never with podFailurePolicy")
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        found.append("restartPolicy: not supported")
    replacement = spec.get("podReplacementPolicy")
    if replacement is None and is_defaulted:
        replacement = "Failed" if policy is not None else "TerminatingOrFailed"
    if replacement not in (("Failed", None) if policy is not None else ("Failed", "TerminatingOrFailed", None)):
        found.append("podReplacementPolicy: not supported")
    rules = (policy or {}).get("rules") or []
    if not isinstance(rules, list):
        return ["rules: not decodable"]
    if len(rules) > 20:
        found.append("rules: too many")
    return found + [text for rule in rules for text in _rule(rule, spec, pod)]


def _rule(rule: Any, spec: Any, pod: Any) -> list[str]:
    found = []
    if rule.get("action") not in ("Ignore", "FailJob", "FailIndex", "Count"):
        found.append("action: not supported")
    if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        found.append("action: FailIndex without backoffLimitPerIndex")
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
    if (codes is None) == (not conditions):
        found.append("rule: exactly one of onExitCodes and onPodConditions")
    if len(conditions) > 20:
        found.append("onPodConditions: too many")
    if any(" " in c.get("type", "") for c in conditions):
        found.append("type: no qualified name")
    if any(c.get("status", "True") not in ("True", "False", "Unknown") for c in conditions):
        found.append("status: not supported")
    return found + (_codes(codes, pod) if codes is not None else [])


def _codes(codes: Any, pod: Any) -> list[str]:
    found = []
    values = codes.get("values") or []
    names = {c.get("name") for field in ("containers", "initContainers") for c in pod.get(field) or []}
    if codes.get("operator") not in ("In", "NotIn"):
        found.append("operator: not supported")
    if not 1 <= len(values) <= 255 or any(a >= b for a, b in pairwise(values)):
        found.append("values: 1 to 255, ascending, each once")
    if codes.get("operator") == "In" and 0 in values:
        found.append("values: no 0 with In")
    if codes.get("containerName") is not None and codes["containerName"] not in names:
        found.append("containerName: not found")
    return found


def _pod_spec(pod: Any) -> list[str]:
    grace = pod.get("terminationGracePeriodSeconds", 30)
    containers = [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]
    hooks = [hook for c in containers if (hook := (c.get("lifecycle") or {}).get("preStop")) is not None]
    seconds = [hook["sleep"].get("seconds", 0) for hook in hooks if hook.get("sleep")]
    if not all(isinstance(number, int) for number in (grace, *seconds)):
        return ["seconds: not decodable"]
    found = ["preStop: no handler" for hook in hooks if not hook]
    if any(not t.get("key") and t.get("operator") != "Exists" for t in pod.get("tolerations") or []):
        found.append("tolerations: every key only with Exists")
    if not pod.get("containers"):
        found.append("containers: required")
    return found + ["sleep: longer than the grace period" for number in seconds if number > grace]
