"""A timeline as SVG: a lane for each Pod or container, and the runs of an experiment above each other on one axis.

Pure, and the picture needs nothing either: no script, no font of its own, readable on a light page and on a dark one.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate
from typing import Final

from tests.lab.experiment import Bar, Lane, Mark, Observation, Phase, Run, Sign

WIDTH: Final = 860
LEFT: Final = 150  # where lanes begin
RIGHT: Final = 16
LANE: Final = 30
BAR: Final = 12
TITLE: Final = 30  # above the lanes of a run
FOOT: Final = 26  # for the axis
LEGEND: Final = 22
LETTER: Final = 6.3  # pixels of one, about
WIDEST: Final = 300  # pixels that the lanes leave to a text at their right end
TICKS: Final = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
MOST_TICKS: Final = 13
SHORTEST: Final = 5  # seconds of an axis
UNTOLD: Final = (Sign.ASKED, Sign.TERM, Sign.KILL)  # the others have their words beside them
STYLE: Final = """\
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#24292f}
.run{font-weight:600}.faint{fill:#59636e}
.grid{stroke:#d0d7de}.zero{stroke:#8b949e;stroke-dasharray:3 3}
.starting{fill:none;stroke:#8b949e;stroke-dasharray:2 2}.protected{fill:#2a5d94}.running{fill:#4a90d9}
.preStop{fill:#9a7fd6}.after-SIGTERM{fill:#d9982b}.node-there{fill:#57a773}
.ink{fill:#24292f}.line{stroke:#24292f;stroke-width:2}.kill{stroke:#d1242f;stroke-width:2.5}.term{fill:#b35900}
@media(prefers-color-scheme:dark){text,.ink{fill:#e6edf3}.faint{fill:#9198a1}.grid{stroke:#3d444d}
.line{stroke:#e6edf3}.kill{stroke:#ff7b72}.term{fill:#f0b35a}}"""


def picture(title: str, observation: Observation) -> str:
    """The SVG of all runs of an observation."""
    runs = observation.runs
    axis = _Axis(runs)
    height = sum(map(_height, runs)) + FOOT + LEGEND + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-labelledby="title desc">',
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="desc">{escape(" ".join(sentences(runs)))}</desc>',
        f"<style>{STYLE}</style>",
        *axis.grid(),
    ]
    top = 0
    for run in runs:
        lines.append(_text(8, top + 19, run.title, "run"))
        top += TITLE
        for lane in run.lanes:
            lines += _lane(lane, top, axis)
            top += LANE
    lines += _legend(runs, height - 10)
    return "\n".join([*lines, "</svg>", ""])


def sentences(runs: Sequence[Run]) -> Iterator[str]:
    """The picture in words, a sentence for each lane."""
    for run in runs:
        for lane in run.lanes:
            bars = [f"{bar.phase} from {bar.begin:.1f} s to {bar.end:.1f} s" for bar in lane.bars]
            marks = [f"{mark.text or mark.sign} at {mark.at:.1f} s" for mark in lane.marks]
            if bars or marks:
                yield f"{run.title}, {lane.name}: {', '.join([*bars, *marks])}."


class _Axis:
    """Seconds to pixels, the same for all runs."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        lanes = [lane for run in runs for lane in run.lanes]
        moments = [at for lane in lanes for bar in lane.bars for at in (bar.begin, bar.end)]
        moments += [mark.at for lane in lanes for mark in lane.marks] or [0, 1]
        self.first = min(moments)
        self.last = max(*moments, self.first + SHORTEST)
        room = WIDTH - LEFT - RIGHT
        texts = [
            (mark.at - self.first, min(_width(mark), WIDEST)) for lane in lanes for mark in lane.marks if mark.text
        ]
        fitting = [(room - width) / at for at, width in texts if at > 0]
        self.scale = min([room / (self.last - self.first), *fitting])

    def x(self, seconds: float) -> float:
        return LEFT + (seconds - self.first) * self.scale

    def grid(self) -> Iterator[str]:
        """The lines of the grid below the titles, with their seconds at the bottom."""
        bottoms = [*accumulate(_height(run) for run in self.runs)]
        spans = [(bottom - _height(run) + TITLE - 6, bottom) for run, bottom in zip(self.runs, bottoms, strict=True)]
        step = next((one for one in TICKS if (self.last - self.first) / one <= MOST_TICKS), TICKS[-1])
        tick = -(-self.first // step) * step + 0.0  # and no -0.0
        while tick <= self.last:
            x = f"{self.x(tick):.1f}"
            kind = "zero" if tick == 0 else "grid"
            yield f'<path class="{kind}" d="{"".join(f"M{x} {top}V{bottom}" for top, bottom in spans)}"/>'
            yield _text(self.x(tick), sum(map(_height, self.runs)) + 15, f"{tick:g} s", "faint", "middle")
            tick += step


def _height(run: Run) -> int:
    return TITLE + LANE * len(run.lanes)


def _lane(lane: Lane, top: float, axis: _Axis) -> Iterator[str]:
    middle = top + LANE / 2
    yield _text(16, middle + 4, lane.name)
    for bar in lane.bars:
        yield _bar(bar, middle, axis)
    for mark in lane.marks:
        yield _mark(mark.sign, axis.x(mark.at), middle, f"{mark.text or mark.sign}, {mark.at:.1f} s")
    yield from _labels(lane, middle, axis)


def _bar(bar: Bar, middle: float, axis: _Axis) -> str:
    x, width = axis.x(bar.begin), (bar.end - bar.begin) * axis.scale
    told = f"{bar.phase}, {bar.begin:.1f} s to {bar.end:.1f} s"
    return (
        f'<rect class="{bar.phase.replace(" ", "-")}" x="{x:.1f}" y="{middle - BAR / 2:g}" width="{max(width, 1):.1f}" '
        f'height="{BAR}" rx="2"><title>{told}</title></rect>'
    )


def _mark(sign: Sign, x: float, y: float, told: str = "") -> str:
    """The symbol of a sign at a place."""
    title = f"<title>{escape(told)}</title>" if told else ""
    match sign:
        case Sign.ASKED:
            return f'<path class="ink" d="M{x - 5:.1f} {y - 14:g}h10l-5 8z">{title}</path>'
        case Sign.TERM:
            return f'<path class="term" d="M{x - 5:.1f} {y + 14:g}h10l-5 -8z">{title}</path>'
        case Sign.KILL:
            return f'<path class="kill" d="M{x - 5:.1f} {y - 7:g}l10 14m0 -14l-10 14">{title}</path>'
        case Sign.EXIT:
            return f'<path class="line" d="M{x:.1f} {y - 8:g}v16">{title}</path>'
        case Sign.STATE:
            return f'<circle class="ink" cx="{x:.1f}" cy="{y:g}" r="4">{title}</circle>'


def _labels(lane: Lane, middle: float, axis: _Axis) -> Iterator[str]:
    """The texts of the marks: to the right of them where there is room before the next text, else to the left."""
    marks = [mark for mark in lane.marks if mark.text]
    for number, mark in enumerate(marks):
        x = axis.x(mark.at)
        following = axis.x(marks[number + 1].at) - 8 if number + 1 < len(marks) else WIDTH
        if x + _width(mark) <= following:
            yield _text(x + 8, middle + 4, mark.text)
        else:
            yield _text(x - 8, middle + 4 - (0 if _is_free(lane, mark) else LANE / 2 - 1), mark.text, "", "end")


def _width(mark: Mark) -> float:
    """The pixels that a mark and its text take."""
    return LETTER * len(mark.text) + 10


def _is_free(lane: Lane, mark: Mark) -> bool:
    """Whether there is nothing to the left of a mark."""
    return not any(bar.begin < mark.at for bar in lane.bars)


def _legend(runs: Sequence[Run], baseline: float) -> Iterator[str]:
    """What the colours and symbols mean, of those that there are."""
    lanes = [lane for run in runs for lane in run.lanes]
    phases, signs = (
        {bar.phase for lane in lanes for bar in lane.bars},
        {mark.sign for lane in lanes for mark in lane.marks},
    )
    x = 16.0
    for phase in (one for one in Phase if one in phases):
        yield f'<rect class="{phase.replace(" ", "-")}" x="{x:g}" y="{baseline - 9:g}" width="18" height="10" rx="2"/>'
        yield _text(x + 24, baseline, phase)
        x += 42 + LETTER * len(phase)
    for sign in (
        one for one in (Sign.ASKED, Sign.TERM, Sign.KILL) if one in signs
    ):  # the others have their words beside them
        yield _mark(sign, x + 5, baseline - 4 + (10 if sign is Sign.ASKED else -10 if sign is Sign.TERM else 0))
        yield _text(x + 16, baseline, sign)
        x += 34 + LETTER * len(sign)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "") -> str:
    words = (f' class="{kind}"' if kind else "") + (f' text-anchor="{anchor}"' if anchor else "")
    return f'<text x="{x:.1f}" y="{y:g}"{words}>{escape(text)}</text>'
