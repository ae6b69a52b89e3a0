"""YAML text to nodes."""

import base64
import binascii
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from webhook.source.node import Node, Pair, SourceError
from webhook.source.scalar import resolved

DEEPEST: Final = 200  # levels
MOST_ALIASED: Final = 100_000  # values that all aliases of a document together may stand for
_COLON: Final = re.compile(r"\s*:")
_TAG: Final = "tag:yaml.org,2002:"


def parse(text: str) -> Node | None:
    """The one document of a text; None where there is none. Raises SourceError."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 1)
    try:
        return _Composer(text, yaml.parse(text)).document()
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = mark.index if mark is not None else getattr(error, "position", 0)
        raise SourceError(_said(error), place if isinstance(place, int) else 0) from None
    except (ValueError, AssertionError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError("it is no YAML that can be read", 0) from error


def _said(error: Exception) -> str:
    parts = (getattr(error, "context", None), getattr(error, "problem", None) or getattr(error, "reason", None))
    return ": ".join(str(part) for part in parts if part) or type(error).__name__


class _Composer:
    """The nodes of one document, from the events of the parser."""

    def __init__(self, text: str, events: Iterator[Any]) -> None:
        self.text = text
        self.events = events
        self.anchors: dict[str, Node] = {}
        self.aliased = 0

    def document(self) -> Node | None:
        next(self.events)  # the start of the stream
        start = next(self.events)
        if type(start).__name__ == "StreamEndEvent":
            return None
        node = self.node(next(self.events), 0)
        next(self.events)  # the end of the document
        after = next(self.events)
        if type(after).__name__ != "StreamEndEvent":
            raise SourceError("a second document starts here; put a line --- in front of it", after.start_mark.index)
        return node

    def node(self, event: Any, depth: int) -> Node:
        if depth > DEEPEST:
            raise SourceError(f"it is nested more than {DEEPEST} levels deep", event.start_mark.index)
        kind = type(event).__name__
        if kind == "AliasEvent":
            return self.alias(event)
        if kind == "ScalarEvent":
            node = self.scalar(event)
        elif kind == "SequenceStartEvent":
            node = self.sequence(event, depth)
        else:
            node = self.mapping(event, depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = node
        return node

    def alias(self, event: Any) -> Node:
        start, end = event.start_mark.index, event.end_mark.index
        meant = self.anchors.get(event.anchor)
        if meant is None:
            raise SourceError(f"*{event.anchor} stands for nothing, or for something that it is a part of", start)
        self.aliased += meant.size
        if self.aliased > MOST_ALIASED:
            raise SourceError(f"its aliases stand for more than {MOST_ALIASED} values", start)
        return Node(start, end, alias=meant, size=meant.size)

    def scalar(self, event: Any) -> Node:
        start, end, style = event.start_mark.index, event.end_mark.index, event.style or ""
        tag = (event.tag or "").removeprefix(_TAG)
        value = event.value
        if tag == "binary":
            value = _binary(value, start)
        elif (not style and not tag) or tag in ("null", "bool", "int", "float"):
            value = resolved(value)
        if isinstance(value, float) and not math.isfinite(value):
            raise SourceError(f"{event.value} is no value that JSON knows", start)
        return Node(start, end, scalar=value, style=style)

    def sequence(self, event: Any, depth: int) -> Node:
        items = []
        while type(inner := next(self.events)).__name__ != "SequenceEndEvent":
            items.append(self.node(inner, depth + 1))
        size = 1 + sum(item.size for item in items)
        return Node(
            event.start_mark.index, inner.end_mark.index, items=tuple(items), flow=bool(event.flow_style), size=size
        )

    def mapping(self, event: Any, depth: int) -> Node:
        pairs: list[Pair] = []
        seen: set[str] = set()
        while type(inner := next(self.events)).__name__ != "MappingEndEvent":
            pair = self.pair(inner, depth + 1)
            if pair.key in seen and not pair.merge:
                raise SourceError(f"the key {pair.key} is there twice", pair.start)
            seen.add(pair.key)
            pairs.append(pair)
        size = 1 + sum(pair.node.size for pair in pairs)
        return Node(
            event.start_mark.index, inner.end_mark.index, pairs=tuple(pairs), flow=bool(event.flow_style), size=size
        )

    def pair(self, event: Any, depth: int) -> Pair:
        key = self.node(event, depth)
        match = _COLON.match(self.text, key.end)
        colon = match.end() if match else key.end
        merge = key.scalar == "<<" and not key.style
        node = self.node(next(self.events), depth)
        if node.is_absent:  # the parser puts it behind the comments that follow
            node = Node(colon, colon)
        if merge:
            return self.merged(Pair("<<", key.start, colon, node, merge=True))
        return Pair(_key(key), key.start, colon, node)

    def merged(self, pair: Pair) -> Pair:
        sources = pair.node.meant.items or (pair.node,)
        if any(source.meant.pairs is None for source in sources):
            raise SourceError("<< takes a map, or a list of maps", pair.start)
        return pair


def _key(node: Node) -> str:
    """A key as JSON knows it: numbers and booleans become texts (sigs.k8s.io/yaml 1.6.0 `convertToJSONableObject`)."""
    value = node.meant.scalar
    if value is None:
        raise SourceError("a key must be a text", node.start)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _binary(text: str, place: int) -> str:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise SourceError("!!binary needs a text in base64", place) from None
