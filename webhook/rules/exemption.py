"""An exemption needs a reason, and the name of a rule that exists.

`drainproof.dev/ignore: "<reason>"` on an object or on its Pod template exempts it from every rule, and
`drainproof.dev/ignore.<rule>: "<reason>"` from one. The reason is what a colleague reads a year later, so an
empty one does not count: the object is treated as if the annotation were not there, and this rule says so. It
also names an exemption from a rule that does not exist, most often a misspelled one, for the rule that was
meant still applies; and one from disruption-stamp that no Pod carries, for of a deletion only the Pod is seen.

**Limits.** Whether a reason is a good one cannot be seen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from webhook.core.declaration import IGNORE
from webhook.core.option import nearest
from webhook.core.patch import Path
from webhook.core.rule import Context, Finding, Level, Rule
from webhook.core.stamp import RULE_ID as STAMP_RULE
from webhook.core.workload import BATCH, EVERY, Workload


@dataclass(frozen=True, slots=True)
class Options:
    """Nothing can be set."""


def check(workload: Workload, options: Options, context: Context) -> Iterator[Finding]:
    """Finds exemptions that have no effect."""
    for key, (path, value) in workload.declarations.items():
        if key != IGNORE and not key.startswith(f"{IGNORE}."):
            continue
        rule = key[len(IGNORE) + 1 :]
        if rule and rule not in context.options:
            yield Finding(path, f"there is no such rule; {_meant(rule, context)}", advice=True)
        elif not isinstance(value, str) or not value.strip():
            yield Finding(path, "it gives no reason, so it does not count; write why the object is exempt", advice=True)
        elif rule == STAMP_RULE and rule in context.mending and _is_unseen(workload, path):
            text = "no Pod carries it, so its Pods are stamped all the same; write it on the Pod template"
            yield Finding(path, text, advice=True)


def _is_unseen(workload: Workload, path: Path) -> bool:
    """Whether an annotation of a Job, or of what makes Jobs, is on none of its Pods."""
    return workload.kind.name in BATCH and path[:-2] != (*(workload.kind.template or ()), "metadata")


def _meant(rule: str, context: Context) -> str:
    near = nearest(rule, context.options)
    return f"did you mean {near}?" if near else "drainproof explain lists those that there are"


RULE: Final = Rule("exemption", check, Options, Level.WARN, fix=None, kinds=EVERY, exemptible=False)
