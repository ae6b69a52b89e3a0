"""Durations are read as Karpenter reads them, no more and no less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.duration import SECOND, DurationError, parse, plain_reading, written

# Values of Karpenter's annotation and what its parser (Go's time.ParseDuration) makes of each, in seconds.
READ = {
    "4h": 14400,
    "30m": 1800,
    "1h30m": 5400,
    "1.5h": 5400,
    "+4h": 14400,
    "90s": 90,
    "300000ms": 300,
    "1h30m45s": 5445,
    "90m": 5400,
    "100ms": 0.1,
    "0": 0,
    "+0": 0,
    "0s": 0,
    "-1h": -3600,
    "1m1m": 120,
    ".5s": 0.5,
    "1.s": 1,
    "1us": 1e-6,
    "1µs": 1e-6,
    "1μs": 1e-6,
    "10ns": 1e-8,
    "000000000000000000000000000000000000000000000001s": 1,
    "0.9999999999999999999999s": 1,
}
NOT_READ = {
    "": "empty",
    "+": "empty",
    "-": "empty",
    "true": "number is missing",
    "false": "number is missing",
    "True": "number is missing",
    "yes": "number is missing",
    "1": "unit is missing",
    "90": "unit is missing",
    "00": "unit is missing",
    "1h30": "unit is missing",
    "1d": "unit d is unknown",
    "1w": "unit w is unknown",
    "24H": "unit H is unknown",
    "2 hours": "unit hours is unknown",
    "4h ": "unit h is unknown",
    " 4h": "number is missing",
    "1 ": "unit blank is unknown",
    "1e3s": "unit e is unknown",
    "P1D": "number is missing",
    ".s": "number is missing",
    ".": "number is missing",
    "s": "number is missing",
    "1h-30m": "unit h- is unknown",
    "--1h": "number is missing",
    "٣h": "number is missing",
    "2562048h": "too long",
    "9223372036854775808ns": "too long",
    "9223372036.854775808s": "too long",
    "9223372036854775807ns1ns": "too long",
    "5000000h-": "unit h- is unknown",
    "9999999999999999999999999999999999999999999999s": "too long",
}
# The boundaries of a 64-bit count of nanoseconds.
EXACT = {
    "2562047h": 2562047 * 3600 * SECOND,
    "9223372036854775807ns": (1 << 63) - 1,
    "9223372036.854775807s": (1 << 63) - 1,
    "-9223372036854775808ns": -(1 << 63),
    "2562047h2562047h": None,
    "9223372036.99s": None,
}


@pytest.mark.parametrize(("text", "seconds"), READ.items())
def test_what_go_reads_is_read(text: str, seconds: float) -> None:
    assert parse(text) == round(seconds * SECOND)


@pytest.mark.parametrize(("text", "why"), NOT_READ.items())
def test_what_go_does_not_read_is_not_read(text: str, why: str) -> None:
    with pytest.raises(DurationError, match=why):
        parse(text)


@pytest.mark.parametrize(("text", "nanoseconds"), EXACT.items())
def test_the_longest_durations_are_exact(text: str, nanoseconds: int | None) -> None:
    if nanoseconds is None:
        with pytest.raises(DurationError, match="too long"):
            parse(text)
    else:
        assert parse(text) == nanoseconds


def test_digits_behind_the_point_that_overflow_are_left_out_as_go_does() -> None:
    assert parse("0.3333333333333333333h") == parse("0.33333333333333333339999999h") == 1200 * SECOND


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (90, "1m30s"),
        (3600, "1h"),
        (3601, "1h0m1s"),
        (22200, "6h10m"),
        (86400, "24h"),
    ],
)
def test_whole_seconds_are_written_short(seconds: int, text: str) -> None:
    assert written(seconds * SECOND) == text


def test_a_part_of_a_second_is_written_in_seconds() -> None:
    assert written(SECOND // 2) == "0.5s"


@given(st.integers(min_value=0, max_value=(1 << 63) // SECOND - 1))
def test_what_is_written_is_read_as_the_same(seconds: int) -> None:
    assert parse(written(seconds * SECOND)) == seconds * SECOND


@given(st.text(alphabet="0123456789.+-hmsuµnd ", max_size=30) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert -(1 << 63) <= parse(text) < 1 << 63
    except DurationError as error:
        assert str(error)  # noqa: PT017  (either outcome is right)
    meant = plain_reading(text)
    assert meant is None or meant == "true" or parse(meant) > 0


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1d", "24h"),
        ("2 hours", "2h"),
        ("1 week", "168h"),
        ("30 mins", "30m"),
        ("24H", "24h"),
        ("True", "true"),
        ("'true'", "true"),
        (" 2h", "2h"),
        ("4h ", "4h"),
        ('"90m"', "90m"),
        ("0d", None),
        ("99999999d", None),
        ("1h30", None),
        ("90", None),
        ("P1D", None),
        ("", None),
        ("soon", None),
        (" soon", None),
        (" 0s", None),
    ],
)
def test_one_plain_reading_is_suggested_where_there_is_one(text: str, meant: str | None) -> None:
    assert plain_reading(text) == meant
