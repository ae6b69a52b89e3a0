"""A picture shows each run, its lanes and what happened in them, and can be read by whoever cannot see it."""

from xml.etree import ElementTree

import pytest

from tests.lab.experiment import Bar, Lane, Mark, Observation, Phase, Run, Sign
from tests.lab.picture import LEFT, STYLE, WIDTH, picture, sentences

SPACE = "{http://www.w3.org/2000/svg}"
OLD = Lane(
    "Pod 1",
    (Bar(Phase.RUNNING, -3, 0), Bar(Phase.PRE_STOP, 0, 5), Bar(Phase.STOPPING, 5, 20)),
    (Mark(Sign.ASKED, 0), Mark(Sign.TERM, 5), Mark(Sign.KILL, 20, "exit 137 → Failed")),
)
NEW = Lane("Pod 2", (Bar(Phase.WAITING, 10, 11), Bar(Phase.RUNNING, 11, 40)), (Mark(Sign.EXIT, 40, "exit 0 → <none>"),))
RUNS = (Run("Without", (OLD,)), Run("With", (OLD, NEW, Lane("Job", (), (Mark(Sign.STATE, 1.5, "failed 1"),)))))
DRAWN = picture("3 · A & B", Observation(RUNS))


def texts(drawn: str) -> list[str | None]:
    return [element.text for element in ElementTree.fromstring(drawn).iter(f"{SPACE}text")]


def test_it_is_well_formed_with_a_title_and_a_description() -> None:
    root = ElementTree.fromstring(DRAWN)
    assert root.findtext(f"{SPACE}title") == "3 · A & B"
    assert root.findtext(f"{SPACE}desc") == " ".join(sentences(RUNS))
    assert root.get("role") == "img"


def test_it_has_no_script_and_fetches_nothing() -> None:
    assert {element.tag.removeprefix(SPACE) for element in ElementTree.fromstring(DRAWN).iter()} <= {
        *("svg", "title", "desc", "style", "path", "rect", "circle", "text"),
    }
    assert DRAWN.count("http") == 1  # the name of the language
    assert "url(" not in DRAWN


def test_dark_pages_have_colours_of_their_own() -> None:
    assert "@media(prefers-color-scheme:dark)" in STYLE
    assert STYLE in DRAWN


def test_every_run_lane_and_word_is_there() -> None:
    shown = texts(DRAWN)
    for text in ("Without", "With", "Pod 1", "Pod 2", "Job", "exit 137 → Failed", "exit 0 → <none>", "failed 1"):
        assert text in shown
    assert shown.count("Pod 1") == 2


def test_the_legend_names_what_there_is_and_nothing_else() -> None:
    for word in (Phase.RUNNING, Phase.PRE_STOP, Phase.STOPPING, Phase.WAITING, Sign.ASKED, Sign.TERM, Sign.KILL):
        assert texts(DRAWN).count(word) == 1
    assert Phase.HELD not in texts(DRAWN)


def test_all_runs_have_one_axis_from_the_first_moment_to_the_last() -> None:
    root = ElementTree.fromstring(DRAWN)
    bars = [element for element in root.iter(f"{SPACE}rect") if element.find(f"{SPACE}title") is not None]
    edges = [(float(bar.get("x", 0)), float(bar.get("width", 0))) for bar in bars]
    assert min(x for x, _ in edges) == LEFT
    assert edges[0] == edges[3]  # Pod 1 of both runs
    scale = edges[0][1] / 3
    for (_, width), seconds in zip(edges, (3, 5, 15, 3, 5, 15, 1, 29), strict=True):
        assert width == pytest.approx(seconds * scale, abs=0.6)
    assert {"0 s", "5 s", "40 s"} <= {*texts(DRAWN)}


@pytest.mark.parametrize("last", [0.3, 7, 90, 3000])
def test_a_text_at_the_right_end_stays_within_the_picture(last: float) -> None:
    lane = Lane("Pod 1", (Bar(Phase.RUNNING, 0, last),), (Mark(Sign.EXIT, last, "exit 143 → Failed"),))
    root = ElementTree.fromstring(picture("", Observation((Run("", (lane,)),))))
    (text,) = (element for element in root.iter(f"{SPACE}text") if element.text == "exit 143 → Failed")
    assert text.get("text-anchor") is None
    assert float(text.get("x", 0)) + 6 * len("exit 143 → Failed") < WIDTH


def test_a_text_without_room_before_the_next_one_stands_to_the_left() -> None:
    marks = (Mark(Sign.STATE, 10, "failed 1"), Mark(Sign.STATE, 10.5, "Failed"), Mark(Sign.STATE, 40, ""))
    root = ElementTree.fromstring(picture("", Observation((Run("", (Lane("Job", (), marks),)),))))
    anchors = {element.text: element.get("text-anchor") for element in root.iter(f"{SPACE}text")}
    assert anchors["failed 1"] == "end"
    assert anchors["Failed"] is None


def test_what_is_told_in_words_has_a_sentence_for_each_lane() -> None:
    told = list(sentences(RUNS))
    assert len(told) == 4
    assert told[0] == (
        "Without, Pod 1: running from -3.0 s to 0.0 s, preStop from 0.0 s to 5.0 s, "
        "after SIGTERM from 5.0 s to 20.0 s, eviction or deletion at 0.0 s, SIGTERM at 5.0 s, "
        "exit 137 → Failed at 20.0 s."
    )


def test_nothing_that_was_seen_makes_an_empty_picture() -> None:
    assert texts(picture("nothing", Observation((Run("Without", ()),))))[0] is not None
