"""How much a value lets a cgroup have: more, less, as much, or neither. Pure."""

import math
from collections.abc import Iterable
from enum import Enum

from api.cpuset import parse_cpuset
from api.intents import Knob
from koordlet.host.attribute_formats import MAX, Format
from koordlet.host.attributes import KernelFile
from koordlet.host.knobs.knobs import Assignment

Amount = float | frozenset[int] | None
"""A number, a set of CPUs or nodes, or None where values have no order."""

_LESS_IS_MORE = frozenset({Knob.CPU_IDLE, Knob.FREEZE, Knob.OOM_SCORE_ADJ})
_UNORDERED = frozenset(
    {
        Knob.CORE_SCHED,
        Knob.RESCTRL_GROUP,
        Knob.RESCTRL_SCHEMATA,
        Knob.NET_CLASS,
        Knob.SYSCTL,
        Knob.SCHED_FEATURE,
        Knob.NODE_TAINT,
        Knob.IO_COST_QOS,
        Knob.IO_COST_MODEL,
        Knob.MEMORY_WMARK_RATIO,
        Knob.MEMORY_WMARK_SCALE_FACTOR,
        Knob.MEMORY_WMARK_MIN_ADJ,
        Knob.MEMORY_USE_PRIORITY_OOM,
        Knob.MEMORY_OOM_GROUP,
        Knob.PAGE_CACHE_ENABLE,
        Knob.PAGE_CACHE_SYNC,
    }
)


class Direction(Enum):
    """Where a change leads the one it hits."""

    SAME = "same"
    WIDER = "wider"
    TIGHTER = "tighter"
    ASIDE = "aside"
    """Neither: other CPUs, other devices, a value without an order."""


def amount(knob: Knob, value: str) -> Amount:
    """What a value in cgroup v2 syntax gives; of several devices the least. Larger is always more for the target."""
    if knob in _UNORDERED:
        return None
    if knob in (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS):
        return parse_cpuset(value) or None
    if knob == Knob.CPU_MAX:
        quota, _, period = value.strip().partition(" ")
        return math.inf if quota == MAX else int(quota) / int(period or 100_000)
    numbers = [_number(word.rpartition("=")[2]) for word in value.split() if ":" not in word and word != "default"]
    least = min(numbers, default=math.nan)
    return -least if knob in _LESS_IS_MORE else least


def _number(text: str) -> float:
    return math.inf if text == MAX else float(text)


def direction(knob: Knob, changes: Iterable[tuple[Assignment, str]]) -> Direction:
    """Of a knob's parts, each with the text that stands now."""
    written = [(part, old) for part, old in changes if not part.by_kernel]
    by_form = {part.place.form: (part.value, old) for part, old in written if isinstance(part.place, KernelFile)}
    if Format.QUOTA_US in by_form:
        new, old = (_v1_cpus(by_form, position) for position in (0, 1))
        return compare(old, new)
    found = {compare(_part_amount(knob, part, old), _part_amount(knob, part, part.value)) for part, old in written}
    found.discard(Direction.SAME)
    if not found:
        return Direction.SAME
    return found.pop() if len(found) == 1 else Direction.ASIDE


def _v1_cpus(by_form: dict[Format, tuple[str, str]], position: int) -> float:
    quota = by_form[Format.QUOTA_US][position]
    # Without a period of its own the quota is compared under the same, unknown one.
    period = by_form.get(Format.INTEGER, ("100000", "100000"))[position]
    return math.inf if quota == MAX else int(quota) / int(period)


def _part_amount(knob: Knob, part: Assignment, text: str) -> Amount | str:
    place = part.place
    if not isinstance(place, KernelFile):
        return amount(knob, text) if knob == Knob.OOM_SCORE_ADJ else text
    match place.form:
        case Format.CPU_MAX:
            return amount(Knob.CPU_MAX, text)
        case Format.CPUS:
            return parse_cpuset(text)
        case Format.FREEZER:
            return -1.0 if text == "FROZEN" else 0.0
        case Format.DEVICE_WEIGHT:
            return 100.0 if text == "default" else float(text)
        case Format.TEXT | Format.MASK:
            return text
    if knob in _UNORDERED:
        return text
    return -_number(text) if knob in _LESS_IS_MORE else _number(text)


def compare(old: Amount | str, new: Amount | str) -> Direction:
    """The direction from one amount to another; a set without members is no limit."""
    if old == new:
        return Direction.SAME
    if isinstance(old, frozenset) and isinstance(new, frozenset):
        if not new or (old and old < new):
            return Direction.WIDER
        return Direction.TIGHTER if not old or new < old else Direction.ASIDE
    if isinstance(old, int | float) and isinstance(new, int | float):
        return Direction.WIDER if new > old else Direction.TIGHTER
    return Direction.ASIDE
