"""Which values a setting may have at all: ranges, and that zero never means unlimited. Pure."""

from api.cpuset import parse_cpuset
from api.intents import Knob, Setting
from koordlet.host.attribute_formats import MAX, device_items

_RANGES: dict[Knob, tuple[int, int]] = {
    Knob.CPU_IDLE: (0, 1),
    Knob.CPU_WEIGHT: (1, 10_000),
    Knob.CPU_BURST: (0, 100_000_000),
    Knob.CPU_BVT: (-1, 2),
    Knob.FREEZE: (0, 1),
    Knob.MEMORY_WMARK_RATIO: (0, 100),
    Knob.MEMORY_WMARK_SCALE_FACTOR: (1, 1000),
    Knob.MEMORY_WMARK_MIN_ADJ: (-25, 50),
    Knob.MEMORY_PRIORITY: (0, 12),
    Knob.MEMORY_USE_PRIORITY_OOM: (0, 1),
    Knob.MEMORY_OOM_GROUP: (0, 1),
    Knob.PAGE_CACHE_ENABLE: (0, 1),
    Knob.PAGE_CACHE_SYNC: (0, 1),
    Knob.OOM_SCORE_ADJ: (-1000, 1000),
    Knob.SCHED_FEATURE: (0, 1),
}
_PROTECTIONS = frozenset({Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.PAGE_CACHE_LIMIT})
_LIMITS = frozenset({Knob.MEMORY_HIGH, Knob.MEMORY_MAX})
_MIN_QUOTA_US = 1000
_PERIODS_US = (1000, 1_000_000)
_MOST_BYTES = (1 << 63) - 1


def check(setting: Setting) -> None:
    """Raises ValueError saying what is wrong with the value."""
    knob, value = setting.knob, setting.value.strip()
    if "\0" in setting.value or "\0" in setting.target:
        raise ValueError("a NUL character")
    if knob in _RANGES:
        _in_range(knob, value, *_RANGES[knob])
    elif knob in _PROTECTIONS:
        if value != MAX:
            _in_range(knob, value, 0, _MOST_BYTES)
    elif knob in _LIMITS:
        if value != MAX:
            _no_zero(knob, value)
            _in_range(knob, value, 1, _MOST_BYTES)
    elif knob == Knob.CPU_MAX:
        _cpu_max(value)
    elif knob in (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS):
        if not parse_cpuset(value):
            raise ValueError(f"{knob}: an empty list means no limit; name the CPUs or do not set it")
    elif knob == Knob.IO_WEIGHT:
        for line in value.splitlines() or [""]:
            _in_range(knob, line.rpartition(" ")[2], 1, 10_000)
    elif knob == Knob.IO_MAX:
        for item, text in device_items(value).items():
            if text != MAX:
                _no_zero(knob, text, item)
                _in_range(knob, text, 1, _MOST_BYTES)
    elif not value and knob != Knob.RESCTRL_GROUP:
        raise ValueError(f"{knob}: no value")


def _cpu_max(value: str) -> None:
    quota, space, period = value.partition(" ")
    if quota != MAX:
        _no_zero(Knob.CPU_MAX, quota)
        _in_range(Knob.CPU_MAX, quota, _MIN_QUOTA_US, _MOST_BYTES)
    if space:
        _in_range(Knob.CPU_MAX, period, *_PERIODS_US)


def _no_zero(knob: Knob, text: str, item: str = "") -> None:
    if text.lstrip("-+").strip("0") == "":
        raise ValueError(f"{knob}: {f'{item} ' if item else ''}0 is not unlimited; write {MAX}")


def _in_range(knob: Knob, text: str, least: int, most: int) -> None:
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"{knob}: {text!r} is no whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{knob}: {number} is not between {least} and {most}")
