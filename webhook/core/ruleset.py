"""A policy as the engine goes by it: rules and their settings, by namespace and kind of object."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from webhook.core.place import NODE_POOL
from webhook.core.rule import Context, Level, Place, Rule
from webhook.core.workload import Workload

API_VERSION: Final = "drainproof.dev/v1"
OWNERS: Final = ("CronJob", "ScaledJob")


class Mode(StrEnum):
    """Whether the policy acts, or only says what it would do."""

    ENFORCE = "enforce"
    MONITOR = "monitor"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy says of one rule."""

    level: Level
    fix: bool
    options: Any


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The rules with their settings as they are in force in some namespaces."""

    settings: Mapping[str, Setting]
    rules: Mapping[str, tuple[Rule, ...]]  # by the kind of object, in the order in which they run
    context: Context


@dataclass(frozen=True, slots=True)
class Override:
    """Settings for the namespaces that match one of the globs."""

    namespaces: tuple[str, ...]
    ruleset: Ruleset


@dataclass(frozen=True, slots=True)
class Exemption:
    """Objects with which no rule has to do. An empty list of globs says nothing; all that is said must match."""

    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    reason: str = ""

    def covers(self, workload: Workload, namespace: str) -> bool:
        """Whether an object is exempt."""
        facts = (
            (self.namespaces, namespace),
            (self.kinds, workload.kind.name),
            (self.names, workload.name),
            (self.owners, workload.controller),
        )
        return all(not globs or matches(globs, text) for globs, text in facts)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the controller found out about the cluster; a policy that says `auto` goes by it."""

    karpenter: tuple[int, int, int] | None = None
    node_pools: tuple[tuple[str, int], ...] = ()  # name and terminationGracePeriod in seconds


@dataclass(frozen=True, slots=True)
class Policy:
    """What the engine goes by."""

    ruleset: Ruleset
    mode: Mode = Mode.ENFORCE
    owners: frozenset[str] = frozenset(OWNERS)
    overrides: tuple[Override, ...] = ()
    exempt: tuple[Exemption, ...] = ()
    follows_version: bool = True  # karpenter.version is auto
    follows_pools: bool = True  # platform.nodepools is auto
    document: Mapping[str, Any] = field(default_factory=dict)

    def ruleset_for(self, namespace: str) -> Ruleset:
        """The rules in force in a namespace: those of the first override that names it, else the policy's own."""
        for override in self.overrides:
            if matches(override.namespaces, namespace):
                return override.ruleset
        return self.ruleset

    def exemption(self, workload: Workload, namespace: str) -> Exemption | None:
        """The first exemption that covers an object; None without one."""
        return next((one for one in self.exempt if one.covers(workload, namespace)), None)

    def with_facts(self, facts: Facts) -> "Policy":
        """The policy with what is known of the cluster where it says `auto`."""
        changed: dict[str, Any] = {}
        if self.follows_version and facts.karpenter is not None:
            changed["karpenter"] = facts.karpenter
        if self.follows_pools:
            pools = tuple(node_pool(name, seconds) for name, seconds in facts.node_pools)
            changed["places"] = (*self.ruleset.context.places, *pools)
        if not changed:
            return self
        return replace(
            self,
            ruleset=_in_context(self.ruleset, changed),
            overrides=tuple(replace(one, ruleset=_in_context(one.ruleset, changed)) for one in self.overrides),
        )


def node_pool(name: str, seconds: int) -> Place:
    """The place that a Karpenter NodePool with a terminationGracePeriod is."""
    return Place(f"NodePool {name}", seconds, ((NODE_POOL, name),), node_pool=name)


def matches(globs: tuple[str, ...], text: str) -> bool:
    """Whether a text matches one of the globs (`*`, `?` and `[abc]`, with small and capital letters apart)."""
    return any(fnmatchcase(text, glob) for glob in globs)


def _in_context(ruleset: Ruleset, changed: dict[str, Any]) -> Ruleset:
    return replace(ruleset, context=replace(ruleset.context, **changed))
