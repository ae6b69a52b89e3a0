"""The command that explains the rules: a table of all of them, or the page of one."""

import re
import shutil
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from textwrap import wrap
from typing import Final

import click

from webhook.command import refuse
from webhook.core import page
from webhook.core.option import unknown
from webhook.core.rule import Rule
from webhook.core.schema import FIX, LEVEL
from webhook.report import text as text_report
from webhook.report.finding import printable
from webhook.report.text import Span
from webhook.rules import RULES
from webhook.source import scalar

Line = list[Span]
WIDEST: Final = 100  # columns that prose takes at most
_MARKED: Final = re.compile(r"(\*\*.+?\*\*|`[^`]+`)")


@click.command()
@click.argument("rule", required=False)
def explain(rule: str | None) -> None:
    """Explains a rule, or lists them all.

    A rule's page says what breaks in a cluster, what the fix does, and where its limits are. RULE is
    the word in brackets at the end of a message.

    \b
    Examples:
      drainproof explain
      drainproof explain grace-budget
    """
    known = {one.id: one for one in RULES}
    if rule is not None and rule not in known:
        refuse([f"{printable(rule)}: {_unknown(rule, list(known))}"])
    width = min(shutil.get_terminal_size((WIDEST, 0)).columns, WIDEST) if sys.stdout.isatty() else WIDEST
    text_report.show(_table() if rule is None else _page(known[rule], width), sys.stdout)


def _unknown(rule: str, known: list[str]) -> str:
    """What to say of a rule that is not there, with all that may have been meant."""
    word = rule.strip("()[] ").lower().replace("_", "-").replace(" ", "-")
    near = [one for one in known if word and word in one] or get_close_matches(word, known, n=3)
    return f"there is no such rule; did you mean {' or '.join(near)}?" if near else unknown(rule, known, "rule")


def _table() -> Iterator[Line]:
    wide = max(len(rule.id) for rule in RULES)
    yield [(f"{'RULE':<{wide}}  LEVEL   FIX   WHAT IT IS ABOUT", "bold")]
    for rule in RULES:
        level, fix = rule.level.value, page.fix(rule).replace("none", "-")
        yield [(f"{rule.id:<{wide}}", "bold"), (f"  {level:<6}  {fix:<4}  ", ""), *_spans(page.summary(rule))]


def _page(rule: Rule, width: int) -> Iterator[Line]:
    first, *rest = page.paragraphs(rule)
    yield [(rule.id, "bold underline")]
    yield from _wrapped(first, width)
    yield []
    yield [("level ", "dim"), (rule.level.value, ""), ("   fix ", "dim"), (page.fix(rule), "")]
    yield from _wrapped(f"looks at {', '.join(page.kinds(rule))}", width)
    for paragraph in rest:
        yield []
        yield from _wrapped(paragraph, width)
    yield from ([], [(f"In a policy, under rules.{rule.id}:", "bold")])
    for name, takes, default, says in _settings(rule):
        yield [(f"  {name}: {default}", "bold"), (f"  ({takes})", "dim")]
        yield from _wrapped(says, width, "      ")


def _settings(rule: Rule) -> Iterator[tuple[str, str, str, str]]:
    """Everything that a policy can say of a rule: its name, what it takes, its default, what it is for."""
    yield "level", "ignore, warn or deny", rule.level.value, LEVEL
    if rule.fix is not None:
        yield "fix", "true or false", scalar.written(rule.fix), FIX
    for one in page.entries(rule):
        yield one.name, page.takes(one.kind), str(one.default), one.says


def _wrapped(text: str, width: int, indent: str = "") -> Iterator[Line]:
    lines = wrap(
        text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return (_spans(line) for line in lines)


def _spans(text: str) -> Line:
    """A line of Markdown with its marks turned into styles; backticks stay, for what they set apart is to be typed."""
    parts = [part for part in _MARKED.split(text) if part]
    return [(part.strip("*"), "bold") if part.startswith("**") else (part, "cyan" * (part[0] == "`")) for part in parts]
