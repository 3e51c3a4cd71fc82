"""Direction of a change: whether a value grants its target more or less than the present one. Pure."""

import math
from collections.abc import Iterable
from enum import Enum

from api.cpuset import parse_cpuset
from api.intents import Knob
from koordlet.host.attribute_formats import MAX, Format
from koordlet.host.attributes import KernelFile
from koordlet.host.cgroups.controllers import Assignment
from koordlet.host.knobs.spec import Order
from koordlet.host.knobs.table import KNOBS
from koordlet.host.knobs.values import Amount, number, quota_cpus


class Direction(Enum):
    """Effect of a change on its target."""

    SAME = "same"
    WIDER = "wider"
    TIGHTER = "tighter"
    ASIDE = "aside"
    """Neither: other CPUs, other devices, a value without an order."""


def direction(knob: Knob, changes: Iterable[tuple[Assignment, str]]) -> Direction:
    """Direction of a knob's assignments, each with the present text of its attribute."""
    written = [(assignment, old) for assignment, old in changes if not assignment.by_kernel]
    by_format = {
        assignment.attribute.format: (assignment.value, old)
        for assignment, old in written
        if isinstance(assignment.attribute, KernelFile)
    }
    if Format.QUOTA_US in by_format:
        new, old = (_v1_cpus(by_format, position) for position in (0, 1))
        return compare(old, new)
    found = {
        compare(_text_amount(knob, assignment, old), _text_amount(knob, assignment, assignment.value))
        for assignment, old in written
    }
    found.discard(Direction.SAME)
    if not found:
        return Direction.SAME
    return found.pop() if len(found) == 1 else Direction.ASIDE


def _v1_cpus(by_format: dict[Format, tuple[str, str]], position: int) -> float:
    quota = by_format[Format.QUOTA_US][position]
    # Without a period of its own the quota is compared under the same, unknown one.
    period = by_format.get(Format.INTEGER, ("100000", "100000"))[position]
    return math.inf if quota == MAX else int(quota) / int(period)


def _text_amount(knob: Knob, assignment: Assignment, text: str) -> Amount | str:
    """Amount of one attribute's canonical text; the text itself where it has no order."""
    spec, attribute = KNOBS[knob], assignment.attribute
    if not isinstance(attribute, KernelFile):
        amount = spec.amount(text)
        return text if amount is None else amount
    match attribute.format:
        case Format.CPU_MAX:
            return quota_cpus(text)
        case Format.CPUS:
            return parse_cpuset(text)
        case Format.FREEZER:
            return -1.0 if text == "FROZEN" else 0.0
        case Format.DEVICE_WEIGHT:
            return 100.0 if text == "default" else float(text)
        case Format.TEXT | Format.MASK:
            return text
    if spec.order == Order.UNORDERED:
        return text
    return -number(text) if spec.order == Order.SMALLER_IS_WIDER else number(text)


def compare(old: Amount | str, new: Amount | str) -> Direction:
    """Direction from one amount to another; a set without members is no limit."""
    if old == new:
        return Direction.SAME
    if isinstance(old, frozenset) and isinstance(new, frozenset):
        if not new or (old and old < new):
            return Direction.WIDER
        return Direction.TIGHTER if not old or new < old else Direction.ASIDE
    if isinstance(old, int | float) and isinstance(new, int | float):
        return Direction.WIDER if new > old else Direction.TIGHTER
    return Direction.ASIDE
