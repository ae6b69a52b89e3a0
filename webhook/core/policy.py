"""The policy document: read into typed settings, with every problem at once."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from webhook.core import duration, option
from webhook.core.option import Duration
from webhook.core.patch import Path, dotted, mapping
from webhook.core.place import SPOT
from webhook.core.rule import Context, Level, Place, Rule, quoted
from webhook.core.ruleset import (
    API_VERSION,
    OWNERS,
    Exemption,
    Facts,
    Mode,
    Override,
    Policy,
    Ruleset,
    Setting,
    node_pool,
)
from webhook.core.workload import EVERY

Names = tuple[str, ...]
FIELDS: Final = (
    "apiVersion",
    "kind",
    "mode",
    "owners",
    "cronJobs",
    "karpenter",
    "platform",
    "rules",
    "overrides",
    "exempt",
)
PLATFORMS: Final = {"spot": SPOT, "cluster-autoscaler": (), "node-shutdown": ()}
VERSION: Final = re.compile(r"v?([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})")
__all__ = ["Policy", "PolicyError", "Problem", "default", "facts", "load"]
_EMPTY: Final = {"apiVersion": API_VERSION, "kind": "Policy"}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a document."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.path) or 'the document'}: {self.text}"


class PolicyError(ValueError):
    """A document that cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def default(rules: Iterable[Rule]) -> Policy:
    """The policy in force when nobody writes one."""
    return load(_EMPTY, rules)


def load(document: Any, rules: Iterable[Rule]) -> Policy:
    """The policy that a document states. Raises PolicyError with every problem in it."""
    reader = _Reader(tuple(rules))
    policy = reader.policy(document)
    if reader.problems:
        raise PolicyError(reader.problems)
    return policy


def facts(document: Any) -> Facts:
    """What a facts document states. Raises PolicyError with every problem in it."""
    reader = _Reader(())
    found = reader.facts(document)
    if reader.problems:
        raise PolicyError(reader.problems)
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    rules: tuple[Rule, ...]
    problems: list[Problem] = field(default_factory=list)

    # The parts that every section is made of.

    def complain(self, path: Path, text: str) -> None:
        self.problems.append(Problem(path, text))

    def known(self, path: Path, given: Mapping[Any, Any], names: Iterable[str], what: str = "field") -> None:
        names = tuple(names)
        for name in given:
            if name not in names:
                self.complain((*path, str(name)), option.unknown(name, names, what))

    def section(self, path: Path, given: Any) -> dict[str, Any]:
        """A map; an empty one, with a complaint, where something else stands."""
        if given is None or isinstance(given, dict):
            return given or {}
        self.complain(path, f"{quoted(given)} is not allowed; write a map")
        return {}

    def value(self, path: Path, given: Mapping[Any, Any], name: str, kind: Any, default: Any) -> Any:
        """The member `name` of a map as a `kind` of option; the default where it is absent, or wrong."""
        if name not in given:
            return default
        try:
            return option.value_of(kind, given[name])
        except option.OptionError as error:
            self.complain((*path, name), str(error))
            return default

    def head(self, document: Any, kind: str, fields: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(document, dict):
            self.complain((), f"it must be a map that starts with apiVersion: {API_VERSION} and kind: {kind}")
            return {}
        self.known((), document, fields)
        for name, right in (("apiVersion", API_VERSION), ("kind", kind)):
            if document.get(name) != right:
                self.complain((name,), f"{quoted(document.get(name))} is not known; write {right}")
        return document

    # The document, section by section.

    def policy(self, given: Any) -> Policy:
        document = self.head(given, "Policy", FIELDS)
        context = self.context(document)
        base = self.section(("rules",), document.get("rules"))
        return Policy(
            self.ruleset(("rules",), base, context),
            Mode(self.value((), document, "mode", Literal["enforce", "monitor"], "enforce")),
            frozenset(self.value((), document, "owners", Names, OWNERS)),
            tuple(self.override(path, one, base, context) for path, one in self.items(document, "overrides")),
            tuple(self.exemption(path, one) for path, one in self.items(document, "exempt")),
            mapping(document, "karpenter").get("version", "auto") == "auto",
            mapping(document, "platform").get("nodepools") == "auto",
            document,
        )

    def items(self, document: dict[str, Any], name: str) -> list[tuple[Path, dict[str, Any]]]:
        found = document.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            self.complain((name,), f"{quoted(found)} is not allowed; write a list")
            return []
        return [((name, index), self.section((name, index), one)) for index, one in enumerate(found)]

    def override(self, path: Path, given: dict[str, Any], base: dict[str, Any], context: Context) -> Override:
        self.known(path, given, ("namespaces", "rules"))
        namespaces = self.globs(path, given, "namespaces")
        if "namespaces" not in given:
            self.complain((*path, "namespaces"), "it is missing; write a list of globs such as [team-*]")
        own = self.section((*path, "rules"), given.get("rules"))
        rules = {name: {**self.plain(base.get(name)), **self.plain(own.get(name))} for name in (*base, *own)}
        unread = _Reader(self.rules)  # what is wrong in the base is said once, for the base
        self.ruleset((*path, "rules"), own, context)
        return Override(namespaces, unread.ruleset((), rules, context))

    def plain(self, given: Any) -> dict[str, Any]:
        return given if isinstance(given, dict) else {}

    def exemption(self, path: Path, given: dict[str, Any]) -> Exemption:
        self.known(path, given, ("namespaces", "kinds", "names", "owners", "reason"))
        if not given.keys() - {"reason"}:
            self.complain(path, "it exempts everything; write namespaces, kinds, names or owners")
        kinds = self.globs(path, given, "kinds")
        for kind in kinds:
            if kind not in EVERY and not set(kind) & set("*?["):
                self.complain((*path, "kinds"), f"{quoted(kind)}: {option.unknown(kind, EVERY, 'kind')}")
        return Exemption(
            self.globs(path, given, "namespaces"),
            kinds,
            self.globs(path, given, "names"),
            self.globs(path, given, "owners"),
            self.value(path, given, "reason", str, ""),
        )

    def globs(self, path: Path, given: dict[str, Any], name: str) -> Names:
        found: Names = self.value(path, given, name, Names, ())
        if given.get(name) == []:
            self.complain((*path, name), "an empty list matches nothing; write a list of globs, or take it out")
        return found

    def ruleset(self, path: Path, given: dict[str, Any], context: Context) -> Ruleset:
        self.known(path, given, (rule.id for rule in self.rules), "rule")
        settings = {
            rule.id: self.setting((*path, rule.id), rule, self.section((*path, rule.id), given.get(rule.id)))
            for rule in self.rules
        }
        return Ruleset(
            settings,
            {kind: tuple(rule for rule in self.rules if kind in rule.kinds) for kind in EVERY},
            Context(
                mending=frozenset(name for name, setting in settings.items() if setting.fix),
                heard=frozenset(name for name, setting in settings.items() if setting.level is not Level.IGNORE),
                options={name: setting.options for name, setting in settings.items()},
                rewrites_cron_jobs=context.rewrites_cron_jobs,
                karpenter=context.karpenter,
                without_karpenter=context.without_karpenter,
                places=context.places,
            ),
        )

    def setting(self, path: Path, rule: Rule, given: dict[str, Any]) -> Setting:
        level = self.value(path, given, "level", Literal["ignore", "warn", "deny"], rule.level)
        fix = rule.fix or False
        if "fix" in given and rule.fix is None:
            self.complain((*path, "fix"), "the rule has nothing to mend; take the line out")
        else:
            fix = self.value(path, given, "fix", bool, fix)
        own = {name: value for name, value in given.items() if name not in ("level", "fix")}
        options, problems = option.read(rule.options, own)
        for name, text in problems:
            self.complain((*path, name), text)
        return Setting(Level(level), fix, options)

    def context(self, document: dict[str, Any]) -> Context:
        cron_jobs = self.section(("cronJobs",), document.get("cronJobs"))
        self.known(("cronJobs",), cron_jobs, ("fix",))
        karpenter = self.section(("karpenter",), document.get("karpenter"))
        self.known(("karpenter",), karpenter, ("version",))
        version = karpenter.get("version", "auto")
        return Context(
            rewrites_cron_jobs=self.value(("cronJobs",), cron_jobs, "fix", bool, False),
            karpenter=None
            if version in ("auto", "none")
            else self.version(("karpenter", "version"), version, "auto, none, or "),
            without_karpenter=version == "none",
            places=tuple(self.places(self.section(("platform",), document.get("platform")))),
        )

    def version(self, path: Path, given: Any, also: str = "") -> tuple[int, int, int] | None:
        match = VERSION.fullmatch(given) if isinstance(given, str) else None
        if match is None:
            self.complain(path, f"{quoted(given)} is not allowed; write {also}a version such as 1.12.0")
            return None
        return int(match[1]), int(match[2]), int(match[3])

    def places(self, platform: dict[str, Any]) -> Iterable[Place]:
        self.known(("platform",), platform, (*PLATFORMS, "nodepools"))
        for name, labels in PLATFORMS.items():
            seconds = self.seconds(("platform",), platform, name)
            if seconds is not None:
                yield Place(name, seconds, labels)
        if platform.get("nodepools") != "auto":
            for name, seconds in self.node_pools(("platform", "nodepools"), platform.get("nodepools")):
                yield node_pool(name, seconds)

    def seconds(self, path: Path, given: Mapping[Any, Any], name: str) -> int | None:
        length = self.value(path, given, name, Duration, None)
        return None if length is None else int(length) // duration.SECOND

    def node_pools(self, path: Path, given: Any) -> Iterable[tuple[str, int]]:
        pools = {str(name): limit for name, limit in self.section(path, given).items()}
        for name in pools:
            seconds = self.seconds(path, pools, name)
            if seconds is not None:
                yield name, seconds

    def facts(self, given: Any) -> Facts:
        document = self.head(given, "Facts", ("apiVersion", "kind", "karpenter", "nodepools"))
        karpenter = self.section(("karpenter",), document.get("karpenter"))
        self.known(("karpenter",), karpenter, ("version",))
        version = karpenter.get("version")
        return Facts(
            None if version is None else self.version(("karpenter", "version"), version),
            tuple(self.node_pools(("nodepools",), document.get("nodepools"))),
        )
