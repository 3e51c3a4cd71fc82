from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from api.settings import SettingsError
from koordlet.strategies.calendar_windows import DayWindow, opening
from koordlet.strategies.plugins.colocation_budget import ColocationBudget, ColocationBudgetSettings
from koordlet.strategies.settings import settings_of

NIGHT = DayWindow(start="22:00", end="07:00")
NOON = DayWindow(start="12:00", end="13:00", percent=50)
LATE = DayWindow(start="06:00", end="08:00", percent=30)
INF = float("inf")


def at(clock: str, zone: str = "UTC") -> float:
    hour, minute = map(int, clock.split(":"))
    return datetime(2026, 3, 3, hour, minute, tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("windows", "clock", "percent", "closes"),
    [
        pytest.param([], "12:00", 100, INF, id="always"),
        pytest.param([NIGHT], "22:00", 100, 9 * 3600, id="opens"),
        pytest.param([NIGHT], "23:30", 100, 7.5 * 3600, id="over-midnight"),
        pytest.param([DayWindow(start="22:30", end="23:15")], "22:29", 0, 0, id="minutes-count"),
        pytest.param([DayWindow(start="22:30", end="23:15")], "22:30", 100, 2700, id="to-the-minute"),
        pytest.param([NIGHT], "06:59", 100, 60, id="nearly-closed"),
        pytest.param([NIGHT], "07:00", 0, 0, id="closed"),
        pytest.param([NIGHT, NOON], "12:30", 50, 1800, id="part"),
        pytest.param([NIGHT, LATE], "06:30", 100, 5400, id="the-widest-and-the-last-to-close"),
        pytest.param([NIGHT, LATE], "07:30", 30, 1800, id="what-is-left"),
        pytest.param(
            [DayWindow(start="00:00", end="12:00"), DayWindow(start="12:00", end="00:00")], "05:00", 100, INF, id="day"
        ),
    ],
)
def test_opening(windows: list[DayWindow], clock: str, percent: int, closes: float) -> None:
    opened = opening(windows, "UTC", at(clock))
    assert (opened.percent, opened.closes_in_seconds) == (percent, closes)


def test_the_clock_is_that_of_the_zone() -> None:
    assert opening([NIGHT], "Asia/Shanghai", at("22:00", "Asia/Shanghai")).percent == 100
    assert opening([NIGHT], "Asia/Shanghai", at("22:00", "UTC")).percent == 100, "06:00 in Shanghai"
    assert opening([NIGHT], "Asia/Shanghai", at("23:00", "UTC")).percent == 0


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param({"windows": [{"from": "24:00", "to": "07:00"}]}, "from", id="no-such-time"),
        pytest.param({"windows": [{"from": "07:00", "to": "07:00"}]}, "is empty", id="empty"),
        pytest.param({"windows": [{"from": "07:00", "to": "08:00", "percent": 0}]}, "percent", id="nothing"),
        pytest.param({"timeZone": "Mars/Olympus"}, "write it like Asia/Shanghai", id="zone"),
        pytest.param({"timeZone": "../etc/passwd"}, "write it like Asia/Shanghai", id="path"),
    ],
)
def test_refused_settings(table: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        spec = {"extensions": {"colocationBudget": table}}
        settings_of(ColocationBudgetSettings, ColocationBudget.section, spec, "file")
