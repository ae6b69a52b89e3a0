"""How the demo looks: in colour on a terminal, and the same words without colour in a log."""

import os
import re
import sys
import textwrap
from collections.abc import Iterable
from typing import Final, TextIO

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

LOG_WIDTH: Final = 100  # columns where there is no terminal to ask
WIDEST: Final = 120
_BREAKS: Final = re.compile(r'(\s+|(?<=,)(?="))')  # between words, and in JSON between values
_SIGNS: Final = {"+": "green", "-": "red"}
_WORDS: Final = {"Warning:": "yellow", "Error": "red"}


class Screen:
    """Where the demo writes; `stream` is stdout unless a test says otherwise."""

    def __init__(self, stream: TextIO | None = None) -> None:
        file = stream or sys.stdout
        if hasattr(file, "reconfigure"):
            file.reconfigure(errors="replace")  # a sign that the encoding lacks must not end the demo
        # https://no-color.org: no styles at all, as in every other output of this project.
        plain = bool(os.environ.get("NO_COLOR"))
        self._console = Console(file=file, color_system=None if plain else "auto", highlight=False, markup=False)
        known = self._console.is_terminal or "COLUMNS" in os.environ
        self._console.width = min(self._console.width, WIDEST) if known else LOG_WIDTH
        self._tick = "✓" if self._console.encoding.startswith("utf") else "ok"

    def title(self, text: str) -> None:
        """The heading of a part."""
        self.gap()
        self._console.print(Rule(Text(text, "bold"), align="left", style="dim"))

    def gap(self) -> None:
        """An empty line."""
        self._console.print()

    def say(self, text: str, style: str = "", indent: int = 0, hanging: int = 0) -> None:
        """A paragraph; lines after its first are indented by `hanging` more."""
        wrapper = textwrap.TextWrapper(self._console.width, " " * indent, " " * (indent + hanging))
        wrapper.break_on_hyphens = False
        wrapper.wordsep_simple_re = _BREAKS
        self._line(Text(wrapper.fill(text), style))

    def command(self, words: str, answer: str = "", column: int = 0) -> None:
        """What a person could type, and on the same line, from `column` on, a short answer."""
        line = Text.assemble(("  $ ", "dim"), (words, "bold"))
        if answer:
            line.pad_right(max(2, column - len(words)))
            line.append(answer)
        self._line(line)

    def answer(self, text: str) -> None:
        """What kubectl answers, in its own words."""
        for line in text.splitlines():
            style = next((style for word, style in _WORDS.items() if line.startswith(word)), "")
            self.say(line, style, indent=4, hanging=2)

    def table(self, text: str) -> None:
        """A table of kubectl's, which has its own columns."""
        for line in text.splitlines():
            self._line(Text(f"    {line}" if line else ""))

    def diff(self, lines: Iterable[str]) -> None:
        """Lines of a diff, each after its sign."""
        for line in lines:
            self.say(f"{line[0]} {line[1:]}", _SIGNS.get(line[0], "dim"), indent=4, hanging=6)

    def verdict(self, text: str, is_right: bool) -> None:
        """Whether something came out as it should."""
        style, mark = ("green", self._tick) if is_right else ("bold red", "x")
        self.say(f"{mark} {text}", style, indent=2, hanging=len(mark) + 1)

    def _line(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)
