"""Times within a recording: parsing to wall-clock nanoseconds, and formatting. Pure."""

import re
from datetime import datetime, timedelta, tzinfo

_OFFSET = re.compile(r"\+(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m(?!s))?(?:(?P<s>\d+(?:\.\d*)?)s?)?")
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?")
TIME_FORMS = "14:03:05 (local time), 2026-03-01T14:03:05Z, +90s or +1m30s since the recording began"


def parse_time(text: str, first_ns: int, last_ns: int, zone: tzinfo | None = None) -> int:
    """Return wall-clock nanoseconds of a time in one of `TIME_FORMS`; `zone` None is local time.

    A time of day is that of the first day on which it lies within the recording. Raises ValueError for anything else.
    """
    text = text.strip()
    if relative := _OFFSET.fullmatch(text):
        if text == "+":
            raise ValueError(f"{text!r} is no time; write {TIME_FORMS}")
        hours, minutes, seconds = (float(relative[part] or 0) for part in "hms")
        try:
            return first_ns + round((hours * 3600 + minutes * 60 + seconds) * 1e9)
        except OverflowError as error:
            raise ValueError(f"{text!r} is too long") from error
    if of_day := _TIME_OF_DAY.fullmatch(text):
        return _time_of_day(of_day, first_ns, last_ns, zone)
    try:
        time = datetime.fromisoformat(text)
        aware = time if time.tzinfo else time.replace(tzinfo=zone) if zone else time.astimezone()
        return round(aware.timestamp() * 1e9)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is no time; write {TIME_FORMS}") from error


def format_time(wall_ns: int, zone: tzinfo | None = None, *, digits: int = 1) -> str:
    """Time of day, with so many digits of a second."""
    time = local_time(wall_ns, zone)
    fraction = f"{time.microsecond / 1e6:.6f}"[1 : 2 + digits] if digits else ""
    return f"{time:%H:%M:%S}{fraction}"


def format_date_time(wall_ns: int, zone: tzinfo | None = None) -> str:
    """Date and time of day."""
    return f"{local_time(wall_ns, zone):%Y-%m-%d %H:%M:%S%z}"


def local_time(wall_ns: int, zone: tzinfo | None = None) -> datetime:
    """Time in a time zone."""
    return datetime.fromtimestamp(wall_ns / 1e9, zone).astimezone(zone)


def format_offset(wall_ns: int, first_ns: int) -> str:
    """Seconds since the recording began."""
    return f"{(wall_ns - first_ns) / 1e9:+.1f}s"


def _time_of_day(match: re.Match[str], first_ns: int, last_ns: int, zone: tzinfo | None) -> int:
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{match[0]!r} is no time of day")
    midnight = local_time(first_ns, zone).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    days = (local_time(last_ns, zone).replace(tzinfo=None) - midnight).days + 1
    after = timedelta(hours=hours, minutes=minutes, seconds=seconds + float(match[4] or 0))
    found = [_wall_ns(midnight + timedelta(days=day) + after, zone) for day in range(max(days, 1))]
    within = [time for time in found if first_ns - 10**9 <= time <= last_ns + 10**9]
    return (within or found)[0]


def _wall_ns(naive: datetime, zone: tzinfo | None) -> int:
    aware = naive.replace(tzinfo=zone) if zone else naive.astimezone()
    return round(aware.timestamp() * 1e9)
