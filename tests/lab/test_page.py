"""docs/lab.md has a section for each experiment in the words of today, and a picture in the form of today."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.lab import page
from tests.lab.__main__ import DOCS, write
from tests.lab.experiment import (
    EXPECTED,
    MEANING,
    Bar,
    Claim,
    Experiment,
    Figure,
    Lane,
    Observation,
    Phase,
    Result,
    Run,
    between,
    contains,
    described,
    equal,
)
from tests.lab.laboratories import EXPERIMENTS
from tests.lab.laboratory import Report
from tests.lab.picture import STYLE

WRITTEN = (DOCS / "lab.md").read_text(encoding="utf-8")
STALE = "run make lab"
MOST_BYTES = 15_000
EACH = pytest.mark.parametrize("one", EXPERIMENTS, ids=[f"{one.number:02}" for one in EXPERIMENTS])
RUN = Run("Without", (Lane("Pod 1", (Bar(Phase.RUNNING, 0, 1),)),))
GOOD = Claim("it is", "so", "so", True)
BAD = Claim("it is not | was not", "so", "otherwise", False)
ONE = Experiment(
    1,
    "One thing",
    "What was done.",
    "What must be.",
    "What of it.",
    manifest={"kind": "Job", "spec": {"parallelism": 2}},
)
TWO = Experiment(12, "Another thing, too", "Done.", "Must.", "So.")


def report(*claims: Claim) -> Report:
    figures = (Figure("it took", 1.25), Figure("of", 3, "Pods"))
    results = (Result(ONE, Observation((RUN,), claims, figures), 1), Result(TWO, Observation(claims=(GOOD,)), 2))
    return Report(results, {"Kernel": "Linux"})


@EACH
def test_the_page_has_the_words_of_an_experiment(one: Experiment) -> None:
    _, found, after = WRITTEN.partition(f"\n## {page.heading(one)}\n")
    assert found, STALE
    section = after.partition("\n## ")[0]
    for paragraph in (*page.words(one), one.meaning):
        assert paragraph in section, STALE
    assert re.search(r"^\| [✓✗] \| ", section, re.MULTILINE), STALE


@EACH
def test_the_picture_of_an_experiment_is_there_and_of_the_form_of_now(one: Experiment) -> None:
    assert f"]({page.place(one)})" in WRITTEN, STALE
    drawn = (DOCS / page.place(one)).read_text(encoding="utf-8")
    assert ElementTree.fromstring(drawn).findtext("{http://www.w3.org/2000/svg}title") == page.heading(one), STALE
    assert STYLE in drawn, STALE
    assert len(drawn.encode()) < MOST_BYTES


def test_the_page_has_no_section_and_no_picture_of_what_is_gone() -> None:
    assert re.findall(r"^## (.*)$", WRITTEN, re.MULTILINE) == [page.heading(one) for one in EXPERIMENTS], STALE
    pictures = {str(path.relative_to(DOCS)) for path in (DOCS / page.FOLDER).iterdir()}
    assert pictures == {page.place(one) for one in EXPERIMENTS}, STALE


def test_the_table_of_contents_leads_to_every_section() -> None:
    for one in EXPERIMENTS:
        assert f"](#{page._anchor(one)}) |" in WRITTEN, STALE


def test_every_experiment_has_a_number_of_its_own_and_says_everything() -> None:
    assert len({one.number for one in EXPERIMENTS}) == len(EXPERIMENTS)
    for one in EXPERIMENTS:
        assert all((one.title, one.done, one.expected, one.meaning, one.observe or one.alone)), one.number


def test_a_docstring_becomes_an_experiment() -> None:
    text = f"""A title.

    What is done,
    in two lines.

    And more.

    {EXPECTED}This.

    {MEANING}That.

    And that.
    """
    one = described(7, text)
    assert (one.number, one.title) == (7, "A title")
    assert (one.done, one.expected) == ("What is done, in two lines.\n\nAnd more.", "This.")
    assert one.meaning == "That.\n\nAnd that."


def test_a_section_says_what_was_done_expected_and_seen() -> None:
    assert page.page(report(GOOD)).partition("\n## ")[2].partition("\n## ")[0].split("\n\n") == [
        "1 · One thing",
        "What was done.",
        "```yaml\nkind: Job\nspec:\n  parallelism: 2\n```",
        "**Expected.** What must be.",
        "**Seen.** As expected.",
        "![What became of each Pod, in seconds](lab/01.svg)",
        "| | what | expected | seen |\n|---|---|---|---|\n| ✓ | it is | so | so |",
        "Measured: it took 1.2 s; of 3 Pods.",
        "**What it means.** What of it.\n",
    ]


def test_a_claim_that_does_not_hold_is_shown_as_such() -> None:
    told = page.page(report(GOOD, BAD))
    assert "**Seen.** **Not as expected: 1 of 2 did not come out.**" in told
    assert "| ✗ | it is not \\| was not | so | otherwise |" in told
    assert "| 1 | [One thing](#1--one-thing) | ✗ |\n| 12 | [Another thing, too](#12--another-thing-too) | ✓ |" in told
    assert not report(GOOD, BAD).holds
    assert report(GOOD).holds


def test_the_page_and_its_pictures_take_the_place_of_the_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "99.svg").touch()
    write(report(GOOD), tmp_path)
    assert [path.name for path in (tmp_path / "lab").iterdir()] == ["01.svg"]  # the other one has nothing to show
    assert (tmp_path / "lab.md").read_text(encoding="utf-8") == page.page(report(GOOD))


@pytest.mark.parametrize(
    ("claim", "seen", "holds"),
    [
        (between("", 20.04, 19.5, 25, about="about 20 s"), "20.0 s", True),
        (between("", 19.4, 19.5, 25), "19.4 s", False),
        (between("", -0.04, -0.1, 1), "0.0 s", True),
        (between("", None, 0, 1), "not seen", False),
        (equal("", 1, 1), "1", True),
        (equal("", 1, 0), "1", False),
        (contains("", "said (rule)", "(rule)"), "said (rule)", True),
        (contains("", "", "(rule)"), "nothing", False),
    ],
)
def test_a_claim_says_what_was_seen_and_whether_it_holds(claim: Claim, seen: str, holds: bool) -> None:
    assert (claim.seen, claim.holds) == (seen, holds)
