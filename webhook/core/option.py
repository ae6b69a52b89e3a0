"""Options of rules: how a value in a policy document becomes a typed one, and what is allowed."""

import types
import typing
from collections.abc import Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, NewType, Union

from webhook.core import duration
from webhook.core.declaration import length
from webhook.core.rule import quoted

Duration = NewType("Duration", int)
"""A length of time in nanoseconds, written as a Go duration or as whole seconds."""

LARGEST: Final = 1000
_LONGEST: Final = 1 << 62


class OptionError(ValueError):
    """A value that an option does not take; its message says what is allowed."""


def spelled(option: "Field[Any]") -> str:
    """An option's name as a policy document spells it."""
    return option.name.replace("_", "-")


def read(options: type, given: Mapping[str, Any]) -> tuple[Any, list[tuple[str, str]]]:
    """An instance of `options` from what a document gives, and each problem as the option's name and a text.

    An option with a problem keeps its default.
    """
    hints = typing.get_type_hints(options)
    known = {spelled(option): option for option in fields(options)}
    values: dict[str, Any] = {}
    problems: list[tuple[str, str]] = []
    for name, value in given.items():
        if name not in known:
            problems.append((str(name), unknown(name, known, "option")))
            continue
        try:
            values[known[name].name] = value_of(hints[known[name].name], value)
        except OptionError as error:
            problems.append((name, str(error)))
    return options(**values), problems


def unknown(name: Any, known: typing.Iterable[str], what: str) -> str:
    """What to say of a name that is not known, with the nearest one that is."""
    names = sorted(known)
    near = nearest(name, names)
    if near:
        return f"there is no such {what}; did you mean {near}?"
    return f"there is no such {what}; there are {', '.join(names)}" if names else f"it takes no {what}"


def nearest(name: Any, known: typing.Iterable[str]) -> str:
    """The known name that is most like `name`; empty where none is like it."""
    return next(iter(get_close_matches(str(name), list(known), n=1, cutoff=0.5)), "")


def value_of(kind: Any, value: Any) -> Any:
    """`value` as an option of type `kind` takes it. Raises OptionError."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is bool:
        return _one_of(value, isinstance(value, bool), "true or false")
    if kind is Duration:
        return _duration(value)
    if origin is Literal:
        return _one_of(value, isinstance(value, str) and value in arguments, "one of " + ", ".join(arguments))
    if origin in (Union, types.UnionType):  # a duration, or the word none
        return None if value == "none" else _duration(value, or_none=True)
    if kind is str:
        return _one_of(value, isinstance(value, str) and bool(value.strip()), "a text")
    if origin is tuple:
        well = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
        return tuple(_one_of(value, well, "a list of names"))
    well = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return _one_of(value, well, f"a whole number from 0 to {LARGEST}")


def _one_of(value: Any, well: bool, what: str) -> Any:
    if not well:
        raise OptionError(f"{quoted(value)} is not allowed; write {what}")
    return value


def _duration(value: Any, or_none: bool = False) -> Duration:
    found = value * duration.SECOND if isinstance(value, int) and not isinstance(value, bool) else length(value)
    well = found is not None and 0 <= found < _LONGEST
    what = "a duration such as 90s, 10m or 24h" + (", or none" if or_none else "")
    _one_of(value, well, what)
    assert found is not None
    return Duration(found)
