"""Editing a text so that it says something else, and leaving every character alone that need not change.

Comments, order, quotes and indentation of the author stay, for nothing is written anew but what differs.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from webhook.source import jsontext, removal, scalar, yamltext
from webhook.source.edit import Edit, applied
from webhook.source.node import Node, Pair, SourceError, aliases, data

_PROPERTIES: Final = re.compile(r"(?:[ \t]+[&!]\S*)*")  # an anchor and a tag


class SpliceError(ValueError):
    """A text that cannot be edited in place."""


def rewritten(text: str, wanted: Any, as_json: bool = False) -> str:
    """A document's text that means `wanted`. What stands behind an alias that has to differ is written out there.

    Raises SpliceError where no edit leads there.
    """
    edited = _attempt(text, wanted, as_json)
    if edited is None and not as_json:
        edited = _attempt(_without_aliases(text), wanted, as_json)
    if edited is None:
        raise SpliceError("it cannot be edited in place")
    return edited


def _attempt(text: str, wanted: Any, as_json: bool) -> str | None:
    """The edited text; None where the edits do not lead to what is wanted."""
    node = _parsed(text, as_json)
    try:
        edited = applied(text, _Splicer(text, as_json).edits(node, data(node), wanted))
        return edited if data(_parsed(edited, as_json)) == wanted else None
    except (SourceError, SpliceError):
        return None


def _parsed(text: str, as_json: bool) -> Node:
    node = jsontext.parse(text) if as_json else yamltext.parse(text)
    if node is None:
        raise SpliceError("it is empty")
    return node


def _without_aliases(text: str) -> str:
    node = _parsed(text, as_json=False)
    return applied(text, (Edit(a.start, a.end, scalar.flow(data(a), as_json=False)) for a in aliases(node)))


class _Splicer:
    """The edits of one text."""

    def __init__(self, text: str, as_json: bool) -> None:
        self.text = text
        self.as_json = as_json
        self.newline = "\r\n" if "\r\n" in text else "\n"

    def edits(self, node: Node, old: Any, new: Any, head: int | None = None) -> Iterator[Edit]:
        """The edits that make the map or list at `node` mean `new`; `head` is the place behind its key's colon."""
        if old is new or node.alias is not None:
            return
        if isinstance(old, dict) and isinstance(new, dict):
            yield from self.of_map(node, old, new, head)
        elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
            for item, before, after in zip(node.items or (), old, new, strict=True):
                yield from self.edits(item, before, after)

    def of_map(self, node: Node, old: dict[str, Any], new: dict[str, Any], head: int | None) -> Iterator[Edit]:
        added: dict[str, Any] = {}
        for key, value in new.items():
            pair = node.pair(key)
            if pair is None:
                if key not in old or old[key] != value:
                    added[key] = value
            elif old[key] is not value and old[key] != value:
                yield from self.of_pair(node, pair, old[key], value)
        pairs = node.pairs or ()
        kept = tuple(pair for pair in pairs if pair.merge or pair.key in new)
        if len(kept) < len(pairs):
            yield from removal.edits(self.text, node, kept, nested=head is not None)
        if added or (pairs and not kept):
            yield self.insertion(node, kept, added, head)

    def of_pair(self, parent: Node, pair: Pair, old: Any, new: Any) -> Iterator[Edit]:
        node = pair.node
        if node.alias is not None:
            yield Edit(node.start, node.end, scalar.flow(new, self.as_json))
        elif isinstance(old, dict) and isinstance(new, dict):
            yield from self.edits(node, old, new, pair.colon)
        elif isinstance(old, list) and isinstance(new, list):
            yield from self.of_list(node, old, new)
        elif isinstance(new, dict | list) and not parent.flow:
            pad = self.newline + " " * self.column(parent)
            lines = scalar.block({"": new})[1:]
            yield Edit(pair.colon, node.end, "".join(pad + line for line in lines))
        else:
            text = scalar.flow(new, self.as_json) if isinstance(new, dict | list) else self.scalar(new, node)
            yield Edit(node.start, node.end, text if self.text[pair.colon : node.start] else f" {text}")

    def scalar(self, value: Any, node: Node) -> str:
        if self.as_json:
            return scalar.flow(value, as_json=True)
        text = scalar.written(value, node.style if node.style in ("'", '"') else "")
        return text + self.newline if node.style in ("|", ">") else text

    def of_list(self, node: Node, old: list[Any], new: list[Any]) -> Iterator[Edit]:
        """A list that gets items in front, or in which items change."""
        count = len(new) - len(old)
        if count == 0:
            yield from self.edits(node, old, new)
            return
        if count < 0 or new[count:] != old:
            raise SpliceError("a list can only get items in front")
        if node.flow:
            text = ", ".join(scalar.flow(item, self.as_json) for item in new[:count])
            yield Edit(node.start + 1, node.start + 1, f"{text}, " if old else text)
            return
        if self.text[node.start] != "-":
            raise SpliceError("the list has an anchor or a tag")
        gap = self.newline + " " * self.column_at(node.start)
        lines = (line for item in new[:count] for line in scalar.entry(item))
        yield Edit(node.start, node.start, "".join(line + gap for line in lines))

    def insertion(self, node: Node, kept: tuple[Pair, ...], added: dict[str, Any], head: int | None) -> Edit:
        """New entries of a map: behind its last entry without entries of its own, or else in front of the others."""
        if node.flow:
            return self.flow_insertion(node, kept, added)
        pad = " " * self.column(node)
        if not kept and (head is None or not added):
            return self.filling(node, (self.newline + pad).join(scalar.block(added)) or "{}", head)
        single = [pair for pair in kept if not pair.merge and pair.node.pairs is None and pair.node.items is None]
        place = single[-1].node.last if single else head if head is not None else kept[-1].node.last
        lines = [pad + line for line in scalar.block(added)]
        if self.text[place - 1] == "\n":
            return Edit(place, place, "".join(line + self.newline for line in lines))
        end = self.text.find("\n", place)
        end = len(self.text) if end < 0 else end
        end -= self.text[end - 1] == "\r"
        return Edit(end, end, "".join(self.newline + line for line in lines))

    def filling(self, node: Node, text: str, head: int | None) -> Edit:
        """What a block map that has lost every entry becomes: behind its key, or where its first entry stood."""
        if head is None:
            place = node.pairs[0].start if node.pairs else node.start
            return Edit(place, place, text)
        match = _PROPERTIES.match(self.text, head)
        place = match.end() if match else head
        return Edit(place, place, f" {text}")

    def flow_insertion(self, node: Node, kept: tuple[Pair, ...], added: dict[str, Any]) -> Edit:
        text = [f"{self.key(key)}: {scalar.flow(value, self.as_json)}" for key, value in added.items()]
        if not kept:
            place = self.text.find("{", node.start) + 1  # there may be an anchor or a tag in front of it
            return Edit(place, place, ", ".join(text))
        last = kept[-1]
        begin = self.text.rfind("\n", node.start, last.start)
        gap = self.text[begin : last.start] if begin >= 0 and not self.text[begin : last.start].strip() else " "
        return Edit(last.node.end, last.node.end, "".join(f",{gap}{entry}" for entry in text))

    def key(self, key: str) -> str:
        return scalar.flow(key, self.as_json)

    def column(self, node: Node) -> int:
        """The column of a block map's keys."""
        return self.column_at(node.pairs[0].start) if node.pairs else 0

    def column_at(self, place: int) -> int:
        return place - (self.text.rfind("\n", 0, place) + 1)
