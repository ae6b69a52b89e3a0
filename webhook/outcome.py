"""What comes of the files that a command is given, and the exit code that says so."""

import sys
from collections.abc import Iterable, Iterator
from typing import Final

import click

from webhook import manifest
from webhook.core.policy import Policy
from webhook.judging import Judged, Tally, judged
from webhook.source.document import Complaint, Source

MANY_FILES: Final = 200  # from here on, a terminal is shown how far it is


class Outcome:
    """What has come of everything so far, and so the exit code."""

    def __init__(self, chosen: Policy, fail_on: str) -> None:
        self.policy = chosen
        self.fail_on = fail_on
        self.tally = Tally()
        self.complained = False

    def of(self, source: Source) -> Iterator[Judged]:
        """Each object of a source, judged; complaints are printed."""
        self.complain(source.complaints)
        for one in judged(source, self.policy):
            if isinstance(one, Complaint):
                self.complain([one])
            else:
                self.tally.count(one)
                yield one

    def complain(self, complaints: Iterable[Complaint]) -> None:
        for complaint in complaints:
            self.complained = True
            click.echo(f"Error: {complaint}", err=True)

    def end(self) -> None:
        """Exits with the code that fits."""
        failed = self.tally.denied or (self.fail_on == "warn" and self.tally.warned)
        sys.stdout.flush()
        sys.exit(2 if self.complained else 1 if failed else 0)


def sources(names: Iterable[str], recursive: bool) -> Iterator[Source]:
    """Each file that `names` stand for, as it was read."""
    files = list(manifest.found(names, recursive))
    shown = len(files) > MANY_FILES and sys.stderr.isatty()
    for number, file in enumerate(files, start=1):
        if shown:
            click.echo(f"\r{number} of {len(files)} files", nl=number == len(files), err=True)
        yield manifest.load(file)
