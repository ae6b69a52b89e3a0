"""Findings as lines for people: a heading for each file, a line for each finding."""

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TextIO

from webhook.report.finding import Finding, printable

Span = tuple[str, str]
"""Some text and its style, in rich's words; an empty style is plain."""

_STYLES = {"deny": "bold red", "warn": "yellow"}


def rendered(findings: Iterable[Finding]) -> Iterator[list[Span]]:
    """The lines, each as its spans."""
    for file, group in groupby(findings, key=lambda finding: finding.file):
        yield [(printable(file), "bold underline")]
        for finding in group:
            yield [
                (f"{finding.line:>5}  ", "dim"),
                (f"{finding.level:<4}  ", _STYLES.get(finding.level, "")),
                (f"{finding.subject}: ", "bold"),
                (finding.message, ""),
            ]
        yield []


def show(lines: Iterable[list[Span]], stream: TextIO) -> None:
    """Writes lines to a stream; in colour only on a terminal, and not where NO_COLOR is set (no-color.org)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        stream.writelines("".join(text for text, _ in line) + "\n" for line in lines)
        return
    from rich.console import Console  # noqa: PLC0415 - a quarter of the start-up time, and only a terminal needs it
    from rich.text import Text  # noqa: PLC0415

    console = Console(file=stream, highlight=False)
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
