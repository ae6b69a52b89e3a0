"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from webhook.core.patch import Path, Wish, dotted
from webhook.core.workload import Workload

LONGEST: Final = (
    256  # characters; a longer warning may be cut (Kubernetes 1.37.2 apiserver endpoints/filters/warning.go)
)


class Level(StrEnum):
    """What validation does with a finding."""

    IGNORE = "ignore"
    WARN = "warn"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule has to say of an object.

    `text` is what stands while nothing is mended, `mended` what is said once the wishes are granted (empty: nothing
    needs saying, for only what was absent is added). `advice` findings warn and never deny.
    """

    path: Path
    text: str
    wishes: tuple[Wish, ...] = ()
    mended: str = ""
    advice: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule may know besides the object: facts that the policy states."""

    mending: frozenset[str] = frozenset()  # the rules whose fixes this object, or its Jobs, get
    heard: frozenset[str] = frozenset()  # the rules whose findings are passed on
    options: Mapping[str, Any] = field(default_factory=dict)  # of every rule, by its id
    rewrites_cron_jobs: bool = False
    karpenter: tuple[int, int, int] | None = None  # its version, where known
    without_karpenter: bool = False
    places: tuple["Place", ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where Pods may run, and what that place grants a Pod that has to go.

    `grants` is in seconds; `labels` are those by which a Pod can choose or avoid the place, none for a place that is
    anywhere. A NodePool's terminationGracePeriod is a place of its own, with `node_pool` as its name.
    """

    name: str
    grants: int
    labels: tuple[tuple[str, str], ...] = ()
    node_pool: str = ""


Check = Callable[[Workload, Any, Context], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: its id, what it checks, and what it does unless the policy says otherwise."""

    id: str
    check: Check
    options: type
    level: Level
    fix: bool | None  # None: it has nothing to mend
    kinds: frozenset[str]  # of the objects that it looks at
    exemptible: bool = True
    rewrites: Callable[[Workload], tuple[Path, ...]] = lambda _: ()  # where its fix may replace an author's value


def sentence(path: Path, text: str, rule: str) -> str:
    """A message: one line of at most 256 characters that starts with the field and ends with the rule."""
    start, end = f"{dotted(path)}: " if path else "", f" ({rule})"
    line = " ".join((start + text).split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    room = LONGEST - len(end)
    return (line if len(line) <= room else line[: room - 1] + "…") + end


def quoted(value: Any, longest: int = 40) -> str:
    """A value of the author's inside a message: in quotes when it is text, shortened when it is long."""
    if value is None or isinstance(value, bool):
        text = {None: "null", True: "true", False: "false"}[value]
    elif isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode() + '"' if not value.isprintable() else f'"{value}"'
    elif isinstance(value, int | float):
        text = f"{value}"[: longest + 1]
    else:
        text = "a list" if isinstance(value, list) else "a map"
    return text if len(text) <= longest else text[: longest - 2] + '…"'
