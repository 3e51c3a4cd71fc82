"""Formats of kernel attributes: canonical texts to compare by meaning, and the texts that are written. Pure.

A canonical text is the one that the kernel is expected to read back: limits are cut to whole pages, lists sorted,
unlimited is "max" however a file spells it.
"""

import re
import resource
from enum import StrEnum

from api.cpuset import format_cpuset, parse_cpuset

PAGE_BYTES = resource.getpagesize()
MAX = "max"
_WEIGHT_UNIT = 100
_SHARES_UNIT = 1024
_LEAST_SHARES, _MOST_SHARES = 2, 262_144
_V1_UNLIMITED = (1 << 63) - 1


class Format(StrEnum):
    """Kind of text that a file, or one item of it, holds."""

    TEXT = "text"
    """Words; white space does not matter. Of `always [madvise] never` the bracketed word counts."""
    INTEGER = "integer"
    CPU_MAX = "cpu.max"
    """`quota period` in µs."""
    QUOTA_US = "quota_us"
    """v1: a negative number is no quota."""
    CPUS = "cpus"
    BYTES = "bytes"
    LIMIT_BYTES = "limit_bytes"
    """v1: -1 is written and a huge number read for no limit."""
    FREEZER = "freezer"
    """v1: FROZEN, THAWED, and FREEZING on the way."""
    RATE = "rate"
    """A number or `max`."""
    THROTTLE = "throttle"
    """v1: 0 is written, and nothing read, for no limit."""
    DEVICE_WEIGHT = "device_weight"
    """A number or `default`."""
    MASK = "mask"
    """Hexadecimal bits."""
    DECIMAL = "decimal"


class Layout(StrEnum):
    """Position of a value in its file."""

    WHOLE = "whole"
    DEVICE = "device"
    """A line `<item> <value>`."""
    DEVICE_KEY = "device_key"
    """`<device> ... <key>=<value> ...`; the item is `<device> <key>`."""
    DOMAIN = "domain"
    """Schemata: `<resource>:...;<domain>=<value>;...`; the item is `<resource>:<domain>`."""
    WORD = "word"
    """A list of words; `NO_<item>` is 0 and `<item>` is 1."""


def canonical(text_format: Format, text: str) -> str:
    """One spelling for all texts of the same meaning; raises ValueError for a text of another format."""
    text = text.strip()
    match text_format:
        case Format.INTEGER:
            return str(int(text))
        case Format.CPU_MAX:
            quota, _, period = text.partition(" ")
            return f"{quota if quota == MAX else int(quota)} {int(period)}"
        case Format.QUOTA_US:
            return MAX if text == MAX or int(text) < 0 else str(int(text))
        case Format.CPUS:
            return format_cpuset(parse_cpuset(text))
        case Format.BYTES | Format.LIMIT_BYTES:
            return _bytes(text)
        case Format.FREEZER:
            return {"FREEZING": "FROZEN", "1": "FROZEN", "0": "THAWED"}.get(text, text)
        case Format.RATE | Format.THROTTLE:
            return MAX if text in (MAX, "0") else str(int(text))
        case Format.DEVICE_WEIGHT:
            return text if text == "default" else str(int(text))
        case Format.MASK:
            return f"{int(text, 16):x}"
        case Format.DECIMAL:
            return f"{float(text):g}"
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else " ".join(text.split())


def _bytes(text: str) -> str:
    if text == MAX:
        return MAX
    amount = int(text) // PAGE_BYTES * PAGE_BYTES
    return MAX if amount < 0 or amount >= _V1_UNLIMITED // PAGE_BYTES * PAGE_BYTES else str(amount)


def written_text(text_format: Format, value: str) -> str:
    """Text that is written for a canonical one."""
    if value == MAX and text_format in (Format.QUOTA_US, Format.LIMIT_BYTES):
        return "-1"
    if value == MAX and text_format == Format.THROTTLE:
        return "0"
    return value


def absent_text(text_format: Format) -> str:
    """Canonical text where a file has no such item."""
    return {Format.RATE: MAX, Format.THROTTLE: MAX, Format.DEVICE_WEIGHT: "default", Format.INTEGER: "0"}.get(
        text_format, ""
    )


def item_text(layout: Layout, item: str, text: str) -> str | None:
    """The value of `item` in a file's text, None where it has none."""
    match layout:
        case Layout.DEVICE:
            return next((line.split()[1] for line in text.splitlines() if line.split()[:1] == [item]), None)
        case Layout.DEVICE_KEY:
            return _device_keys(text).get(item)
        case Layout.DOMAIN:
            return schemata_items(text).get(item)
        case Layout.WORD:
            words = text.split()
            return "1" if item in words else "0" if f"NO_{item}" in words else None
    return text


def item_command(layout: Layout, item: str, value: str) -> str:
    """The command that sets `item` alone."""
    match layout:
        case Layout.DEVICE:
            return f"{item} {value}"
        case Layout.DEVICE_KEY:
            return f"{item}={value}"
        case Layout.DOMAIN:
            return f"{item}={value}"
        case Layout.WORD:
            return item if value == "1" else f"NO_{item}"
    return value


def _device_keys(text: str) -> dict[str, str]:
    found = {}
    for line in text.splitlines():
        device, *pairs = line.split() or [""]
        for pair in pairs:
            key, _, value = pair.partition("=")
            found[f"{device} {key}"] = value
    return found


def device_items(text: str) -> dict[str, str]:
    """`8:0 rbps=1 wbps=2` lines as `8:0 rbps` to 1 and so on; raises ValueError naming a line of another shape."""
    for line in filter(None, map(str.strip, text.splitlines())):
        device, *pairs = line.split()
        if not re.fullmatch(r"\d+:\d+", device) or not pairs or not all("=" in pair for pair in pairs):
            raise ValueError(f"{line!r} is not `<major>:<minor> <key>=<value> ...`")
    return _device_keys(text)


def schemata_items(text: str) -> dict[str, str]:
    """`L3:0=7ff;1=7ff` lines as `L3:0` to 7ff and so on; raises ValueError naming a line of another shape."""
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, domains = line.partition(":")
        for domain in domains.split(";"):
            number, equals, value = domain.strip().partition("=")
            if not colon or not equals or not number.strip().isdecimal():
                raise ValueError(f"{line!r} is no line of a schemata file")
            found[f"{name.strip()}:{int(number)}"] = value.strip()
    return found


def shares_of_weight(weight: int) -> int:
    """cpu.shares that mean the same as a cpu.weight: weight 100 is 1024 shares (sched_weight_from_cgroup).

    The least weight is the least number of shares: the kubelet gives its best-effort directory 2, which 10 would raise.
    """
    if weight <= 1:
        return _LEAST_SHARES
    shares = (weight * _SHARES_UNIT + _WEIGHT_UNIT // 2) // _WEIGHT_UNIT
    return min(max(shares, _LEAST_SHARES), _MOST_SHARES)
