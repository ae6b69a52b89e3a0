"""What the API server could not decode: fields of the wrong type, each with what to write."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from webhook.core.patch import Path, dotted
from webhook.core.rule import quoted
from webhook.core.workload import KINDS, whole

Shape = str | list[Any] | dict[str, Any]
"""A word of _TEXTS_OF, a list with the shape of its items, or a map; the key `*` stands for every member."""

_INT32: Final = "a whole number of at most 32 bits"
_INT64: Final = "a whole number of at most 64 bits"
_TEXT: Final = "a text"
_FLAG: Final = "true or false"
_QUOTED: Final[Shape] = {"*": _TEXT}

_METADATA: Final[Shape] = {
    **dict.fromkeys(("name", "generateName", "namespace", "uid", "deletionTimestamp"), _TEXT),
    "annotations": _QUOTED,
    "labels": _QUOTED,
    "finalizers": [_TEXT],
    "ownerReferences": [
        {
            **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
            "controller": _FLAG,
            "blockOwnerDeletion": _FLAG,
        }
    ],
}
_HOOK: Final[Shape] = {
    "exec": {"command": [_TEXT]},
    "httpGet": {"path": _TEXT},
    "sleep": {"seconds": _INT64},
    "tcpSocket": {},
}
_CONTAINER: Final[Shape] = {
    **dict.fromkeys(("name", "image", "restartPolicy", "workingDir", "imagePullPolicy"), _TEXT),
    "command": [_TEXT],
    "args": [_TEXT],
    "env": [{"name": _TEXT, "value": _TEXT}],
    "lifecycle": {"preStop": _HOOK, "postStart": _HOOK},
    "volumeMounts": [{"name": _TEXT, "mountPath": _TEXT, "readOnly": _FLAG}],
    "ports": [{"name": _TEXT, "containerPort": _INT32, "hostPort": _INT32, "protocol": _TEXT}],
}
_POD: Final[Shape] = {
    **dict.fromkeys(("restartPolicy", "serviceAccountName", "nodeName", "priorityClassName", "schedulerName"), _TEXT),
    "terminationGracePeriodSeconds": _INT64,
    "activeDeadlineSeconds": _INT64,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "nodeSelector": _QUOTED,
    "tolerations": [{**dict.fromkeys(("key", "operator", "value", "effect"), _TEXT), "tolerationSeconds": _INT64}],
    "volumes": [{"name": _TEXT, "emptyDir": {}, "ephemeral": {}}],
}
_TEMPLATE: Final[Shape] = {"metadata": _METADATA, "spec": _POD}
_JOB: Final[Shape] = {
    **dict.fromkeys(
        (
            "parallelism",
            "completions",
            "backoffLimit",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
            "ttlSecondsAfterFinished",
        ),
        _INT32,
    ),
    **dict.fromkeys(("completionMode", "podReplacementPolicy", "managedBy"), _TEXT),
    "activeDeadlineSeconds": _INT64,
    "suspend": _FLAG,
    "manualSelector": _FLAG,
    "podFailurePolicy": {
        "rules": [
            {
                "action": _TEXT,
                "onExitCodes": {"containerName": _TEXT, "operator": _TEXT, "values": [_INT32]},
                "onPodConditions": [{"type": _TEXT, "status": _TEXT}],
            }
        ]
    },
    "template": _TEMPLATE,
}
_CRON_JOB: Final[Shape] = {
    **dict.fromkeys(("schedule", "timeZone", "concurrencyPolicy"), _TEXT),
    **dict.fromkeys(("startingDeadlineSeconds",), _INT64),
    **dict.fromkeys(("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), _INT32),
    "suspend": _FLAG,
    "jobTemplate": {"metadata": _METADATA, "spec": _JOB},
}
_SERVICE: Final[Shape] = {"template": _TEMPLATE, "replicas": _INT32, "minReadySeconds": _INT32}
_SPECS: Final[dict[str, Shape]] = {"Job": _JOB, "CronJob": _CRON_JOB, "Pod": _POD}


def complaints(document: Mapping[str, Any], written: Callable[[Path], str]) -> Iterator[tuple[Path, str]]:
    """The fields of an object of a known kind that are of the wrong type: the path, and what to say of it.

    `written` gives what the author wrote at a path: `yes`, where the value is true.
    Only fields that rules read, and those beside them that are most often mistaken, are looked at.
    """
    kind = KINDS.get((str(document.get("apiVersion")).rpartition("/")[0], str(document.get("kind"))))
    if kind is not None:
        shape: Shape = {"metadata": _METADATA, "spec": _SPECS.get(kind.name, _SERVICE)}
        for path, value, wanted in _misfits(document, shape, ()):
            yield path, _said(value, wanted, written(path))


def _misfits(value: Any, shape: Shape, path: Path) -> Iterator[tuple[Path, Any, str]]:
    """Each value that has not the shape it needs, and what it has to be."""
    if value is None:
        return
    if isinstance(shape, dict) and isinstance(value, Mapping):
        for key, member in value.items():
            inner = shape.get(key, shape.get("*"))
            if inner is not None:
                yield from _misfits(member, inner, (*path, key))
    elif isinstance(shape, list) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misfits(item, shape[0], (*path, index))
    elif not isinstance(shape, str):
        yield path, value, "a map" if isinstance(shape, dict) else "a list"
    elif not _fits(value, shape):
        yield path, value, shape


def _fits(value: Any, shape: str) -> bool:
    if shape == _TEXT:
        return isinstance(value, str)
    if shape == _FLAG:
        return isinstance(value, bool)
    limit = 2**31 if shape == _INT32 else 2**63
    return whole(value) and -limit <= value < limit


def _said(value: Any, wanted: str, written: str) -> str:
    if wanted == _TEXT and isinstance(value, bool | int | float):
        text = written or quoted(value)
        return (
            f'{text} is {"a boolean" if isinstance(value, bool) else "a number"} and must be a text; quote it: "{text}"'
        )
    if wanted in (_INT32, _INT64, _FLAG) and isinstance(value, str):
        return f"{quoted(value)} is a text; write {wanted}, without quotes"
    if wanted in (_INT32, _INT64) and whole(value):
        return f"{quoted(value)} is too {'large' if value > 0 else 'small'}; write {wanted}"
    return f"{quoted(value)} is not allowed; write {wanted}"


def sentence(path: Path, text: str) -> str:
    """A complaint with the field in front."""
    return f"{dotted(path)}: {text}" if path else text
