"""Findings as text and as JSON."""

import io
import json as parser

import pytest

from webhook.report import json, text
from webhook.report.finding import Finding

ONE = Finding("a.yaml", 3, "Job", "data", "etl", "grace-budget", "deny", "spec", "spec: no [bold] (grace-budget)")
TWO = Finding("a.yaml", 12, "Pod", "", "p\x1b[31m", "do-not-disrupt", "warn", "", "é (do-not-disrupt)")
THREE = Finding("b\udcff.yaml", 1, "Job", "", "x", "exemption", "warn", "", "y (exemption)")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    text.show(text.rendered([ONE, TWO, THREE]), stream)
    return stream.getvalue()


def test_text_has_a_heading_for_each_file_and_a_line_for_each_finding() -> None:
    assert shown(io.StringIO()).splitlines() == [
        "a.yaml",
        "    3  deny  Job data/etl: spec: no [bold] (grace-budget)",
        "   12  warn  Pod p?[31m: é (do-not-disrupt)",
        "",
        "b?.yaml",
        "    1  warn  Job x: y (exemption)",
        "",
    ]


def test_text_is_in_colour_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" in shown(Terminal())
    assert "no [bold] (grace-budget)" in shown(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in shown(Terminal())


def test_json_is_an_array_of_exactly_these_fields() -> None:
    found = parser.loads(json.rendered([ONE, TWO, THREE]))
    assert list(found[0]) == ["file", "line", "kind", "namespace", "name", "rule", "level", "path", "message"]
    assert found[1]["message"] == "é (do-not-disrupt)"
    assert json.rendered([]) == "[]"
