"""What kube-apiserver makes of a manifest before it asks a mutating webhook, as far as rules read it.

Facts: Kubernetes 1.37.2 pkg/apis/batch/v1/defaults.go and zz_generated.defaults.go, pkg/apis/core/v1/defaults.go;
fields without `omitempty` in the staging api batch/v1 and core/v1 types.go are there as null when nothing is in them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.core.patch import entries
from webhook.core.workload import DEFAULT_GRACE, view, whole

BACKOFF_LIMIT: Final = 6
BACKOFF_LIMIT_INDEXED: Final = 2**31 - 1  # where backoffLimitPerIndex counts instead
_DEEPEST: Final = 64  # levels; no field that a rule reads lies deeper
_TEXT_MAPS: Final = frozenset({"annotations", "labels", "nodeSelector"})


def defaulted(document: Any) -> Any:
    """`document` as a mutating webhook would be sent it; a document of no known kind as it is.

    The input is not changed. Where something stands that the API server could not decode, it is left standing.
    """
    workload = view(document)
    if workload is None:
        return document
    root = _decoded(document, _DEEPEST)
    kind = workload.kind
    _within(root, "metadata")
    if kind.template is not None:
        _pod(_within(root, *kind.template, "spec"), is_pod=kind.template == ())
        _within(root, *kind.template, "metadata")
    job = _within(root, *kind.job) if kind.job is not None else None
    if job is not None:
        _failure_policy(job)
        if kind.name == "Job":  # SetDefaults_Job is not applied to what a CronJob makes its Jobs from
            _job(root, job)
    return root


def _decoded(value: Any, depth: int, texts: bool = False) -> Any:
    """A copy without null members, as decoding into types and encoding again leaves it; a null text becomes empty."""
    if depth == 0:
        return value
    if isinstance(value, Mapping):
        return {
            key: "" if member is None else _decoded(member, depth - 1, key in _TEXT_MAPS)
            for key, member in value.items()
            if member is not None or texts
        }
    return [_decoded(item, depth - 1) for item in value] if isinstance(value, list) else value


def _within(root: Any, *keys: str | int) -> dict[str, Any] | None:
    """The map at `keys`, made where nothing stands; None where something else does."""
    here = root
    for key in keys:
        here = here.setdefault(key, {})
        if not isinstance(here, dict):
            return None
    return here if isinstance(here, dict) else None


def _maps(document: Any, *path: str | int) -> Iterator[dict[str, Any]]:
    return (item for item in entries(document, *path) if isinstance(item, dict))


def _fill(fields: dict[str, Any], name: str, value: Any) -> None:
    """Puts `value` where a text field is absent or empty, which a typed decode cannot tell apart."""
    if fields.get(name, "") == "":
        fields[name] = value


def _pod(spec: dict[str, Any] | None, is_pod: bool) -> None:
    if spec is None:
        return
    spec.setdefault("containers", None)
    _fill(spec, "restartPolicy", "Always")
    grace = spec.setdefault("terminationGracePeriodSeconds", DEFAULT_GRACE)
    if is_pod and whole(grace) and grace < 0:  # SetDefaults_Pod; templates keep a negative value
        spec["terminationGracePeriodSeconds"] = 1
    for volume in _maps(spec, "volumes"):
        if not volume.keys() - {"name"}:  # SetDefaults_Volume
            volume["emptyDir"] = {}


def _failure_policy(job: dict[str, Any]) -> None:
    policy = job.get("podFailurePolicy")
    if not isinstance(policy, dict):
        return
    for rule in _maps(policy, "rules"):
        if isinstance(rule.get("onExitCodes"), dict):
            rule["onExitCodes"].setdefault("values", None)
        for pattern in _maps(rule, "onPodConditions"):
            _fill(pattern, "status", "True")
    policy.setdefault("rules", None)


def _job(root: dict[str, Any], job: dict[str, Any]) -> None:
    """SetDefaults_Job."""
    if "completions" not in job and "parallelism" not in job:
        job["completions"] = 1
    job.setdefault("parallelism", 1)
    job.setdefault("backoffLimit", BACKOFF_LIMIT_INDEXED if "backoffLimitPerIndex" in job else BACKOFF_LIMIT)
    job.setdefault("completionMode", "NonIndexed")
    job.setdefault("suspend", False)
    job.setdefault("manualSelector", False)
    job.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in job else "TerminatingOrFailed")
    metadata, template = root.get("metadata"), job.get("template")
    template_metadata = template.get("metadata") if isinstance(template, dict) else None
    if isinstance(metadata, dict) and isinstance(template_metadata, dict):
        labels = template_metadata.get("labels")
        if isinstance(labels, dict) and labels and not metadata.get("labels"):
            metadata["labels"] = dict(labels)
