"""What a webhook changed in an object: measured on two dry runs, shown as a diff of what its author wrote."""

import difflib
import io
import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML

Object = Mapping[str, Any]


def difference(written: Object, before: Object, after: Object) -> list[str]:
    """The lines, each after its sign, between two answers of an API server to one manifest; none where they agree.

    `before` is its answer without the webhook, `after` that with it. Shown are the fields in which they differ, with
    the keys that lead there; a value of `before` only where its author wrote one, for the rest are defaults.
    """
    old, new = _apart(written, _lasting(before), _lasting(after))
    # A map that only leads to something new must look alike on both sides.
    lines = re.sub(r": \{\}$", ":", _yaml(old), flags=re.MULTILINE).splitlines(), _yaml(new).splitlines()
    # ndiff pairs a line with what became of it, where unified_diff tells whole blocks apart.
    return [line[0] + line[2:] for line in difflib.ndiff(*lines) if not line.startswith("?")]


def _apart(written: Any, before: Object, after: Object) -> tuple[dict[str, Any], dict[str, Any]]:
    """What differs between two maps, a map each; lists are compared as a whole, as the API server replaces them."""
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    for key in sorted({*before, *after}):
        mine, one, other = (side.get(key) if isinstance(side, Mapping) else None for side in (written, before, after))
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            one, other = _apart(mine, one, other)
            old |= {key: one} if one or other else {}
            new |= {key: other} if one or other else {}
        elif one != other:
            old |= {key: one} if mine is not None else {}
            new |= {key: other} if other is not None else {}
    return old, new


def _lasting(answer: Object) -> Any:
    """An answer without what is another one each time: when it was given, and the number that the object got."""
    return _without(answer, answer["metadata"].get("uid"))


def _without(value: Any, uid: str | None) -> Any:
    if isinstance(value, Mapping):
        return {key: _without(inner, uid) for key, inner in value.items() if key != "creationTimestamp"}
    if isinstance(value, list):
        return [_without(inner, uid) for inner in value]
    return None if uid is not None and value == uid else value


def _yaml(document: Object) -> str:
    """An object as `kubectl get -o yaml` writes it."""
    if not document:
        return ""
    writer = YAML(typ="safe", pure=True)
    writer.version = (1, 1)  # the one of kubectl, where "on" needs quotes
    writer.default_flow_style = False
    writer.width = 4096
    stream = io.StringIO()
    writer.dump(document, stream)
    text = stream.getvalue().partition("---\n")[2]
    return re.sub(r"'([^'\"\\]*)'$", r'"\1"', text, flags=re.MULTILINE)
