"""The command explain: the table of the rules, and their pages."""

import io
import re

import pytest
from click.testing import CliRunner, Result

from webhook import explaining
from webhook.cli import main
from webhook.core import page
from webhook.core.rule import Rule
from webhook.report import text as text_report
from webhook.rules import RULES


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments])


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_table_has_a_line_for_each_rule() -> None:
    lines = run().stdout.splitlines()
    assert len(lines) == 1 + len(RULES)
    for line, rule in zip(lines[1:], RULES, strict=True):
        words = line.split()
        assert words[:3] == [rule.id, rule.level.value, page.fix(rule).replace("none", "-")]
        assert line.endswith(page.summary(rule))


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_page_is_plain_text_that_fits_a_terminal(rule: Rule) -> None:
    text = run(rule.id).stdout
    assert "\x1b" not in text
    assert "**" not in text
    assert max(map(len, text.splitlines())) <= explaining.WIDEST
    assert text.startswith(f"{rule.id}\n")
    for entry in page.entries(rule):
        assert f"  {entry.name}: {entry.default}  ({page.takes(entry.kind)})\n" in text
    assert ("  fix: " in text) == (rule.fix is not None)


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_a_page_says_in_order_what_breaks_what_the_fix_does_and_where_it_ends(rule: Rule) -> None:
    first, *rest = page.paragraphs(rule)
    assert first.endswith(".")
    assert len(first) <= 120
    labels = [match[1] for one in rest if (match := re.match(r"\*\*(.+?)\.\*\*", one))]
    assert labels == (["Limits"] if rule.fix is None else ["What the fix does", "Limits"])


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("grace", "grace-budget"),
        ("grace_budget", "grace-budget"),
        ("(exit-code)", "exit-code"),
        ("do-not-distrupt", "do-not-disrupt"),
        ("policy", "restart-policy or pod-failure-policy or pod-replacement-policy or concurrency-policy"),
    ],
)
def test_an_unknown_rule_is_told_what_was_probably_meant(word: str, meant: str) -> None:
    result = run(word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"Error: {word}: there is no such rule; did you mean {meant}?\n"


@pytest.mark.parametrize("word", ["", "zzz", "\x1b[2J"])
def test_a_word_that_is_near_nothing_is_told_all_rules(word: str) -> None:
    result = run(word)
    assert result.exit_code == 2
    assert "there is no such rule; there are active-deadline, " in result.stderr
    assert "\x1b" not in result.stderr


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    text_report.show(explaining._page(RULES[1], 60), stream)
    assert "\x1b[" in stream.getvalue()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert plain.startswith("restart-policy\n")
    assert "What the fix does. " in plain
