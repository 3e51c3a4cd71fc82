"""Daily time windows in a time zone, over midnight if need be."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from koordlet.strategies.strategy import StrategySettings

DAY_SECONDS = 86_400
Clock = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class DayWindow(StrategySettings, frozen=True):
    """Window from one time of day to another; an end before the start is on the next day."""

    start: Clock = msgspec.field(name="from")
    end: Clock = msgspec.field(name="to")
    percent: Annotated[int, Meta(ge=1, le=100)] = 100
    """Percent of the budget that may be used in this window."""

    def __post_init__(self) -> None:
        if self.start == self.end:
            raise ValueError(f"a window from {self.start} to {self.end} is empty; drop all windows to be always open")


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Window that is open at a given time."""

    percent: int
    """0 while closed."""
    closes_in_seconds: float
    """Seconds until no window is open; infinite if one always is."""


ALWAYS = OpenWindow(100, float("inf"))


def opening(windows: Sequence[DayWindow], zone: str, time_seconds: float) -> OpenWindow:
    """Return the percent of the widest window open at a time since the epoch; without windows it is always open.

    Times of day are wall-clock times of the zone; across a change of its offset a closing may be an hour off.
    """
    if not windows:
        return ALWAYS
    local_time = datetime.fromtimestamp(time_seconds, ZoneInfo(zone))
    now = local_time.hour * 3600 + local_time.minute * 60 + local_time.second
    passed = 0
    while passed < DAY_SECONDS:
        rest = max((_rest(window, (now + passed) % DAY_SECONDS) for window in windows), default=0)
        if rest <= 0:
            break
        passed += rest
    percent = max((window.percent for window in windows if _rest(window, now) > 0), default=0)
    return OpenWindow(percent, float("inf") if passed >= DAY_SECONDS else passed)


def _rest(window: DayWindow, now: int) -> int:
    """Return the seconds that a window stays open; 0 while it is closed."""
    start, end = _seconds(window.start), _seconds(window.end)
    length = (end - start) % DAY_SECONDS
    since = (now - start) % DAY_SECONDS
    return length - since if since < length else 0


def _seconds(clock: str) -> int:
    hours, _, minutes = clock.partition(":")
    return int(hours) * 3600 + int(minutes) * 60
