"""Run the lab, and write docs/lab.md with its pictures from what was seen."""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.cluster import process
from tests.lab import node, page
from tests.lab.laboratories import LABORATORIES
from tests.lab.laboratory import Report, report
from tests.lab.picture import picture

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"


def write(told: Report, docs: Path) -> None:
    """Write the page and the pictures below `docs`, in the place of those that are there."""
    folder = docs / page.FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for result in told.results:
        if result.observation.runs:
            drawn = picture(page.heading(result.experiment), result.observation)
            (docs / page.place(result.experiment)).write_text(drawn, encoding="utf-8")
    (docs / "lab.md").write_text(page.page(told), encoding="utf-8")


def main() -> int:
    """1 where something came otherwise than expected or there is no lab; 130, and the page as it was, for Ctrl-C."""
    process.end_by_signal()
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {text}", file=sys.stderr, flush=True)

    try:
        with tempfile.TemporaryDirectory(prefix="drainproof-lab-") as folder:
            told = report(LABORATORIES, Path(folder), say)
    except KeyboardInterrupt:
        return 130
    except node.ERRORS as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    write(told, DOCS)
    say(f"{DOCS / 'lab.md'}: {'everything came as expected' if told.holds else 'NOT everything came as expected'}")
    return 0 if told.holds else 1


if __name__ == "__main__":
    sys.exit(main())
