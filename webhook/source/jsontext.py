"""JSON text to nodes, several times as fast as YAML: `kubectl get -o json` prints a lot of it."""

import json
import math
import re
from typing import Any, Final, NoReturn

from webhook.source.node import Node, Pair, SourceError
from webhook.source.scalar import shortened
from webhook.source.yamltext import DEEPEST

_SPACE: Final = re.compile(r"[ \t\r\n]*")


def parse(text: str, start: int = 0) -> Node:
    """The value that starts at character `start`. Raises SourceError."""
    return _Parser(text).value(_space(text, start), 0)


def _space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no value that JSON knows")


def _float(text: str) -> int | float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return shortened(number)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.decoder = json.JSONDecoder(parse_constant=_constant, parse_float=_float)

    def value(self, place: int, depth: int) -> Node:
        if depth > DEEPEST:
            raise SourceError(f"it is nested more than {DEEPEST} levels deep", place)
        first = self.text[place : place + 1]
        if first == "{":
            return self.map(place, depth)
        if first == "[":
            return self.list(place, depth)
        scalar, end = self.scalar(place)
        return Node(place, end, scalar=scalar, style='"' if first == '"' else "")

    def scalar(self, place: int) -> tuple[Any, int]:
        try:
            return self.decoder.raw_decode(self.text, place)
        except json.JSONDecodeError as error:
            raise SourceError(error.msg, error.pos) from None
        except ValueError as error:
            raise SourceError(str(error), place) from None

    def map(self, start: int, depth: int) -> Node:
        pairs: list[Pair] = []
        seen: set[str] = set()
        place = _space(self.text, start + 1)
        while self.more(place, "}", bool(pairs)):
            place = _space(self.text, place + 1) if pairs else place
            if self.text[place : place + 1] != '"':
                raise SourceError("a key in double quotes is missing", place)
            key, end = self.scalar(place)
            colon = _space(self.text, end)
            if self.text[colon : colon + 1] != ":":
                raise SourceError("a colon is missing", colon)
            if key in seen:
                raise SourceError(f"the key {key} is there twice", place)
            seen.add(key)
            node = self.value(_space(self.text, colon + 1), depth + 1)
            pairs.append(Pair(key, place, colon + 1, node))
            place = _space(self.text, node.end)
        return Node(start, place + 1, pairs=tuple(pairs), flow=True, size=1 + sum(pair.node.size for pair in pairs))

    def list(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        place = _space(self.text, start + 1)
        while self.more(place, "]", bool(items)):
            items.append(self.value(_space(self.text, place + 1) if items else place, depth + 1))
            place = _space(self.text, items[-1].end)
        return Node(start, place + 1, items=tuple(items), flow=True, size=1 + sum(item.size for item in items))

    def more(self, place: int, closing: str, after_one: bool) -> bool:
        """Whether another entry follows; there must be a comma in front of it, or the closing bracket."""
        here = self.text[place : place + 1]
        if here == closing:
            return False
        if after_one and here != ",":
            raise SourceError(f"a comma or {closing} is missing", place)
        if not here:
            raise SourceError("it ends too early", place)
        return True
