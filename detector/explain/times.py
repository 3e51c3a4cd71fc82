"""Moments as people write them, within a recording: pure text to nanoseconds and back."""

import re
from datetime import datetime, timedelta, tzinfo

_RELATIVE = re.compile(r"\+(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d*)?)s?)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?")
FORMS = "14:03:05 (local time), 2026-03-01T14:03:05Z, +90s or +1m30s since the recording began"


def parse_when(text: str, first_ns: int, last_ns: int, zone: tzinfo | None = None) -> int:
    """Wall-clock nanoseconds of a moment written in one of `FORMS`; `zone` None is local time.

    A time of day is that of the first day on which it lies within the recording. Raises ValueError for anything else.
    """
    text = text.strip()
    if relative := _RELATIVE.fullmatch(text):
        if text == "+":
            raise ValueError(f"{text!r} is no moment; write {FORMS}")
        hours, minutes, seconds = (float(relative[part] or 0) for part in "hms")
        return first_ns + round((hours * 3600 + minutes * 60 + seconds) * 1e9)
    if clock := _CLOCK.fullmatch(text):
        return _on_a_day(clock, first_ns, last_ns, zone)
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=zone) if zone else moment.astimezone()
        return round(aware.timestamp() * 1e9)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no moment; write {FORMS}") from error


def clock(wall_ns: int, zone: tzinfo | None = None, *, digits: int = 1) -> str:
    """Time of day, with so many digits of a second."""
    moment = local(wall_ns, zone)
    fraction = f"{moment.microsecond / 1e6:.6f}"[1 : 2 + digits] if digits else ""
    return f"{moment:%H:%M:%S}{fraction}"


def stamp(wall_ns: int, zone: tzinfo | None = None) -> str:
    """Date and time of day."""
    return f"{local(wall_ns, zone):%Y-%m-%d %H:%M:%S%z}"


def local(wall_ns: int, zone: tzinfo | None = None) -> datetime:
    """The moment in a time zone."""
    return datetime.fromtimestamp(wall_ns / 1e9, zone).astimezone(zone)


def since(wall_ns: int, first_ns: int) -> str:
    """Seconds since the recording began."""
    return f"{(wall_ns - first_ns) / 1e9:+.1f}s"


def _on_a_day(match: re.Match[str], first_ns: int, last_ns: int, zone: tzinfo | None) -> int:
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{match[0]!r} is no time of day")
    midnight = local(first_ns, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    days = (local(last_ns, zone).replace(tzinfo=None) - midnight).days + 1
    after = timedelta(hours=hours, minutes=minutes, seconds=seconds + float(match[4] or 0))
    found = [_moment_ns(midnight + timedelta(days=day) + after, zone) for day in range(max(days, 1))]
    within = [moment for moment in found if first_ns - 10**9 <= moment <= last_ns + 10**9]
    return (within or found)[0]


def _moment_ns(naive: datetime, zone: tzinfo | None) -> int:
    aware = naive.replace(tzinfo=zone) if zone else naive.astimezone()
    return round(aware.timestamp() * 1e9)
