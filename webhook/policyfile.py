"""A policy, or facts for one, from a file in YAML or JSON, with every problem in it told at once."""

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from webhook.core import policy
from webhook.core.policy import Policy, PolicyError, Problem
from webhook.core.rule import Rule
from webhook.core.ruleset import Facts
from webhook.source import yamltext
from webhook.source.node import Node, SourceError, data, offset

Stated = TypeVar("Stated")


class PolicyFileError(ValueError):
    """A policy file that cannot be used; `problems` has a line for everything that is wrong with it."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load(path: Path, rules: Iterable[Rule]) -> Policy:
    """The policy in a file. Raises PolicyFileError."""
    return stated(path, content(path), rules)


def stated(path: Path, content: bytes, rules: Iterable[Rule]) -> Policy:
    """The policy in what a file contains. Raises PolicyFileError."""
    return _stated(path, content, "a policy is", lambda document: policy.load(document, rules))


def facts(path: Path, content: bytes) -> Facts:
    """The facts in what a file contains. Raises PolicyFileError."""
    return _stated(path, content, "facts are", policy.facts)


def content(path: Path) -> bytes:
    """What a file contains. Raises PolicyFileError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise PolicyFileError([f"{path}: it cannot be read: {error.strerror}"]) from error


def _stated(path: Path, content: bytes, what: str, load: Callable[[Any], Stated]) -> Stated:
    text = _text(path, content)
    node = _document(path, text, what)
    try:
        return load(None if node is None else data(node))
    except PolicyError as error:
        raise PolicyFileError(_placed(path, text, node, problem) for problem in error.problems) from error


def _placed(path: Path, text: str, node: Node | None, problem: Problem) -> str:
    """A problem with the line of what it speaks of; without one where that is the document as a whole."""
    if node is None or not problem.path:
        return f"{path}: {problem}"
    return f"{path}:{_line(text, offset(node, problem.path))}: {problem}"


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _text(path: Path, content: bytes) -> str:
    try:
        return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig").read()
    except UnicodeDecodeError as error:
        raise PolicyFileError([f"{path}: it is not text in UTF-8"]) from error


def _document(path: Path, text: str, what: str) -> Node | None:
    """What the file says, read by the YAML that manifests are read by; JSON is part of it."""
    try:
        return yamltext.parse(text)
    except SourceError as error:
        second = text.startswith("---", error.offset)
        said = f"a second document starts here; {what} one document" if second else str(error)
        raise PolicyFileError([f"{path}:{_line(text, error.offset)}: {said}"]) from error
