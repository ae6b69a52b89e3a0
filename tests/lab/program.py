"""The programs that the experiments run, in busybox's shell, and the Jobs around them.

A program says what it does with the time of the machine's clock, so that nobody has to guess when it was.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.node.image import BUSYBOX
from webhook.source import scalar

SAY: Final = 'say() { read -r up idle < /proc/uptime; echo "$up $*"; }; '
FINISHED: Final = "finished"
MAX_TASK: Final = "drainproof.dev/max-task-duration"
MAX_RUN: Final = "drainproof.dev/max-run-duration"


def works(seconds: int, on_term: str) -> str:
    """Works for some seconds and exits 0, unless SIGTERM comes, upon which it does something."""
    return f"trap 'say SIGTERM; {on_term}' TERM; say begins; sleep {seconds} & wait $!; say {FINISHED}"


def container(script: str, name: str = "main", **more: Any) -> dict[str, Any]:
    """A container with such a program."""
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", SAY + script], **more}


def pre_stop(seconds: int) -> dict[str, Any]:
    """A hook that takes some seconds."""
    return {"preStop": {"exec": {"command": ["sleep", str(seconds)]}}}


def pod(containers: Sequence[Mapping[str, Any]], grace: int, **more: Any) -> dict[str, Any]:
    """The spec of a Pod that is not restarted in place."""
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace, "containers": [*containers]}
    return {**spec, **more}


def job(spec: Mapping[str, Any], annotations: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A Job without a name whose Pods have this spec; `more` is in the Job's."""
    template = {"metadata": {"annotations": dict(annotations)}, "spec": spec} if annotations else {"spec": spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {**more, "template": template}}


def bare(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A Pod without a name that nothing controls."""
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec}


def excerpt(document: Mapping[str, Any]) -> dict[str, Any]:
    """What of a manifest a reader wants to see."""
    return {"kind": document["kind"], "spec": _shown(document["spec"])}


def yaml(value: Mapping[str, Any], indent: str = "") -> str:
    """A manifest as YAML, in which lists of words stand on one line."""
    lines = []
    for key, member in value.items():
        if isinstance(member, dict):
            lines += [f"{indent}{key}:", yaml(member, indent + "  ")]
        elif isinstance(member, list) and any(isinstance(item, dict) for item in member):
            items = (yaml(item, indent + "    ") for item in member)
            lines += [f"{indent}{key}:", *(f"{indent}  - {item.lstrip()}" for item in items)]
        else:
            lines.append(f"{indent}{scalar.written(key)}: {scalar.flow(member, as_json=False)}")
    return "\n".join(lines)


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(member) for key, member in value.items() if key != "image"}
    return value.removeprefix(SAY) if isinstance(value, str) else value
