"""Taking members out of a map's text. The comment on a line that goes, goes with it; those of other members stay."""

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Final

from webhook.source.edit import Edit
from webhook.source.node import Node, Pair

_SPACE: Final = re.compile(r"\s*")
_COMMA: Final = re.compile(r"\s*,")
_NEXT: Final = re.compile(r"\s*,[ \t]*(?:#[^\n]*)?\s*")  # from a value up to the next entry, or the comment above it
_REST: Final = re.compile(r"(?:[ \t]*,)?(?:[ \t]+#[^\r\n]*)?")  # what belongs to the last value of a map


def edits(text: str, node: Node, kept: tuple[Pair, ...], nested: bool) -> Iterator[Edit]:
    """The edits that leave of the map at `node` only the entries `kept`; neighbours go together.

    Where none is kept, something else has to be written in their place: behind the key where the map is `nested`
    under one in block style, and where the first of them stood otherwise.
    """
    pairs = node.pairs or ()
    if node.flow and not kept:
        yield Edit(text.find("{", node.start) + 1, node.end - 1)
        return
    for stays, group in groupby(enumerate(pairs), key=lambda one: one[1] in kept):
        run = list(group)
        if stays:
            continue
        (begin, first), (end, last) = run[0], run[-1]
        if not node.flow:
            yield _of_block(text, first, last, whole_lines=bool(kept) or nested, empty=not kept)
        elif end + 1 < len(pairs):
            match = _NEXT.match(text, last.node.end)
            yield Edit(first.start, match.end() if match else pairs[end + 1].start)
        else:
            yield from _of_flow_end(text, pairs[begin - 1], first, last)


def _of_block(text: str, first: Pair, last: Pair, whole_lines: bool, empty: bool) -> Edit:
    start, stop = text.rfind("\n", 0, first.start) + 1, last.node.last
    stop = stop - 1 if text[stop - 1] == "\n" else text.find("\n", stop)  # a block scalar ends with its line
    stop = len(text) if stop < 0 else stop
    if whole_lines and not text[start : first.start].strip():
        return Edit(start, stop + 1)
    if empty:
        return Edit(first.start, stop - (text[stop - 1] == "\r"))
    match = _SPACE.match(text, stop)  # the next entry takes its place behind the dash
    return Edit(first.start, match.end() if match else stop)


def _of_flow_end(text: str, before: Pair, first: Pair, last: Pair) -> Iterator[Edit]:
    """The last entries go with the comma in front of them, but not with a comment between the two."""
    comma, rest = _COMMA.match(text, before.node.end), _REST.match(text, last.node.end)
    end = rest.end() if rest else last.node.end
    comment = text[comma.end() : first.start].rstrip() if comma else ""
    if comma and comment:
        yield Edit(before.node.end, comma.end())
        ends_line = text[end : end + 2].startswith(("\n", "\r\n"))
        yield Edit(comma.end() + len(comment) if ends_line else first.start, end)
    else:
        yield Edit(before.node.end, end)
