"""The grace period must be longer than the preStop hook and the declared task together.

When a Pod is asked to stop, its grace period starts to run, and the preStop hook runs first. Only what is left
reaches the program: with a hook of 5 s and a grace period of 30 s, a task that needs 28 s is killed 3 s before
it ends.

Each container is looked at by itself, for hooks run side by side: `preStop + task <
terminationGracePeriodSeconds`, with the option `margin` on top. The task time is what the author declares in
`drainproof.dev/max-task-duration` (for the main container) or `drainproof.dev/max-task-duration.<container>`,
as a duration such as `25s` or `1m30s` or in whole seconds. How long a `sleep` hook takes is known, and so it is of
an `exec` hook that plainly does nothing but sleep. For any other one declare `drainproof.dev/pre-stop-duration`; else
it counts 0, and a warning says so.

**What the fix does.** Off by default. With `fix: true` the grace period is raised to what is needed, never
above `max`.

**Limits.** Without a declaration nothing is refused; a hook as long as the whole grace period is warned about.
What the platform grants may be less than what the Pod asks for: two minutes on Spot, ten under
cluster-autoscaler. The name of an annotation has room for 45 characters of a container's name.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from webhook.core import declaration, duration
from webhook.core.declaration import length
from webhook.core.grace import Need, covering, needs
from webhook.core.option import Duration
from webhook.core.patch import Path, Put
from webhook.core.rule import Context, Finding, Level, Rule, quoted
from webhook.core.shell import Nanoseconds
from webhook.core.workload import PODS, PREFIX, Workload

SHOWN: Final = 2  # names of containers in one message
FIELD: Final = "terminationGracePeriodSeconds"
LONGEST: Final = 9_223_372_036  # seconds; the kubelet computes in 64-bit nanoseconds (1.37.2 kuberuntime_container.go)


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator can set."""

    margin: Duration = field(
        default=Duration(0), metadata={"says": "time to be left between the end of the task and SIGKILL"}
    )
    max: Duration = field(
        default=Duration(600 * duration.SECOND), metadata={"says": "the longest grace period that the fix may set"}
    )


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds a grace period that cannot cover what its containers do in it."""
    yield from _declarations(workload)
    grace = workload.grace
    if grace is None:
        return
    if grace > LONGEST:
        yield Finding(
            workload.at_pod(FIELD), f"{grace} overflows the kubelet's clock; set at most {LONGEST}", advice=True
        )
    budget = needs(workload, options.margin)
    short = [need for need in budget if need.task is not None and need.total >= grace * duration.SECOND]
    for need in short:
        yield _short(workload, grace, need, _raise(workload, options, max(n.total for n in short)))
    for need in budget:
        yield from _hook(workload, grace, need)


def _raise(workload: Workload, options: Options, most: Nanoseconds) -> tuple[Put, ...]:
    """The fix: a grace period that covers every container; none where the option `max` forbids it."""
    enough = covering(most)
    if enough is None or enough * duration.SECOND > options.max:
        return ()
    return (Put(workload.at_pod(FIELD), enough, recorded=True),)


def _short(workload: Workload, grace: int, need: Need, fix: tuple[Put, ...]) -> Finding:
    path, enough = workload.at_pod(FIELD), covering(need.total)
    late = need.total - grace * duration.SECOND
    killed = "SIGKILL comes before it ends" if math.isinf(late) else f"SIGKILL comes {_length(late)} too early"
    killed = killed if late else "SIGKILL comes as it ends"
    text = f"{grace} cannot cover container {quoted(need.container.name)}: {_sum(need)}; {killed}"
    if enough is None or enough > LONGEST:
        return Finding(path, f"{text}; no grace period is long enough")
    becomes = "its Pods get" if workload.is_deferred else "it becomes"
    return Finding(path, f"{text}; set at least {enough}", fix, f"{text}; {becomes} {fix[0].value if fix else enough}")


def _sum(need: Need) -> str:
    """What a container needs, as the sum that a message shows."""
    terms = [("preStop", need.before if need.hook else None), ("task", need.task), ("margin", need.margin or None)]
    return " + ".join(f"{name} {_length(length)}" for name, length in terms if length is not None)


def _length(nanoseconds: Nanoseconds) -> str:
    """A length as a message gives it: in seconds, as the field does."""
    return "without end" if math.isinf(nanoseconds) else f"{int(nanoseconds) / duration.SECOND:.12g}s"


def _hook(workload: Workload, grace: int, need: Need) -> Iterator[Finding]:
    """What is to be said of a preStop hook itself."""
    hook = need.hook
    if hook is None:
        return
    path = (*need.container.path, "lifecycle", "preStop", hook.handler)
    if hook.handler == "tcpSocket":
        text = "the kubelet cannot run a tcpSocket hook, so it ends at once; use exec or sleep"
        yield Finding(path, text, advice=True)
    elif hook.length is None and need.task is not None:
        text = "how long it takes is unknown, so the grace budget cannot be verified; declare"
        yield Finding(path, f"{text} {PREFIX}{declaration.PRE_STOP}", advice=True)
    elif hook.length and hook.length >= grace * duration.SECOND and need.task is None:
        yield Finding(workload.at_pod(FIELD), _swallowed(grace, need, hook.length), advice=True)


def _swallowed(grace: int, need: Need, length: Nanoseconds) -> str:
    enough = covering(length)
    text = (
        f"{grace} is over before the preStop of container {quoted(need.container.name)} ({_length(length)}); SIGTERM "
        "is followed by SIGKILL about 2s later"
    )
    return f"{text}; set at least {enough} and the time that the program needs" if enough else f"{text}; shorten it"


def _declarations(workload: Workload) -> Iterator[Finding]:
    """Finds declarations that switch nothing on: no durations, or for containers that are not there."""
    names = {c.name for c in (*workload.containers, *workload.starters)}
    for key, (path, value) in workload.declarations.items():
        kind, _, container = key.partition(".")
        if kind not in (declaration.TASK, declaration.PRE_STOP):
            continue
        if length(value) is None:
            yield Finding(
                path,
                f"{quoted(value)} is no duration, so the grace budget is not checked; write one such as 25s or 1m30s",
            )
        elif container and container not in names:
            yield Finding(path, f"there is no container {quoted(container)}; there are {_names(names)}", advice=True)


def _names(names: set[str]) -> str:
    """The containers that there are, as many as a message has room for."""
    first = sorted(names)[:SHOWN]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(quoted(name, 30) for name in first) or "none") + more


def _rewrites(workload: Workload) -> tuple[Path, ...]:
    return (workload.at_pod(FIELD),)


RULE: Final = Rule("grace-budget", check, Options, Level.DENY, fix=False, kinds=PODS, rewrites=_rewrites)
