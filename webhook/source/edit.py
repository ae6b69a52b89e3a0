"""An edit of a text, and a text with all of its edits made."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in the place of the characters from `start` up to `end`."""

    start: int
    end: int
    text: str = ""


def applied(text: str, edits: Iterable[Edit]) -> str:
    """The edited text. The places are those of the text before; an insertion comes in front of what goes there."""
    parts, place = [], 0
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        parts += [text[place : edit.start], edit.text]
        place = edit.end
    return "".join([*parts, text[place:]])
