"""The policy document: what an operator may set, read with every problem at once."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from webhook.core import duration, option
from webhook.core.patch import Path, dotted, mapping
from webhook.core.rule import Context, Level, Rule, quoted

API_VERSION: Final = "drainproof.dev/v1"
OWNERS: Final = ("CronJob", "ScaledJob")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy says of one rule."""

    level: Level
    fix: bool
    options: Any


@dataclass(frozen=True, slots=True)
class Policy:
    """What the engine goes by. Rules run in the order in which they stand here."""

    rules: tuple[Rule, ...]
    settings: Mapping[str, Setting]
    owners: frozenset[str]
    context: Context


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a policy document."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.path) or 'the document'}: {self.text}"


class PolicyError(ValueError):
    """A policy document that cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def default(rules: Iterable[Rule]) -> Policy:
    """The policy in force when nobody writes one."""
    return load({"apiVersion": API_VERSION, "kind": "Policy"}, rules)


def load(document: Any, rules: Iterable[Rule]) -> Policy:
    """The policy that a document states. Raises PolicyError with every problem in it."""
    reader = _Reader(tuple(rules), [])
    policy = reader.policy(document)
    if reader.problems:
        raise PolicyError(reader.problems)
    return policy


@dataclass(frozen=True, slots=True)
class _Reader:
    rules: tuple[Rule, ...]
    problems: list[Problem]

    def policy(self, document: Any) -> Policy:
        if not isinstance(document, dict):
            self.complain((), "it must be a map with apiVersion, kind and rules")
            document = {"apiVersion": API_VERSION, "kind": "Policy"}
        self.known(
            (), document, ("apiVersion", "kind", "owners", "cronJobs", "karpenter", "platform", "rules"), "field"
        )
        for name, right in (("apiVersion", API_VERSION), ("kind", "Policy")):
            if document.get(name) != right:
                self.complain((name,), f"{quoted(document.get(name))} is not known; write {right}")
        settings = self.settings(document)
        return Policy(self.rules, settings, self.owners(document), self.context(document, settings))

    def complain(self, path: Path, text: str) -> None:
        self.problems.append(Problem(path, text))

    def known(self, path: Path, given: Mapping[Any, Any], names: Iterable[str], what: str) -> None:
        names = tuple(names)
        for name in given:
            if name not in names:
                self.complain((*path, str(name)), option.unknown(name, names, what))

    def section(self, document: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
        """The map at `path`; an empty one, with a complaint, where something else stands."""
        found = mapping(document, *path[:-1]).get(path[-1])
        if found is None or isinstance(found, dict):
            return found or {}
        self.complain(path, f"{quoted(found)} is not allowed; write a map")
        return {}

    def value(self, path: Path, kind: Any, given: Any, default: Any) -> Any:
        if given is None:
            return default
        try:
            return option.value_of(kind, given)
        except option.OptionError as error:
            self.complain(path, str(error))
            return default

    def owners(self, document: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(self.value(("owners",), tuple[str, ...], document.get("owners"), OWNERS))

    def settings(self, document: Mapping[str, Any]) -> dict[str, Setting]:
        given = self.section(document, "rules")
        self.known(("rules",), given, (rule.id for rule in self.rules), "rule")
        return {rule.id: self.setting(rule, self.section(document, "rules", rule.id)) for rule in self.rules}

    def setting(self, rule: Rule, given: Mapping[str, Any]) -> Setting:
        path = ("rules", rule.id)
        level = rule.level
        if "level" in given:
            if isinstance(given["level"], str) and given["level"] in list(Level):
                level = Level(given["level"])
            else:
                self.complain(
                    (*path, "level"), f"{quoted(given['level'])} is not allowed; write one of ignore, warn, deny"
                )
        fix = rule.fix or False
        if "fix" in given and rule.fix is None:
            self.complain((*path, "fix"), "the rule has nothing to mend; take the line out")
        else:
            fix = self.value((*path, "fix"), bool, given.get("fix"), fix)
        own = {name: value for name, value in given.items() if name not in ("level", "fix")}
        options, problems = option.read(rule.options, own)
        for name, text in problems:
            self.complain((*path, name), text)
        return Setting(level, fix, options)

    def context(self, document: Mapping[str, Any], settings: Mapping[str, Setting]) -> Context:
        cron_jobs, karpenter = self.section(document, "cronJobs"), self.section(document, "karpenter")
        self.known(("cronJobs",), cron_jobs, ("fix",), "field")
        self.known(("karpenter",), karpenter, ("version",), "field")
        version = karpenter.get("version", "auto")
        return Context(
            mending=frozenset(name for name, setting in settings.items() if setting.fix),
            options={name: setting.options for name, setting in settings.items()},
            rewrites_cron_jobs=self.value(("cronJobs", "fix"), bool, cron_jobs.get("fix"), False),
            karpenter=self.karpenter(version),
            without_karpenter=version == "none",
            node_pools=self.node_pools(document),
        )

    def karpenter(self, version: Any) -> tuple[int, int, int] | None:
        if version in ("auto", "none"):
            return None
        match = (
            re.fullmatch(r"v?([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})", version) if isinstance(version, str) else None
        )
        if match is None:
            self.complain(
                ("karpenter", "version"),
                f"{quoted(version)} is not allowed; write auto, none, or a version such as 1.12.0",
            )
            return None
        return int(match[1]), int(match[2]), int(match[3])

    def node_pools(self, document: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
        platform = self.section(document, "platform")
        self.known(("platform",), platform, ("nodepools",), "field")
        pools = {} if platform.get("nodepools") == "auto" else self.section(document, "platform", "nodepools")
        seconds = {
            str(name): self.value(("platform", "nodepools", str(name)), option.Duration, limit, None)
            for name, limit in pools.items()
        }
        return tuple((name, limit // duration.SECOND) for name, limit in seconds.items() if limit is not None)
