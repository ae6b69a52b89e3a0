"""The manifests of examples/: what each shows, and what its comment claims will come of it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

FOLDER: Final = Path(__file__).resolve().parents[3] / "examples"
POLICY: Final = FOLDER / "policy.yaml"
STORY: Final = (
    "plain-job",
    "on-failure-job",
    "own-failure-policy",
    "grace-too-short",
    "grace-wide-enough",
    "protected-without-end",
    "protected-not-at-all",
    "never-run-twice",
    "on-failure-cronjob",
    "deployment-grace-too-short",
)
_RULE: Final = re.compile(r" \(([a-z-]+)\)$")


@dataclass(frozen=True, slots=True)
class Example:
    """A manifest: `purpose` is the first line of its comment, `claim` what stands behind `Outcome:` in the last."""

    path: Path
    purpose: str
    claim: str
    document: dict[str, Any]

    @property
    def file(self) -> str:
        """How a person at the top of the repository names the file."""
        return f"{FOLDER.name}/{self.path.name}"


def read(path: Path) -> Example:
    """The example in a file."""
    text = path.read_text(encoding="utf-8")
    comment = re.match("(?:#.*\n)+", text)
    lines = [line.removeprefix("#").strip() for line in comment[0].splitlines()] if comment else [""]
    return Example(path, lines[0], lines[-1].removeprefix("Outcome: "), YAML(typ="safe", pure=True).load(text))


def story() -> list[Example]:
    """Every example, in the order in which one leads to the next."""
    return [read(FOLDER / f"{name}.yaml") for name in STORY]


def outcome(mended: bool, warned: Iterable[str], refused: Iterable[str]) -> str:
    """What came of a manifest, in the words of a claim. `warned` and `refused` are ids of rules."""
    if reasons := ", ".join(refused):
        return f"refused ({reasons})"
    warnings = ", ".join(warned)
    return ", ".join(["mended"] * mended + [f"warned ({warnings})"] * bool(warnings)) or "accepted as written"


def rules(messages: Iterable[str]) -> list[str]:
    """The ids of the rules that messages end with."""
    return [match[1] for match in map(_RULE.search, messages) if match]
