"""Syntax of knob values, as in cgroup v2: validity of a text, and the amount that it grants. Pure.

Zero never means unlimited: where the kernel has no limit a value says `max`.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from api.cpuset import parse_cpuset
from koordlet.host.attribute_formats import MAX, device_items

Amount = float | frozenset[int] | None
"""A number, a set of CPUs or memory nodes, or None where values have no order."""

MOST_BYTES = (1 << 63) - 1
_MIN_QUOTA_US = 1000
_PERIODS_US = (1000, 1_000_000)
_DEFAULT_PERIOD_US = 100_000
_IO_WEIGHTS = (1, 10_000)


class ValueSyntax(Protocol):
    """One kind of value."""

    def check(self, knob: str, text: str) -> None:
        """Raise ValueError, naming the knob and the fault, for a text that is no such value."""

    def amount(self, text: str) -> Amount:
        """Size of a valid value; of several devices the smallest."""


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    least: int
    most: int

    def check(self, knob: str, text: str) -> None:
        _check_range(knob, text, self.least, self.most)

    def amount(self, text: str) -> Amount:
        return smallest_number(text)


@dataclass(frozen=True, slots=True)
class Bytes:
    """A number of bytes or `max`; `least` is 1 for limits and 0 for protections."""

    least: int

    def check(self, knob: str, text: str) -> None:
        if text == MAX:
            return
        if self.least:
            _refuse_zero(knob, text)
        _check_range(knob, text, self.least, MOST_BYTES)

    def amount(self, text: str) -> Amount:
        return smallest_number(text)


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """`<quota or max> [<period>]` in µs, as in cpu.max."""

    def check(self, knob: str, text: str) -> None:
        quota, space, period = text.partition(" ")
        if quota != MAX:
            _refuse_zero(knob, quota)
            _check_range(knob, quota, _MIN_QUOTA_US, MOST_BYTES)
        if space:
            _check_range(knob, period, *_PERIODS_US)

    def amount(self, text: str) -> Amount:
        return quota_cpus(text)


@dataclass(frozen=True, slots=True)
class CpuList:
    """A list of CPUs or memory nodes that names at least one."""

    def check(self, knob: str, text: str) -> None:
        if not parse_cpuset(text):
            raise ValueError(f"{knob}: an empty list means no limit; name the CPUs or do not set it")

    def amount(self, text: str) -> Amount:
        return parse_cpuset(text) or None


@dataclass(frozen=True, slots=True)
class DeviceWeights:
    """`200`, `default 200` or `8:0 200`, one a line."""

    def check(self, knob: str, text: str) -> None:
        for line in text.splitlines() or [""]:
            _check_range(knob, line.rpartition(" ")[2], *_IO_WEIGHTS)

    def amount(self, text: str) -> Amount:
        return smallest_number(text)


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """`8:0 rbps=1048576 wbps=max` lines, as in io.max."""

    def check(self, knob: str, text: str) -> None:
        for item, limit in device_items(text).items():
            if limit != MAX:
                _refuse_zero(knob, limit, item)
                _check_range(knob, limit, 1, MOST_BYTES)

    def amount(self, text: str) -> Amount:
        return smallest_number(text)


@dataclass(frozen=True, slots=True)
class Text:
    """Words whose meaning the kernel checks; with `empty`, no word at all is valid too."""

    empty: bool = False

    def check(self, knob: str, text: str) -> None:
        if not text and not self.empty:
            raise ValueError(f"{knob}: no value")

    def amount(self, text: str) -> Amount:
        return smallest_number(text)


def quota_cpus(text: str) -> float:
    """CPUs that a cpu.max text grants."""
    quota, _, period = text.strip().partition(" ")
    return math.inf if quota == MAX else int(quota) / int(period or _DEFAULT_PERIOD_US)


def smallest_number(text: str) -> float:
    """Smallest value among the words of a text, device numbers and `default` left out."""
    words = [word.rpartition("=")[2] for word in text.split() if ":" not in word and word != "default"]
    return min(map(number, words), default=math.nan)


def number(text: str) -> float:
    """A number, infinite for `max`."""
    return math.inf if text == MAX else float(text)


def _refuse_zero(knob: str, text: str, item: str = "") -> None:
    if text.lstrip("-+").strip("0") == "":
        raise ValueError(f"{knob}: {f'{item} ' if item else ''}0 is not unlimited; write {MAX}")


def _check_range(knob: str, text: str, least: int, most: int) -> None:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{knob}: {text!r} is no whole number") from None
    if not least <= value <= most:
        raise ValueError(f"{knob}: {value} is not between {least} and {most}")
