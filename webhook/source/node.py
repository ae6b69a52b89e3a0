"""A parsed text: every value with the place where it stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from webhook.core.patch import Path


class SourceError(ValueError):
    """A text that cannot be read; `offset` is the place in characters."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One value, from character `start` up to `end`.

    `style` is the quote of a quoted scalar, `|` or `>` of a block scalar. `size` counts the values in it with aliases
    written out.
    """

    start: int
    end: int
    scalar: Any = None
    style: str = ""
    pairs: "tuple[Pair, ...] | None" = None  # of a map
    items: "tuple[Node, ...] | None" = None  # of a list
    flow: bool = False
    alias: "Node | None" = None  # what `*name` stands for
    size: int = 1

    @property
    def meant(self) -> "Node":
        """The value itself, behind an alias."""
        return self.alias or self

    @property
    def is_absent(self) -> bool:
        """Whether nothing is written there, as behind `annotations:`."""
        return self.start == self.end

    @property
    def last(self) -> int:
        """Where what is written ends; `end` of a block collection lies behind comments and blank lines."""
        if self.flow or self.alias:
            return self.end
        if self.pairs:
            return self.pairs[-1].node.last
        return self.items[-1].last if self.items else self.end

    def pair(self, key: str) -> "Pair | None":
        """The entry of a map that is written there, not merged in."""
        return next((pair for pair in self.pairs or () if pair.key == key and not pair.merge), None)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """One entry of a map. `colon` is the place behind the colon; `merge` marks `<<`."""

    key: str
    start: int
    colon: int
    node: Node
    merge: bool = False


def data(node: Node) -> Any:
    """The value as JSON knows it. What several aliases stand for is one object, not many."""
    return _data(node, {})


def _data(node: Node, known: dict[int, Any]) -> Any:
    if node.alias is not None:
        if id(node.alias) not in known:
            known[id(node.alias)] = _data(node.alias, known)
        return known[id(node.alias)]
    if node.pairs is not None:
        merged: dict[str, Any] = {}
        for pair in node.pairs:
            if pair.merge:
                for source in reversed(pair.node.meant.items or (pair.node,)):
                    merged.update(_data(source, known))
        return merged | {pair.key: _data(pair.node, known) for pair in node.pairs if not pair.merge}
    return [_data(item, known) for item in node.items] if node.items is not None else node.scalar


def offset(node: Node, path: Path) -> int:
    """Where the value at `path` is written, or the nearest thing around it that is."""
    here, place = node, node.start
    for key in path:
        meant = here.meant
        if isinstance(key, str):
            pair = meant.pair(key)
            if pair is None:
                return place
            here, place = pair.node, pair.start
        elif meant.items is not None and key < len(meant.items):
            here = meant.items[key]
            place = here.start
        else:
            return place
    return place


def found_at(node: Node, path: Path) -> Node | None:
    """The node of the value at `path`; None where it is not written there."""
    here: Node | None = node
    for key in path:
        meant = here.meant if here else None
        if isinstance(key, str):
            pair = meant.pair(key) if meant else None
            here = pair.node if pair else None
        else:
            here = meant.items[key] if meant and meant.items is not None and key < len(meant.items) else None
    return here


def aliases(node: Node) -> Iterator[Node]:
    """Every place where an alias is written."""
    if node.alias is not None:
        yield node
        return
    for pair in node.pairs or ():
        yield from aliases(pair.node)
    for item in node.items or ():
        yield from aliases(item)
