"""What a container does with its grace period: the preStop hook first, then the program's own end.

Kubernetes 1.37.2 pkg/kubelet/kuberuntime/kuberuntime_container.go `killContainer`: the hooks of all containers
start together, each container's hook is deducted from its own grace, and SIGKILL comes when that is used up.
"""

import math
from dataclasses import dataclass

from webhook.core import declaration, duration
from webhook.core.declaration import declared
from webhook.core.patch import entries, mapping
from webhook.core.shell import Nanoseconds, certain_sleep
from webhook.core.workload import Container, Workload, whole


@dataclass(frozen=True, slots=True)
class PreStop:
    """A container's preStop hook: what kind it is, and how long it takes at least (None: unknown)."""

    handler: str
    length: Nanoseconds | None


def pre_stop(workload: Workload, container: Container) -> PreStop | None:
    """The hook of a container; None where it has none. A declared duration counts where it is the longer one."""
    hook = mapping(container.spec, "lifecycle", "preStop")
    handler = next((name for name in ("exec", "httpGet", "sleep", "tcpSocket") if isinstance(hook.get(name), dict)), "")
    if not handler:
        return None
    if handler == "sleep":
        seconds = mapping(hook, "sleep").get("seconds", 0)
        return PreStop(handler, max(seconds, 0) * duration.SECOND if whole(seconds) else None)
    if (
        handler == "tcpSocket"
    ):  # passes validation, and the kubelet has no handler for it (pkg/kubelet/lifecycle/handlers.go)
        return PreStop(handler, 0)
    known = certain_sleep(entries(hook, "exec", "command")) if handler == "exec" else None
    said = declared(workload, declaration.PRE_STOP, container)
    lengths = [length for length in (known, said.length if said else None) if length is not None]
    return PreStop(handler, max(lengths) if lengths else None)


@dataclass(frozen=True, slots=True)
class Need:
    """What one container needs from the start of its termination to its end. Lengths are in nanoseconds."""

    container: Container
    hook: PreStop | None
    task: int | None  # as declared; None: nothing is declared
    margin: int

    @property
    def before(self) -> Nanoseconds:
        """How long the hook certainly takes before the program is asked to stop."""
        return self.hook.length or 0 if self.hook else 0

    @property
    def is_known(self) -> bool:
        """Whether the task is declared and the hook, where there is one, is of known length."""
        return self.task is not None and (self.hook is None or self.hook.length is not None)

    @property
    def total(self) -> Nanoseconds:
        """Hook, task and margin together."""
        return self.before + (self.task or 0) + self.margin


def needs(workload: Workload, margin: int) -> list[Need]:
    """What each container that can be asked to stop needs. A sidecar has no task but one declared by its name."""
    return [
        Need(container, pre_stop(workload, container), _task(workload, container), margin)
        for container in (*workload.containers, *workload.sidecars)
    ]


def _task(workload: Workload, container: Container) -> int | None:
    said = declared(workload, declaration.TASK, container)
    return said.length if said else None


def covering(nanoseconds: Nanoseconds) -> int | None:
    """The smallest terminationGracePeriodSeconds that is longer than `nanoseconds`; None where there is none."""
    return None if math.isinf(nanoseconds) else int(nanoseconds // duration.SECOND) + 1
