"""What kubectl makes of a plain scalar, and how a value is written so that kubectl reads it back.

kubectl reads YAML with sigs.k8s.io/yaml 1.6.0 on go.yaml.in/yaml/v2 2.4.4, resolve.go: YAML 1.1 booleans, no numbers
to the base 60, and timestamps that stay texts.
"""

import json
import re
from typing import Any, Final

_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_WHOLE: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PLAIN: Final = re.compile(r"[A-Za-z/_][A-Za-z0-9_./-]*")
_BASES: Final = (16, 2, 8, 10)
_LARGEST: Final = 2**64  # beyond it, Go reads a float
_EXACT: Final = 10**21  # from here on, Go's JSON encoder writes an exponent


def resolved(text: str) -> Any:
    """The value of a plain scalar: a text, a number, a boolean or None."""
    if text in _WORDS:
        return _WORDS[text]
    if not text[0].isascii() or text[0] not in "0123456789+-.":
        return text
    bare = text if text[0] == "." else text.replace("_", "")
    match = _WHOLE.fullmatch(bare)
    if match and len(bare) < 80:
        digits, base = next((group, base) for group, base in zip(match.groups()[1:], _BASES, strict=True) if group)
        number = int(digits, base) * (-1 if match[1] == "-" else 1)
        if -_LARGEST // 2 <= number < _LARGEST:
            return number
    return shortened(float(bare)) if _FLOAT.fullmatch(bare) else text


def shortened(number: float) -> int | float:
    """A float as it arrives after a trip through Go's JSON: `30.0` is written 30."""
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def written(value: Any, quote: str = "") -> str:
    """A scalar as YAML on one line; a text in the quotes asked for, where those can hold it."""
    if not isinstance(value, str):
        return json.dumps(value)
    if not quote and _PLAIN.fullmatch(value) and isinstance(resolved(value), str):
        return value
    if value.isprintable() and (quote == "'" or (not quote and '"' in value)):
        return "'" + value.replace("'", "''") + "'"
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def flow(value: Any, as_json: bool) -> str:
    """A value on one line: as JSON, or as YAML's flow style."""
    if as_json:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)}: {flow(member, False)}" for key, member in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(item, False) for item in value) + "]"
    return written(value)


def block(value: dict[str, Any]) -> list[str]:
    """The lines of a map in YAML's block style."""
    lines: list[str] = []
    for key, member in value.items():
        head = f"{written(key)}:"
        if isinstance(member, dict) and member:
            lines += [head, *("  " + line for line in block(member))]
        elif isinstance(member, list) and member:
            lines += [head, *(line for item in member for line in entry(item))]
        else:
            lines.append(f"{head} {flow(member, False)}")
    return lines


def entry(item: Any) -> list[str]:
    """The lines of one item of a list in YAML's block style."""
    lines = block(item) if isinstance(item, dict) and item else [flow(item, False)]
    return ["- " + lines[0], *("  " + line for line in lines[1:])]
