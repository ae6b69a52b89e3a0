"""A policy as a whole commented document: every setting in force, and whether somebody set it."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from webhook.core import page
from webhook.core.cluster import PLATFORMS
from webhook.core.patch import entries, mapping
from webhook.core.rule import Rule
from webhook.core.ruleset import API_VERSION, OWNERS, Mode, Policy
from webhook.core.schema import SAYS
from webhook.source import scalar

_BARE: Final = re.compile(r"[0-9][0-9.]*[0-9hmsnuµ.]*")  # a duration or a version


def written(policy: Policy, rules: Iterable[Rule], name: str = "") -> str:
    """The policy in YAML; loading the text gives the policy again. `name` is that of the file it was read from."""
    given = policy.document
    lines = [
        *_head(name),
        f"apiVersion: {API_VERSION}",
        "kind: Policy",
        *_sections(given),
        "",
        "rules:",
    ]
    for rule in rules:
        lines += [f"  # {page.summary(rule)}", *("  " + line for line in _rule(rule, mapping(given, "rules"))), ""]
    for section in ("overrides", "exempt"):
        lines += [f"# {_sentence(SAYS[section])}", *_list(section, entries(given, section)), ""]
    return "\n".join(lines[:-1]) + "\n"


def _head(name: str) -> tuple[str, ...]:
    if not name:
        return ("# The policy in force when nobody writes one. Start from a copy, and change or take out lines.",)
    return (
        f"# The policy in force: {name} on top of the defaults.",
        "# `set` marks what the file says, `default` what it leaves to the default.",
    )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _line(name: str, given: Any, default: Any, says: str = "") -> str:
    """One setting, with the value that is in force and where it comes from."""
    value, mark = default, "default"
    if name in given:
        value, mark = given[name], f"set; the default is {_value(default)}"
    return f"{name}: {_value(value)} # {mark}{f'; {says}' if says else ''}"


def _value(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and isinstance(scalar.resolved(value), str):
        return value
    return scalar.flow(value, as_json=False)


def _sections(given: Any) -> Iterator[str]:
    for name, default in (("mode", Mode.ENFORCE.value), ("owners", list(OWNERS))):
        yield from ("", f"# {_sentence(SAYS[name])}", _line(name, given, default))
    for section, name, auto in (("cronJobs", "fix", False), ("karpenter", "version", "auto")):
        yield from ("", f"# {_sentence(SAYS[f'{section}.{name}'])}", f"{section}:")
        yield "  " + _line(name, mapping(given, section), auto)
    yield from ("", f"# {_sentence(SAYS['platform'])}")
    yield from _platform(mapping(given, "platform"))


def _platform(given: dict[str, Any]) -> Iterator[str]:
    yield "platform:" if given else "platform: {} # default"
    for name in (*PLATFORMS, "nodepools"):
        says = SAYS[f"platform.{name}"]
        if name not in given:
            yield f"  # {name}: not set; {says}"
        else:
            yield f"  {name}: {_value(given[name])} # set; {says}"


def _rule(rule: Rule, given: dict[str, Any]) -> Iterator[str]:
    own = mapping(given, rule.id)
    yield f"{rule.id}:"
    yield "  " + _line("level", own, rule.level.value)
    if rule.fix is not None:
        yield "  " + _line("fix", own, rule.fix)
    for entry in page.entries(rule):
        yield "  " + _line(entry.name, own, entry.default, entry.says)


def _list(name: str, items: list[Any]) -> list[str]:
    if not items:
        return [f"{name}: [] # default"]
    return [f"{name}: # set", *("  " + line for item in items for line in scalar.entry(item))]
