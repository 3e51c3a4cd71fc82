"""Times there and back."""

import pytest

from api.kube.times import duration_seconds, epoch_seconds, rfc3339


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("1970-01-01T00:00:10Z", 10.0, id="utc"),
        pytest.param("1970-01-01T00:00:10.5Z", 10.5, id="milliseconds"),
        pytest.param("1970-01-01T00:00:10.123456789Z", pytest.approx(10.123456), id="nanoseconds"),
        pytest.param("1970-01-01T01:00:10+01:00", 10.0, id="offset"),
        pytest.param("1970-01-01T00:00:10", 10.0, id="no-zone"),
        pytest.param("", None, id="empty"),
        pytest.param(None, None, id="none"),
        pytest.param("yesterday", None, id="no-time"),
    ],
)
def test_epoch_seconds(text: str | None, seconds: float | None) -> None:
    assert epoch_seconds(text) == seconds


def test_there_and_back() -> None:
    assert rfc3339(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert epoch_seconds(rfc3339(1_700_000_000.0)) == 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("-2m", -120), ("0", 0),
        ("", None), ("10", None), ("10x", None), ("s", None), ("1h 30m", None),
    ],
)  # fmt: skip
def test_duration_seconds(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == (None if seconds is None else pytest.approx(seconds))
