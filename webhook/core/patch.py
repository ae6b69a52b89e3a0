"""Paths into a document, what a rule wants there, and the RFC 6902 steps that bring it about."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

Path = tuple[str | int, ...]
Step = dict[str, Any]

MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Put:
    """The wish that `value` stands at `path`.

    `recorded` says that the author's own value is replaced, so that an unchanged manifest can be
    applied again only if that value is remembered.
    """

    path: Path
    value: Any
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """The wish that nothing stands at `path`."""

    path: Path


Wish = Put | Drop


def at(document: Any, path: Iterable[str | int], default: Any = None) -> Any:
    """What stands at `path`, or `default` where a part of the way is missing or of another type. Never raises."""
    here = document
    for key in path:
        if isinstance(here, dict):
            here = here.get(key, MISSING)
            if here is MISSING:
                return default
        elif isinstance(here, list) and isinstance(key, int) and -len(here) <= key < len(here):
            here = here[key]
        else:
            return default
    return here


def mapping(document: Any, *path: str | int) -> dict[str, Any]:
    """The map at `path`; an empty one where there is none."""
    found = at(document, path)
    return found if isinstance(found, dict) else {}


def entries(document: Any, *path: str | int) -> list[Any]:
    """The list at `path`; an empty one where there is none."""
    found = at(document, path)
    return found if isinstance(found, list) else []


def pointer(path: Path) -> str:
    """The JSON pointer of `path` (RFC 6901)."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)


def dotted(path: Path) -> str:
    """`path` as people write it: `spec.rules[0].action`, `metadata.annotations[example.com/key]`."""
    text = ""
    for key in path:
        if isinstance(key, int) or not key.replace("-", "").replace("_", "").isalnum():
            text += f"[{key}]"
        else:
            text += f".{key}" if text else key
    return text


def grant(document: Any, wish: Wish) -> tuple[Any, list[Step]] | None:
    """The document with the wish come true, and the steps from `document` to it.

    `document` is left as it is: only the maps on the way are copied. Missing and null maps on the way are made, so
    that the steps apply to the very document given. None where a parent is something else than a map: such a wish
    cannot be granted.
    """
    here, last = document, len(wish.path) - 1
    for depth, key in enumerate(wish.path):
        if not isinstance(here, dict):
            return None
        below = here.get(key, MISSING)
        if isinstance(wish, Drop):
            if below is MISSING or depth == last:
                return _removed(document, wish.path, below)
        elif depth == last:
            return _placed(document, wish.path, wish.value, below)
        elif below is MISSING or below is None:  # the rest of the way is made here, as one value
            return _placed(document, wish.path[: depth + 1], _nested(wish.path[depth + 1 :], wish.value), below)
        here = below
    return None


def _placed(document: Any, path: Path, value: Any, before: Any) -> tuple[Any, list[Step]]:
    if before == value:
        return document, []
    # "add" replaces a member that exists (RFC 6902, 4.1), so that one operation serves both.
    return _with(document, path, value), [{"op": "add", "path": pointer(path), "value": value}]


def _removed(document: Any, path: Path, before: Any) -> tuple[Any, list[Step]]:
    if before is MISSING:
        return document, []
    return _with(document, path, MISSING), [{"op": "remove", "path": pointer(path)}]


def _nested(path: Path, value: Any) -> Any:
    """`value` inside the maps that `path` names."""
    for key in reversed(path):
        value = {key: value}
    return value


def _with(document: Any, path: Path, value: Any) -> Any:
    copy = document.copy()
    key = path[0]
    if len(path) > 1:
        copy[key] = _with(document[key], path[1:], value)
    elif value is MISSING:
        del copy[key]
    else:
        copy[key] = value
    return copy
