"""Manifests as the webhook would leave them: in the author's own text, as a diff, or as patches."""

import codecs
import contextlib
import difflib
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path as File
from typing import Any, Final

from webhook.core.patch import Path
from webhook.judging import Judged, patched
from webhook.report.finding import printable
from webhook.source import splice
from webhook.source.document import Complaint, Document, Source

_BIG_ENDIAN: Final = ((codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def text(source: Source, judgements: Iterable[Judged]) -> tuple[str, list[Complaint]]:
    """The text of a source with every object of it mended; a complaint for each document that has to stay as it is."""
    parts: list[str] = []
    complaints: list[Complaint] = []
    place = 0
    by_document: dict[int, list[Judged]] = {}
    for judgement in judgements:
        by_document.setdefault(judgement.document.start, []).append(judgement)
    for document in source.documents:
        parts.append(source.text[place : document.start])
        place = document.end
        try:
            parts.append(_mended(document, by_document.get(document.start, [])))
        except splice.SpliceError as error:
            complaints.append(Complaint(source.name, document.line, f"{error}; see --patch"))
            parts.append(document.text)
    return "".join([*parts, source.text[place:]]), complaints


def _mended(document: Document, judgements: Iterable[Judged]) -> str:
    wanted = document.data
    for judgement in judgements:
        result, steps = patched(judgement)
        if steps:
            wanted = _placed(wanted, judgement.item.path, result)
    return document.text if wanted is document.data else splice.rewritten(document.text, wanted, document.is_json)


def _placed(document: Any, path: Path, value: Any) -> Any:
    """A copy of `document` with `value` at `path`, where something stands already."""
    if not path:
        return value
    copy = document.copy()
    copy[path[0]] = _placed(document[path[0]], path[1:], value)
    return copy


def joined(texts: Iterable[str]) -> Iterator[str]:
    """Several manifests as one."""
    for index, manifest in enumerate(texts):
        if index and not manifest.startswith("---"):
            yield "---\n"
        yield manifest if manifest.endswith("\n") or not manifest else manifest + "\n"


def diff(source: Source, mended: str) -> Iterator[str]:
    """A unified diff from the author's text to the mended one."""
    before, after = source.text.splitlines(keepends=True), mended.splitlines(keepends=True)
    name = printable(source.name.lstrip("/"))
    for line in difflib.unified_diff(before, after, f"a/{name}", f"b/{name}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def patch(judgement: Judged) -> str:
    """One line of JSON: what the object is, and the steps that apply to it as its author wrote it."""
    line: Mapping[str, Any] = {**judgement.subject, "patch": patched(judgement)[1]}
    return json.dumps(line)


def write(source: Source, mended: str) -> None:
    """Puts the mended text in the file's place in one step; its mode and encoding stay. Raises OSError."""
    file = File(source.name).resolve()
    content = _encoded(mended, source.encoding, file.read_bytes()[:4])
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), file.stat().st_mode & 0o7777)
        os.replace(temporary, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _encoded(text: str, encoding: str, mark: bytes) -> bytes:
    """The bytes of a text; in UTF-16 and UTF-32, in the order of bytes that the file's first ones tell."""
    for bom, name in _BIG_ENDIAN:
        if name.startswith(encoding) and mark.startswith(bom):
            return bom + text.encode(name)
    return text.encode(encoding)
