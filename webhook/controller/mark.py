"""How far what there is to say of Pods has been said: a stretch of their history, which replicas hand on by the Lease.

Resource versions of one kind can be compared as numbers: promised since Kubernetes 1.35 (KEP-5504), and true before.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from webhook.core.undone import Stopped

ANNOTATION: Final = "drainproof.dev/watched"
_FORM: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


@dataclass(frozen=True, slots=True)
class Found:
    """A Pod that there is something to say about, or to find out first.

    Its state stood from the resource version `first` to `last`, as far as is known; where its end was not seen, it came
    to its end between `last` and `first`. `found_at` is in seconds of a clock that only runs.
    """

    pod: Stopped
    has_succeeded: bool
    counts: bool
    first: int
    last: int
    found_at: float


@dataclass(frozen=True, slots=True)
class Mark:
    """From `since` to `until` leaders watched without a gap, and said all there was to say."""

    since: int
    until: int

    def covers(self, found: Found) -> bool:
        """Whether a leader has dealt with it."""
        return found.first <= self.until and self.since <= found.last

    def misses(self, found: Found) -> bool:
        """Whether no leader will: it was over before the leader began to watch."""
        return found.last < self.since

    def __str__(self) -> str:
        return f"{self.since}-{self.until}"


def mark_in(annotations: Mapping[str, str]) -> Mark | None:
    """The mark in the annotations of a Lease; None where there is none that can be read."""
    match = _FORM.fullmatch(str(annotations.get(ANNOTATION, "")))
    return Mark(int(match[1]), int(match[2])) if match else None
