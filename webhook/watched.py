"""Files that may change while the server runs: what is good in them is taken over, and the last good one stays."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from webhook import policyfile
from webhook.policyfile import PolicyFileError

T = TypeVar("T")
Change = Literal["", "swapped", "broken", "mended"]


class Reloading(Protocol):
    """Something that comes from files, and is in force until they hold something else that can be used."""

    def reload(self) -> Change:
        """Looks at the content of the files and takes over what is new; what cannot be used changes nothing in force.

        Says what came of it once for each content: `mended` is the return of what is in force after something broken.
        """

    def remark(self) -> str:
        """Why the files cannot take the place of what is in force; empty where they are what is in force."""


class Watched(Generic[T]):
    """A file with what it means, which is `value`; None until it can be used for the first time.

    A mounted ConfigMap is replaced by a symbolic link far above the file, and mounts send no reliable events: so the
    content counts, and neither times nor events. Past the first look, a content is gone by once two looks in a row
    have found it: what is half written at one look is not at the next.
    A file that is `optional` may be missing until it could be used once.
    """

    def __init__(self, path: Path, meaning: Callable[[Path, bytes], T], optional: bool = False) -> None:
        self.path = path
        self.value: T | None = None
        self.generation = 0  # how often it was loaded
        self.loaded = 0.0  # when it was last, in seconds since 1970
        self.problems: tuple[str, ...] = ()
        self._meaning = meaning
        self._optional = optional
        self._good: object = None  # the content in force
        self._seen: object = None  # at the last look
        self._decided: object = None  # the content of which it was said what it is

    def reload(self) -> Change:
        """As Reloading has it."""
        content = self._content()
        settled = self._seen in (None, content)
        self._seen = content
        if not settled or content == self._decided:
            return ""
        self._decided = content
        if content == self._good or content == ():
            self.problems = ()
            return "mended" if self.generation else ""
        return self._taken(content)

    def remark(self) -> str:
        """As Reloading has it, with the first of the problems."""
        if not self.problems:
            return ""
        more = f"; and {len(self.problems) - 1} more" if self.problems[1:] else ""
        return " ".join(f"the file cannot be used: {self.problems[0]}{more}".split())

    def _content(self) -> bytes | tuple[str, ...]:
        """The content, or why there is none: no reasons where there need be none."""
        if self._optional and not self.generation and not self.path.exists():
            return ()
        try:
            return policyfile.content(self.path)
        except PolicyFileError as error:
            return error.problems

    def _taken(self, content: bytes | tuple[str, ...]) -> Change:
        try:
            if isinstance(content, tuple):
                raise PolicyFileError(content)
            self.value = self._meaning(self.path, content)
        except PolicyFileError as error:
            self.problems = error.problems
            return "broken"
        self._good, self.loaded, self.problems = content, time.time(), ()
        self.generation += 1
        return "swapped"
