"""`karpenter.sh/do-not-disrupt` protects for a time that somebody chose, or it protects nothing at all.

Karpenter reads the annotation of Pods only, and exactly: `true` protects without end, so that a Job which hangs
holds its node until somebody notices; a positive Go duration (`4h`, `1h30m`) protects until the Pod has run
that long; everything else (`1d`, `True`, `90`) protects nothing, and nobody is told. Durations are read
from Karpenter v1.12.0 on; an older one takes them for no protection.

**What the fix does.** `true` on the Pods of a Job becomes a duration that is never shorter than a known upper
limit of the Pod's life: the smaller of activeDeadlineSeconds (of the Job or the Pod) and the declared
`drainproof.dev/max-run-duration` with `startup` on top, for the clock runs while images are pulled. Without
such a limit it becomes `default`; it is never longer than `max`. A bare Pod gets a known limit or keeps `true`,
for nothing would re-create it.

**Limits.** A value that protects nothing is never rewritten: what ran unprotected until today would start to
block drains. The warning suggests what was probably meant. Services are left alone: their protection would
lapse once and never come back. A duration starts anew with each replacement Pod; activeDeadlineSeconds does
not. In a NodePool with a terminationGracePeriod, protection ends with that, and the Pod may be left with a second or
two of a grace period that would have fitted. On a quiet cluster up to five minutes can pass until an elapsed duration
is noticed (Karpenter v1.15.0, which otherwise looks only when a Pod or node comes or goes).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from webhook.core import duration, protection
from webhook.core.declaration import RUN, declared
from webhook.core.option import Duration
from webhook.core.patch import Put, mapping
from webhook.core.place import landing
from webhook.core.protection import KEY, OLD_KEY
from webhook.core.rule import Context, Finding, Level, Rule, quoted
from webhook.core.workload import BATCH, PODS, Workload

FOR_EVER: Final = '"true" holds the node for ever if the Pod hangs'
HOUR: Final = 3600 * duration.SECOND


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator can set."""

    default: Duration | None = field(
        default=Duration(24 * HOUR),
        metadata={"says": "what `true` becomes on a Job without a known limit; none leaves it and warns"},
    )
    max: Duration = field(
        default=Duration(168 * HOUR), metadata={"says": "the longest protection that the fix may set"}
    )
    startup: Duration = field(
        default=Duration(HOUR // 6),
        metadata={"says": "what is added to a declared run for pulling images and starting"},
    )
    services: Literal["ignore", "warn"] = field(
        default="ignore", metadata={"says": "whether `true` on a Deployment, StatefulSet or DaemonSet is warned about"}
    )


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds protection that never ends, and protection that is none."""
    if context.without_karpenter:
        return
    value = workload.annotations.get(KEY)
    if value is None:
        yield from _elsewhere(workload)
    elif value == "true":
        yield from _unbounded(workload, options, context)
    elif value != "false":
        yield from _bounded(workload, value, options, context)
    if value is not None and value != "false":
        yield from _defeated(workload, context)


def _unbounded(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    path = workload.at_annotation(KEY)
    if not workload.is_mended:
        if options.services == "warn":
            yield Finding(path, '"true" keeps the node from being consolidated while the Pod runs; take it out')
        return
    if protection.is_before_durations(context):
        yield Finding(path, f"{FOR_EVER}; {protection.age(context)}; set activeDeadlineSeconds")
        return
    yield from _undeclared(workload, context)
    limit, why = _limit(workload, options)
    text = f"{FOR_EVER}; write a duration longer than the run, such as 4h"
    if limit is None:
        yield Finding(path, text)
        return
    length = duration.written(limit)
    becomes = f"its Pods get {length}" if workload.is_deferred else f"it becomes {length}"
    mended = f"{FOR_EVER}, so {becomes} ({why}); write the duration that the run needs"
    yield Finding(path, text, (Put(path, length, recorded=True),), mended)


def _undeclared(workload: Workload, context: Context) -> Iterator[Finding]:
    """Finds a declared run that cannot be counted with, where the rule active-deadline does not say so already."""
    run = declared(workload, RUN)
    is_said = workload.kind.name in BATCH and "active-deadline" in context.heard
    if run and run.length is None and not is_said:
        yield Finding(run.path, run.complaint)


def _limit(workload: Workload, options: Options) -> tuple[int | None, str]:
    """For how long to protect, in nanoseconds of whole seconds, and why; None where no limit is right."""
    known = list(_known_limits(workload, options))
    if known:
        limit, why = min(known)
    elif options.default is None or workload.kind.name not in BATCH:
        return None, ""
    else:
        limit, why = options.default, "the policy's default"
    limit = -(-limit // duration.SECOND) * duration.SECOND
    if limit > options.max:
        limit, why = options.max // duration.SECOND * duration.SECOND, "the policy's max"
    return (limit, why) if limit > 0 else (None, "")


def _known_limits(workload: Workload, options: Options) -> Iterator[tuple[int, str]]:
    """Every known upper limit of a Pod's life."""
    yield from protection.deadlines(workload)
    run = declared(workload, RUN)
    if run and run.length is not None:
        yield run.length + options.startup, "the declared run and its start"


def _bounded(workload: Workload, value: Any, options: Options, context: Context) -> Iterator[Finding]:
    """What is to be said of a value that is not plain `true` or `false`."""
    path, shown = workload.at_annotation(KEY), quoted(value)
    length, problem = protection.read(value)
    if problem:
        meant = duration.plain_reading(value) if isinstance(value, str) else None
        write = f'"{meant}"' if meant else '"true" or a Go duration such as "4h"'
        yield Finding(path, f"{shown} protects nothing: {problem}; write {write}")
    elif protection.is_before_durations(context):
        yield Finding(path, f'{shown} protects nothing: {protection.age(context)}; write "true"')
    else:
        yield from _measured(workload, shown, length, options)
        yield from _undeclared(workload, context)


def _measured(workload: Workload, shown: str, length: int, options: Options) -> Iterator[Finding]:
    path, run = workload.at_annotation(KEY), declared(workload, RUN)
    if length > options.max:
        most = duration.written(options.max)
        yield Finding(path, f"{shown} is longer than the {most} that the policy allows; write less")
    deadlines = [limit for limit, _ in protection.deadlines(workload)]
    if run and run.length is not None and length < min([run.length, *deadlines]):
        yield Finding(
            path,
            f"{shown} ends before the declared run of {duration.written(run.length)}; a replacement starts a new "
            "window, activeDeadlineSeconds does not; write more",
        )


def _elsewhere(workload: Workload) -> Iterator[Finding]:
    """Finds the key where Karpenter does not read it, and the key that it no longer reads."""
    template = workload.at_annotation("")[:-2]
    if OLD_KEY in workload.annotations:
        yield Finding(
            (*template, "annotations", OLD_KEY),
            f"no Karpenter since v1.0 reads it, so it protects nothing; write {KEY}",
        )
    for place in workload.kind.places:
        for part in ("annotations", "labels"):
            if KEY in mapping(workload.root, *place, part):
                where = "as an annotation of the Pod" if place == template else "in the Pod template's annotations"
                yield Finding(
                    (*place, part, KEY),
                    f"it has no effect here, for Karpenter reads only Pod annotations; write it {where}",
                )
                return


def _defeated(workload: Workload, context: Context) -> Iterator[Finding]:
    """Finds a grace period that makes Karpenter delete the Pod at the start of a drain, protected or not.

    Karpenter (commit 2266468) terminator/eviction.go `needsForceDelete`: now > end of the NodePool's limit - grace.
    """
    grace = workload.grace
    for place in context.places:
        if place.node_pool and grace is not None and grace >= place.grants and landing(workload, place):
            yield Finding(
                workload.at_pod("terminationGracePeriodSeconds"),
                f"{grace} is not below the {place.grants}s of NodePool {quoted(place.node_pool)}, so a drain deletes "
                f"the Pod at once, {KEY} or not; set less",
            )


RULE: Final = Rule(
    "do-not-disrupt",
    check,
    Options,
    Level.WARN,
    fix=True,
    kinds=PODS,
    rewrites=lambda workload: (workload.at_annotation(KEY),),
)
