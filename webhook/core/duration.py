"""Durations exactly as Go reads them, for Karpenter reads `karpenter.sh/do-not-disrupt` so.

The rules are those of time.ParseDuration (Go 1.26, src/time/format.go), overflow included. Karpenter v1.12.0
and later call it in pkg/utils/pod/scheduling.go `parseDoNotDisrupt` and ask for a positive result.
"""

import re
from typing import Final

SECOND: Final = 1_000_000_000
UNITS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5, the micro sign
    "μs": 1_000,  # U+03BC, the Greek letter
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_LIMIT: Final = 1 << 63
_TERM: Final = re.compile(r"(?P<whole>[0-9]*)(?P<fraction>\.[0-9]*)?(?P<unit>[^.0-9]*)")
_DAYS: Final = re.compile(r"([0-9]+) *(d|days?|w|weeks?|hours?|hrs?|H|minutes?|mins?|seconds?|secs?|S|h|m|s)")
_SECONDS_OF: Final = {"d": 86400, "w": 604800, "h": 3600, "m": 60, "s": 1}


class DurationError(ValueError):
    """Text that Go does not read as a duration; its message says why."""


def parse(text: str) -> int:
    """The duration in nanoseconds, as Go's time.ParseDuration returns it. Raises DurationError."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError("it is empty")
    total = 0
    while rest:
        amount, rest = _term(rest)
        total += amount
        if total > _LIMIT:
            raise DurationError("it is too long")
    if sign > 0 and total == _LIMIT:
        raise DurationError("it is too long")
    return sign * total


def _term(text: str) -> tuple[int, str]:
    match = _TERM.match(text)
    assert match is not None  # every part of the pattern may be empty
    whole, fraction, unit = match["whole"], match["fraction"] or "", match["unit"]
    if not whole and len(fraction) < 2:
        raise DurationError("a number is missing")
    if not unit:
        raise DurationError("a unit is missing")
    if unit not in UNITS:
        raise DurationError(f"the unit {unit.strip()[:20] or 'blank'} is unknown")
    size = UNITS[unit]
    amount = int(whole or "0") if len(whole) < 40 else int(whole.lstrip("0")[:40] or "0")
    if amount > _LIMIT // size:
        raise DurationError("it is too long")
    amount = amount * size + _fraction(fraction[1:], size)
    if amount > _LIMIT:
        raise DurationError("it is too long")
    return amount, text[match.end() :]


def _fraction(digits: str, size: int) -> int:
    """What stands behind the point, in nanoseconds; Go computes it with float64 and leaves out digits that overflow."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > (_LIMIT - 1) // 10 or value * 10 + int(digit) > _LIMIT:
            break
        value, scale = value * 10 + int(digit), scale * 10
    return int(float(value) * (float(size) / scale)) if value else 0


def written(nanoseconds: int) -> str:
    """A duration as short text, `24h` or `1h0m1s`; whole seconds are written with h, m and s only, as Go reads them."""
    seconds, rest = divmod(nanoseconds, SECOND)
    if rest:
        return f"{nanoseconds / SECOND:.10g}s"
    hours, minutes, seconds = seconds // 3600, seconds % 3600 // 60, seconds % 60
    if hours and not seconds:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    if minutes:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    return f"{seconds}s"


def plain_reading(text: str) -> str | None:
    """What the author of `1d`, `2 hours`, `True` or ` 2h` most likely meant, as Karpenter reads it; None if unclear."""
    bare = text.strip().strip("'\"").strip()
    if bare.lower() == "true":
        return "true"
    try:
        if bare != text and parse(bare) > 0:
            return bare
    except DurationError:
        pass
    match = _DAYS.fullmatch(bare)
    if match is None:
        return None
    amount = int(match[1][:12]) * _SECONDS_OF[match[2][0].lower()] * SECOND
    return written(amount) if 0 < amount < _LIMIT else None
