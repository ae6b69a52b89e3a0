"""Reading manifests as kubectl does: YAML or JSON, many documents, lists; errors are collected."""

import codecs
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as File
from typing import Any, Final

from webhook import decoding
from webhook.core.patch import Path, at
from webhook.source import jsontext, yamltext
from webhook.source.document import Complaint, Document, Item, Source
from webhook.source.node import SourceError

STANDARD_INPUT: Final = "stdin"
SUFFIXES: Final = (".yaml", ".yml", ".json")
_SEPARATOR: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_BRACES: Final = re.compile(r"\{\{.*?\}\}")
_TEMPLATE: Final = "it looks like a Helm template; run `helm template` first and check what that prints"
_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def found(names: Iterable[str], recursive: bool = False) -> Iterator[str]:
    """The files that `names` stand for: `-` and files as they are, and the manifests in a folder.

    With `recursive`, also those of the folders in it.
    """
    for name in dict.fromkeys(names):
        folder = File(name)
        if name == "-" or not folder.is_dir():
            yield name
            continue
        inside = folder.rglob("*") if recursive else folder.glob("*")
        yield from sorted(str(file) for file in inside if file.suffix in SUFFIXES and file.is_file())


def load(name: str) -> Source:
    """What a file, or `-` for standard input, holds. Never raises: what cannot be read is a complaint."""
    try:
        content = sys.stdin.buffer.read() if name == "-" else File(name).read_bytes()
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        return Source(name, "", complaints=(Complaint(name, 0, f"it cannot be read: {reason}"),))
    return read(STANDARD_INPUT if name == "-" else name, content)


def read(name: str, content: bytes) -> Source:
    """What the bytes of a file hold. Never raises: what cannot be read is a complaint."""
    encoding = next((known for bom, known in _BOMS if content.startswith(bom)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return Source(
            name, "", complaints=(Complaint(name, line, f"it is not {encoding[:6].upper().rstrip('-')} text"),)
        )
    if "\0" in text:
        return Source(name, "", complaints=(Complaint(name, 0, "it is a binary file, not a manifest"),))
    reader = _Reader(name, text)
    return Source(name, text, encoding, tuple(reader.documents()), tuple(reader.complaints))


def _past_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _is_nothing(text: str) -> bool:
    """Whether a document has nothing in it but comments, directives and markers."""
    lines = map(str.strip, text.splitlines())
    return all(not line or line[0] in "#%" or line in ("---", "...") for line in lines)


def _json_end(text: str, start: int) -> int | None:
    """Where the JSON value ends that starts at `start`; None where none does."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


class _Reader:
    """The documents of one text; complaints are collected on the way."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.complaints: list[Complaint] = []

    def documents(self) -> Iterator[Document]:
        line, counted = 1, 0
        for start, end, is_json in self.parts():
            line, counted = line + self.text.count("\n", counted, start), start
            document = self.document(start, end, line, is_json)
            if document is not None:
                yield document

    def parts(self) -> Iterator[tuple[int, int, bool]]:
        """Where each document starts and ends, and whether it is JSON. kubectl splits at lines that start with ---."""
        start = 0
        for match in _SEPARATOR.finditer(self.text):
            yield from self.json_parts(start, match.start())
            start = match.end()
        yield from self.json_parts(start, len(self.text))

    def json_parts(self, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """The documents between two separators: JSON documents may stand there one after the other."""
        while (first := _past_space(self.text, start)) < end and self.text[first] in "{[":
            after = _json_end(self.text, first)
            if after is None or after > end:
                break
            yield first, after, True
            start = after
        if first < end:
            yield start, end, False

    def document(self, start: int, end: int, line: int, is_json: bool) -> Document | None:
        text = self.text[start:end]
        if not is_json and _is_nothing(text):
            return None
        try:
            node = jsontext.parse(text) if is_json else yamltext.parse(text)
        except SourceError as error:
            place = line + text.count("\n", 0, error.offset)
            self.complaints.append(Complaint(self.name, place, _TEMPLATE if _BRACES.search(text) else str(error)))
            return None
        if node is None:
            return None
        document = Document(text, start, line, node, (), is_json)
        items = tuple(self.items(document, document.data, (), {}))
        return Document(text, start, line, node, items, is_json)

    def items(self, document: Document, value: Any, path: Path, typed: Mapping[str, str]) -> Iterator[Item]:
        """The objects in a value. `typed` is what the items of a typed list need not say themselves."""
        if value is None and path == ():
            return
        if not isinstance(value, Mapping):
            self.complain(document, path, "it is no object; write a map with apiVersion, kind and metadata")
            return
        value = {**typed, **value}
        missing = [name for name in ("apiVersion", "kind") if not value.get(name)]
        wrong = [name for name in ("apiVersion", "kind") if not isinstance(value.get(name), str)]
        if missing or wrong:
            said = f"{missing[0]} is missing" if missing else f"{wrong[0]} must be a text"
            self.complain(document, path, said)
        elif value["kind"].endswith("List") and isinstance(value.get("items"), list | None) and len(path) < 20:
            yield from self.listed(document, value, path)
        else:
            problems = list(decoding.complaints(value, lambda where: document.written(*path, *where)))
            for where, text in problems:
                self.complain(document, (*path, *where), decoding.sentence((*path, *where), text))
            if not problems:
                yield Item(value, path, document.line_of(path))

    def listed(self, document: Document, value: Mapping[str, Any], path: Path) -> Iterator[Item]:
        typed: Mapping[str, str] = {}
        if value["kind"] != "List":
            typed = {"apiVersion": value["apiVersion"], "kind": value["kind"].removesuffix("List")}
        for index, item in enumerate(value.get("items") or []):
            yield from self.items(document, item, (*path, "items", index), typed)

    def complain(self, document: Document, path: Path, text: str) -> None:
        raw = at(document.data, path)
        said = (
            f"{text}. {_TEMPLATE[0].upper()}{_TEMPLATE[1:]}" if isinstance(raw, str) and _BRACES.search(raw) else text
        )
        self.complaints.append(Complaint(self.name, document.line_of(path), said))
