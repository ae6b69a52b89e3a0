"""The policy document: read into typed settings, with every problem at once."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from webhook.core import cluster, option
from webhook.core.patch import Path, mapping
from webhook.core.reading import Names, PolicyError, Problem, Reader
from webhook.core.rule import Context, Level, Rule, quoted
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
)
from webhook.core.workload import EVERY

__all__ = ["Policy", "PolicyError", "Problem", "default", "facts", "load"]
FIELDS: Final = (
    *("apiVersion", "kind", "mode", "owners", "cronJobs", "karpenter", "platform", "rules", "overrides", "exempt"),
)
_EMPTY: Final = {"apiVersion": API_VERSION, "kind": "Policy"}


def default(rules: Iterable[Rule]) -> Policy:
    """The policy in force when nobody writes one."""
    return load(_EMPTY, rules)


def load(document: Any, rules: Iterable[Rule]) -> Policy:
    """The policy that a document states. Raises PolicyError with every problem in it."""
    reader = _Policy(rules=tuple(rules))
    policy = reader.policy(document)
    if reader.problems:
        raise PolicyError(reader.problems)
    return policy


def facts(document: Any) -> Facts:
    """What a facts document states. Raises PolicyError with every problem in it."""
    reader = Reader()
    found = cluster.facts(reader, document)
    if reader.problems:
        raise PolicyError(reader.problems)
    return found


@dataclass(frozen=True, slots=True)
class _Policy(Reader):
    """Reads a policy document, section by section."""

    rules: tuple[Rule, ...] = ()

    def policy(self, given: Any) -> Policy:
        document = self.head(given, "Policy", FIELDS)
        context = cluster.context(self, document)
        base = self.section(("rules",), document.get("rules"))
        return Policy(
            self.ruleset(("rules",), base, context),
            Mode(self.value((), document, "mode", Literal["enforce", "monitor"], "enforce")),
            frozenset(self.value((), document, "owners", Names, OWNERS)),
            tuple(self.override(path, one, base, context) for path, one in self.items(document, "overrides")),
            tuple(self.exemption(path, one) for path, one in self.items(document, "exempt")),
            mapping(document, "karpenter").get("version", "auto") == "auto",
            mapping(document, "platform").get("nodepools", "auto") == "auto",
            document,
        )

    def override(self, path: Path, given: dict[str, Any], base: dict[str, Any], context: Context) -> Override:
        self.known(path, given, ("namespaces", "rules"))
        namespaces = self.globs(path, given, "namespaces")
        if "namespaces" not in given:
            self.complain((*path, "namespaces"), "it is missing; write a list of globs such as [team-*]")
        own = self.section((*path, "rules"), given.get("rules"))
        rules = {name: {**mapping(base, name), **mapping(own, name)} for name in (*base, *own)}
        unread = _Policy(rules=self.rules)  # what is wrong in the base is said once, for the base
        self.ruleset((*path, "rules"), own, context)
        return Override(namespaces, unread.ruleset((), rules, context))

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

    def ruleset(self, path: Path, given: dict[str, Any], context: Context) -> Ruleset:
        self.known(path, given, (rule.id for rule in self.rules), "rule")
        settings = {
            rule.id: self.setting((*path, rule.id), rule, self.section((*path, rule.id), given.get(rule.id)))
            for rule in self.rules
        }
        return Ruleset(
            settings,
            {kind: tuple(rule for rule in self.rules if kind in rule.kinds) for kind in EVERY},
            replace(
                context,
                mending=frozenset(name for name, setting in settings.items() if setting.fix),
                heard=frozenset(name for name, setting in settings.items() if setting.level is not Level.IGNORE),
                options={name: setting.options for name, setting in settings.items()},
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
