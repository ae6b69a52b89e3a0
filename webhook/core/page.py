"""A rule's page: the prose of its module, and its options as people and editors read them."""

import sys
import types
import typing
from dataclasses import dataclass, fields
from typing import Any, Literal, Union

from webhook.core import duration
from webhook.core.option import Duration, spelled
from webhook.core.rule import Rule
from webhook.core.workload import KINDS


@dataclass(frozen=True, slots=True)
class Entry:
    """One option: its name and its default as a policy document writes them, its type, and what it is for."""

    name: str
    kind: Any
    default: Any
    says: str


def paragraphs(rule: Rule) -> list[str]:
    """The prose of a rule, a paragraph each on one line; the first one is its summary."""
    prose = sys.modules[rule.check.__module__].__doc__ or ""
    return [" ".join(part.split()) for part in prose.split("\n\n")]


def summary(rule: Rule) -> str:
    """What a rule asks for, in one sentence."""
    return paragraphs(rule)[0]


def kinds(rule: Rule) -> list[str]:
    """The kinds of objects that a rule looks at."""
    return [kind.name for kind in KINDS.values() if kind.name in rule.kinds]


def fix(rule: Rule) -> str:
    """What becomes of the fix of a rule when nobody says otherwise."""
    return {None: "none", True: "on", False: "off"}[rule.fix]


def entries(rule: Rule) -> list[Entry]:
    """The options of a rule, `level` and `fix` left out."""
    hints = typing.get_type_hints(rule.options)
    return [
        Entry(
            spelled(option),
            hints[option.name],
            plain(hints[option.name], option.default),
            str(option.metadata["says"]),
        )
        for option in fields(rule.options)
    ]


def is_optional(kind: Any) -> bool:
    """Whether an option takes a duration or the word none."""
    return typing.get_origin(kind) in (Union, types.UnionType)


def plain(kind: Any, value: Any) -> Any:
    """An option's value as a policy document writes it."""
    if value is None:
        return "none"
    if kind is Duration or is_optional(kind):
        return duration.written(value)
    return list(value) if isinstance(value, tuple) else value


def takes(kind: Any) -> str:
    """What an option takes, in a few words."""
    if kind is Duration:
        return "a duration"
    if is_optional(kind):
        return "a duration, or none"
    if typing.get_origin(kind) is Literal:
        *rest, last = typing.get_args(kind)
        return f"{', '.join(rest)} or {last}" if rest else str(last)
    if typing.get_origin(kind) is tuple:
        return "a list of names"
    return {bool: "true or false", str: "a text"}.get(kind, "a whole number")
