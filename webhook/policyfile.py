"""A policy from a file in YAML or JSON, with every problem in it told at once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from webhook.core import policy
from webhook.core.policy import Policy, PolicyError
from webhook.core.rule import Rule
from webhook.source import yamltext
from webhook.source.node import SourceError, data


class PolicyFileError(ValueError):
    """A policy file that cannot be used; `problems` has a line for everything that is wrong with it."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def load(path: Path, rules: Iterable[Rule]) -> Policy:
    """The policy in a file. Raises PolicyFileError."""
    try:
        return policy.load(_document(path), rules)
    except PolicyError as error:
        raise PolicyFileError(f"{path}: {problem}" for problem in error.problems) from error


def _document(path: Path) -> Any:
    """What the file says, read by the YAML that manifests are read by; JSON is part of it."""
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        node = yamltext.parse(text)
    except OSError as error:
        raise PolicyFileError([f"{path}: it cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise PolicyFileError([f"{path}: it is not text in UTF-8"]) from error
    except SourceError as error:
        line = text.count("\n", 0, error.offset) + 1
        second = text.startswith("---", error.offset)
        said = "a second document starts here; a policy is one document" if second else str(error)
        raise PolicyFileError([f"{path}:{line}: {said}"]) from error
    return None if node is None else data(node)
