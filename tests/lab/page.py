"""The page of the lab: what each experiment is, what must be seen in it, and what was. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tests.lab import program
from tests.lab.experiment import Claim, Experiment, Figure, Observation, Result
from tests.lab.laboratory import Report

FOLDER: Final = "lab"
INTRO: Final = """\
# The lab

What evictions, deadlines and grace periods do to Jobs, on real components and with drainproof beside them. `make lab`
runs every experiment and writes this page and its pictures from what it sees in that run; it ends with an error if
anything comes otherwise than expected. The same experiments are tests.

What is told here has three sources on one clock: a watch of the API, the events of the container runtime, and the
programs themselves, which say when they get SIGTERM. In the pictures 0 is the eviction or deletion, unless something
else is said; an eviction is what `kubectl drain` asks for, for each Pod. Where drainproof does not look, the namespace
is labelled `drainproof.dev/inject: disabled`.

Karpenter is the real one too, under its own ServiceAccount, and so is all that it asks of the API server. Its machines
are simulated by KWOK: a Pod there has no program, and ends with exit code 143 a second after it is told to go."""
PROGRAM: Final = f"""\
The programs are scripts for busybox's shell. Each begins with a function that the manifests below leave out:

```sh
{program.SAY.strip()}
```"""


def page(report: Report) -> str:
    """All of docs/lab.md."""
    parts = [INTRO, _facts(report.facts), _contents(report.results), PROGRAM]
    for result in report.results:
        parts += section(result)
    return "\n\n".join(parts) + "\n"


def heading(experiment: Experiment) -> str:
    """The title of an experiment's section, without its mark."""
    return f"{experiment.number} · {experiment.title}"


def place(experiment: Experiment) -> str:
    """Where its picture lies, from the page on."""
    return f"{FOLDER}/{experiment.number:02}.svg"


def words(experiment: Experiment) -> Iterator[str]:
    """The paragraphs of a section that do not depend on a run."""
    yield experiment.done
    if experiment.manifest:
        yield f"```yaml\n{program.yaml(program.excerpt(experiment.manifest))}\n```"
    yield f"**Expected.** {experiment.expected}"


def section(result: Result) -> Iterator[str]:
    """The section of one experiment."""
    one, observation = result.experiment, result.observation
    yield f"## {heading(one)}"
    yield from words(one)
    yield f"**Seen.** {_verdict(observation)}"
    if observation.runs:
        yield f"![What became of each Pod, in seconds]({place(one)})"
    yield "\n".join(["| | what | expected | seen |", "|---|---|---|---|", *map(_row, observation.claims)])
    if observation.figures:
        yield f"Measured: {'; '.join(map(_figure, observation.figures))}."
    yield f"**What it means.** {one.meaning}"


def _verdict(observation: Observation) -> str:
    if observation.holds:
        return "As expected."
    failed = sum(not claim.holds for claim in observation.claims)
    return f"**Not as expected: {failed} of {len(observation.claims)} did not come out.**"


def _row(claim: Claim) -> str:
    cells = (claim.text, claim.expected, claim.seen)
    return " | ".join(["| ✓" if claim.holds else "| ✗", *(cell.replace("|", "\\|") for cell in cells)]) + " |"


def _figure(figure: Figure) -> str:
    value = f"{figure.value:.1f}" if figure.value % 1 else f"{figure.value:g}"
    return f"{figure.name} {value} {figure.unit}".strip()


def _facts(facts: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())])


def _contents(results: Iterable[Result]) -> str:
    rows = (
        f"| {one.experiment.number} | [{one.experiment.title}](#{_anchor(one.experiment)}) "
        f"| {'✓' if one.observation.holds else '✗'} |"
        for one in results
    )
    return "\n".join(["| # | experiment | as expected |", "|---|---|---|", *rows])


def _anchor(experiment: Experiment) -> str:
    """As GitHub makes it of a heading: letters, digits and hyphens; each space becomes a hyphen."""
    kept = "".join(letter for letter in heading(experiment).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
