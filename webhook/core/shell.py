"""How long an exec preStop hook certainly sleeps; whatever is not plain is unknown."""

import math
import re
from collections.abc import Sequence
from typing import Final

Nanoseconds = int | float  # a whole number, or math.inf for `sleep infinity`

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash"})
_OPERAND: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})([smhd]?)")
_SUFFIX: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}  # the same in GNU coreutils 9 and busybox 1.36

# One part of a script that is nothing but simple commands. A character that can start a substitution, a pipe, a
# background job, a group or an escape is in none of the alternatives, so that such a script does not match at all.
_WORD: Final = r"""(?:[^\s;&|<>()$`\\"'#]|(?<=[^\s;&])\#|'[^']*'|"[^"$`\\]*")+"""
_PART: Final = re.compile(
    rf"""(?P<blank>[ \t\r]+|\#[^\n]*)
    |(?P<redirect>[0-9]*(?:>>|>|<(?!<))(?:&[0-9]+|[ \t]*{_WORD}))
    |(?P<end>&&|;(?!;)|\n)
    |(?P<word>{_WORD})""",
    re.VERBOSE,
)
# Words after which a list of commands no longer runs from front to back, once each (POSIX shell grammar, 2.4, 2.14).
_CONTROL: Final = frozenset(
    re.split(
        r"\s+",
        "if then elif else fi for in while until do done case esac select function time coproc { } ! [[ break "
        "continue return set trap eval alias unalias source . shopt command builtin",
    )
)


def certain_sleep(command: Sequence[object]) -> Nanoseconds | None:
    """Nanoseconds for which `command` (an exec hook's argv) sleeps at least; None where that cannot be said.

    Known are `sleep N…` with or without a folder, and `sh -c SCRIPT` where SCRIPT is a list of simple commands.
    """
    words = [word for word in command if isinstance(word, str)]
    if len(words) != len(command) or not words:
        return None
    program = words[0].rpartition("/")[2]
    if program == "sleep":
        return _operands(words[1:])
    if program in _SHELLS and len(words) == 3 and words[1] == "-c":
        return _script(words[2])
    return None


def _operands(words: Sequence[str]) -> Nanoseconds | None:
    """What `sleep` makes of its operands: their sum; None where it would end at once with an error."""
    total: Nanoseconds = 0
    for word in words:
        match = _OPERAND.fullmatch(word)
        if match:
            whole, _, fraction = match[1].partition(".")
            total += int((whole or "0") + fraction.ljust(9, "0")[:9]) * _SUFFIX[match[2]]
        elif word in ("inf", "infinity"):
            total = math.inf
        else:
            return None
    return total if words else None


def _script(script: str) -> Nanoseconds | None:
    """The sum of the sleeps in a list of simple commands; None where it has none or is not such a list."""
    total: Nanoseconds = 0
    slept = False
    for words in _commands(script):
        if words[0] in _CONTROL or "=" in words[0]:
            return None
        if words[0] == "exit":
            break
        last = words[0] == "exec"
        words = words[1:] if last else words
        if words and words[0].rpartition("/")[2] == "sleep":
            amount = _operands(words[1:])
            if amount is None:
                return None
            total, slept = total + amount, True
        if last:
            break
    return total if slept else None


def _commands(script: str) -> list[list[str]]:
    """The simple commands of a script as lists of words; none where anything else stands in it."""
    commands: list[list[str]] = [[]]
    position = 0
    while position < len(script):
        match = _PART.match(script, position)
        if match is None:
            return []
        position = match.end()
        if match["word"]:
            commands[-1].append(re.sub(r"['\"]", "", match["word"]))
        elif match["end"]:
            commands.append([])
    return [words for words in commands if words]
