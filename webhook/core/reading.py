"""Reading a document of ours: the parts that every section is made of, and every problem at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from webhook.core import option
from webhook.core.patch import Path, dotted
from webhook.core.rule import quoted
from webhook.core.ruleset import API_VERSION

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong in a document."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.path) or 'the document'}: {self.text}"


class PolicyError(ValueError):
    """A document that cannot be used; `problems` has everything that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Reader:
    """Collects what is wrong while the parts of a document are read."""

    problems: list[Problem] = field(default_factory=list)

    def complain(self, path: Path, text: str) -> None:
        self.problems.append(Problem(path, text))

    def known(self, path: Path, given: Mapping[Any, Any], names: Iterable[str], what: str = "field") -> None:
        names = tuple(names)
        for name in given:
            if name not in names:
                self.complain((*path, str(name)), option.unknown(name, names, what))

    def section(self, path: Path, given: Any) -> dict[str, Any]:
        """A map; an empty one, with a complaint, where something else stands."""
        if given is None or isinstance(given, dict):
            return given or {}
        self.complain(path, f"{quoted(given)} is not allowed; write a map")
        return {}

    def value(self, path: Path, given: Mapping[Any, Any], name: str, kind: Any, default: Any) -> Any:
        """The member `name` of a map as a `kind` of option; the default where it is absent, or wrong."""
        if name not in given:
            return default
        try:
            return option.value_of(kind, given[name])
        except option.OptionError as error:
            self.complain((*path, name), str(error))
            return default

    def head(self, document: Any, kind: str, fields: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(document, dict):
            self.complain((), f"it must be a map that starts with apiVersion: {API_VERSION} and kind: {kind}")
            return {}
        self.known((), document, fields)
        for name, right in (("apiVersion", API_VERSION), ("kind", kind)):
            if document.get(name) != right:
                self.complain((name,), f"{quoted(document.get(name))} is not known; write {right}")
        return document

    def items(self, document: dict[str, Any], name: str) -> list[tuple[Path, dict[str, Any]]]:
        found = document.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            self.complain((name,), f"{quoted(found)} is not allowed; write a list")
            return []
        return [((name, index), self.section((name, index), one)) for index, one in enumerate(found)]

    def globs(self, path: Path, given: dict[str, Any], name: str) -> Names:
        found: Names = self.value(path, given, name, Names, ())
        if given.get(name) == []:
            self.complain((*path, name), "an empty list matches nothing; write a list of globs, or take it out")
        return found
