"""What a file holds: its documents, the objects in them, and what keeps the rest from being read."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from webhook.core.patch import Path
from webhook.report.finding import printable
from webhook.source.node import Node, data, found_at, offset


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that keeps a file, a document or an object from being read. Lines count from 1; 0: the whole file."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return printable(f"{place}: {self.text}")


@dataclass(frozen=True, slots=True)
class Item:
    """One object, and where it stands in its document: `path` is () or leads into lists."""

    data: Any
    path: Path
    line: int


@dataclass(frozen=True)
class Document:
    """One document of a source: characters `start` up to `end` of its text, which `node` is relative to."""

    text: str
    start: int
    line: int
    node: Node
    items: tuple[Item, ...]
    is_json: bool = False

    @property
    def end(self) -> int:
        """Where it ends in the text of the source."""
        return self.start + len(self.text)

    @cached_property
    def data(self) -> Any:
        """The whole document as JSON knows it."""
        return data(self.node)

    @cached_property
    def _breaks(self) -> list[int]:
        return [match.end() for match in re.finditer("\n", self.text)]

    def written(self, *path: str | int) -> str:
        """What the author wrote at `path`, if it is a scalar on one line; empty otherwise."""
        node = found_at(self.node, path)
        text = self.text[node.start : node.end] if node and node.pairs is None and node.items is None else ""
        return text if "\n" not in text else ""

    def line_at(self, place: int) -> int:
        """The line, in the file, of a character of this document."""
        return self.line + bisect_right(self._breaks, place)

    def line_of(self, path: Path) -> int:
        """The line of what stands at `path`, or of the nearest thing around it."""
        return self.line_at(offset(self.node, path))


@dataclass(frozen=True, slots=True)
class Source:
    """One file as it was read."""

    name: str
    text: str
    encoding: str = "utf-8"
    documents: tuple[Document, ...] = ()
    complaints: tuple[Complaint, ...] = ()
