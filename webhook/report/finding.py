"""A finding as every report tells it."""

from dataclasses import dataclass


def printable(text: str) -> str:
    """`text` as a terminal can show it: control characters, and what no encoding holds, become question marks."""
    return "".join(c if c.isprintable() else "?" for c in text)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is said of one object; `line` is that of the field, and counts from 1."""

    file: str
    line: int
    kind: str
    namespace: str
    name: str
    rule: str
    level: str
    path: str
    message: str

    @property
    def subject(self) -> str:
        """The object as kubectl names it: `Job data/nightly`."""
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return printable(f"{self.kind} {name}")
