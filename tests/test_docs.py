"""The pages are up to date, what they show can be used as it stands, and their links lead somewhere."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pages import heading, main, pages
from tests.tables import CASES, read
from webhook.core import policy
from webhook.rules import RULES
from webhook.source import yamltext
from webhook.source.node import data

DOCS = Path(__file__).parents[1] / "docs"
PAGES = pages()
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)]+)\)")
MARKDOWN = sorted(DOCS.rglob("*.md"))
EVERY = pytest.mark.parametrize("path", MARKDOWN, ids=[str(path.relative_to(DOCS)) for path in MARKDOWN])


def blocks(path: Path, language: str) -> Iterator[str]:
    return (text for name, text in BLOCK.findall(path.read_text(encoding="utf-8")) if name == language)


def documents(path: Path) -> Iterator[Any]:
    for text in blocks(path, "yaml"):
        node = yamltext.parse(text)
        assert node is not None, text
        yield data(node)


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name], "run make docs"


def test_every_page_of_a_rule_has_its_rule() -> None:
    assert {path.stem for path in (DOCS / "rules").iterdir()} == {"README", *(rule.id for rule in RULES)}, (
        "remove the page of a rule that is gone"
    )


@EVERY
def test_every_snippet_is_read_as_yaml_and_every_policy_is_valid(path: Path) -> None:
    for document in documents(path):
        assert isinstance(document, dict)
        if document.get("kind") == "Policy":
            policy.load(document, RULES)


def test_the_page_about_the_policy_shows_every_section() -> None:
    whole = next(documents(DOCS / "policy.md"))
    assert set(whole) == set(policy.FIELDS)
    headings = set(re.findall(r"^## (\w+)$", (DOCS / "policy.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert headings == set(policy.FIELDS) - {"apiVersion", "kind"}


@EVERY
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target.partition("#")[0]).exists(), target


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_rule_shows_three_to_six_cases_that_a_page_can_show(rule: str) -> None:
    shown = [case for case in read(CASES / f"{rule}.yaml")["cases"] if case.get("page")]
    assert 3 <= len(shown) <= 6
    assert not [case["name"] for case in shown if "raw" in case or "old" in case]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("a Job gets Never", "A Job gets Never"),
        ("backoffLimit 0 is a contract", "backoffLimit 0 is a contract"),
        ("true becomes 24h", "true becomes 24h"),
    ],
)
def test_a_field_or_a_value_keeps_its_small_letter(name: str, title: str) -> None:
    assert heading(name) == title


def test_the_pages_are_written_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(tmp_path)
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(PAGES)
    assert json.loads((tmp_path / "policy.schema.json").read_text())["title"] == "Policy of drainproof"
    assert capsys.readouterr().out == f"{tmp_path}: {len(PAGES)} pages\n"
