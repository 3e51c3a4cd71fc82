"""Moments within a recording, as people write them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from detector.explain.times import format_date_time, format_offset, format_time, parse_time

FIRST = round(datetime(2026, 3, 1, 23, 59, 0, tzinfo=UTC).timestamp()) * 10**9
LAST = FIRST + 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("+12s", 12, id="seconds"),
        pytest.param("+12", 12, id="bare"),
        pytest.param("+1.5s", 1.5, id="fraction"),
        pytest.param("+2m", 120, id="minutes"),
        pytest.param("+1h2m3.5s", 3723.5, id="all"),
        pytest.param("+1m2", 62, id="seconds-without-unit"),
        pytest.param("23:59:30", 30, id="clock"),
        pytest.param("00:10", 660, id="clock-after-midnight"),
        pytest.param("23:59:30.25", 30.25, id="clock-with-fraction"),
        pytest.param("12:00:00", 12 * 3600 + 60 - 86400, id="clock-outside-is-on-the-first-day"),
        pytest.param("2026-03-02T00:00:00Z", 60, id="iso-utc"),
        pytest.param("2026-03-02 00:00:00", 60, id="iso-naive"),
        pytest.param("2026-03-02T01:00:00+01:00", 60, id="iso-offset"),
    ],
)
def test_written_moments(text: str, seconds: float) -> None:
    assert (parse_time(text, FIRST, LAST, UTC) - FIRST) / 1e9 == pytest.approx(seconds)


def test_a_time_of_day_is_the_readers() -> None:
    east = timezone(timedelta(hours=2))
    assert parse_time("01:59:30", FIRST, LAST, east) == FIRST + 30 * 10**9
    assert parse_time(format_time(FIRST), FIRST, LAST) == FIRST


@pytest.mark.parametrize("text", ["", "+", "soon", "25:00", "10:61:00", "+5x", "2026-13-01", "12", "+2h1h"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time( of day)?"):
        parse_time(text, FIRST, LAST, UTC)


def test_how_moments_are_shown() -> None:
    moment = FIRST + 123_456_789
    assert format_time(moment, UTC) == "23:59:00.1"
    assert format_time(moment, UTC, digits=0) == "23:59:00"
    assert format_date_time(moment, UTC) == "2026-03-01 23:59:00+0000"
    assert format_offset(moment + 10**9, FIRST) == "+1.1s"
