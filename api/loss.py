"""The ledger of lost time: nanoseconds of progress lost, by cause. Every output and every decision ranks by it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from api.frame import Column
from api.window import Delta

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LossCause:
    """One way to lose time, and the columns that measure it."""

    name: str
    resource: str
    columns: tuple[str, ...]
    by_others: bool
    """True where another cgroup or the kernel holds the resource meanwhile; false for own threads and own limits."""
    less: tuple[str, ...] = ()
    """Columns of the cgroup's own part, to be subtracted. Causes with the same `less` share it: the column covers all
    of them together, so it is taken off their sum, never below zero, and off each in proportion."""


LOSS_CAUSES: tuple[LossCause, ...] = (
    LossCause("cpu:neighbour", "cpu", ("cpu.wait_neighbour_ns",), by_others=True),
    LossCause("cpu:kernel", "cpu", ("cpu.wait_kernel_ns",), by_others=True),
    LossCause("cpu:irq", "cpu", ("cpu.irq_ns", "cpu.softirq_ns"), by_others=True, less=("net.softirq_own_ns",)),
    LossCause("cpu:own_irq", "cpu", ("net.softirq_own_ns",), by_others=False),
    LossCause("cpu:self", "cpu", ("cpu.wait_self_ns",), by_others=False),
    LossCause("cpu:own_quota", "cpu", ("cpu.wait_own_quota_ns",), by_others=False),
    LossCause("cpu:ancestor_quota", "cpu", ("cpu.wait_ancestor_quota_ns",), by_others=False),
    LossCause("cpu:idle", "cpu", ("cpu.wait_idle_ns",), by_others=False),
    LossCause("cpu:unknown", "cpu", ("cpu.wait_unknown_ns",), by_others=False),
    LossCause(
        "memory:global",
        "memory",
        ("memory.stall_global_ns",),
        by_others=True,
        less=("memory.stall_global_self_ns",),
    ),
    LossCause("memory:compaction", "memory", ("memory.stall_compaction_ns",), by_others=True),
    LossCause("memory:self", "memory", ("memory.stall_global_self_ns",), by_others=False),
    LossCause("memory:own_limit", "memory", ("memory.stall_own_limit_ns",), by_others=False),
    LossCause("memory:ancestor_limit", "memory", ("memory.stall_ancestor_limit_ns",), by_others=False),
    LossCause("blockio:queue", "blockio", ("blockio.queue_ns",), by_others=True, less=("blockio.self_ns",)),
    LossCause("blockio:device", "blockio", ("blockio.excess_ns",), by_others=True, less=("blockio.self_ns",)),
    LossCause("blockio:self", "blockio", ("blockio.self_ns",), by_others=False),
    LossCause("blockio:limit", "blockio", ("blockio.throttle_ns",), by_others=False),
    LossCause("net:qdisc", "net", ("net.qdisc_delay_ns",), by_others=True, less=("net.qdisc_self_ns",)),
    LossCause("net:self", "net", ("net.qdisc_self_ns",), by_others=False),
)
"""Order of display. A cause whose columns no probe delivers counts as not measured, never as zero."""

CAUSED_BY_OTHERS: frozenset[str] = frozenset(cause.name for cause in LOSS_CAUSES if cause.by_others)
"""Names of the causes that `lost_to_others_ns` sums."""

_OWN_PARTS: frozenset[tuple[str, ...]] = frozenset(cause.less for cause in LOSS_CAUSES if cause.less)


@cache
def _sharing(less: tuple[str, ...]) -> tuple[LossCause, ...]:
    return tuple(cause for cause in LOSS_CAUSES if cause.less == less)


def lost_ns(delta: Delta) -> Mapping[str, Floats]:
    """Nanoseconds lost in the window by cause name; each array has a row for each cgroup.

    A cgroup's own part of a cause by others is a cause by itself (`blockio:self`, `memory:self`), as far as it was
    subtracted there: all causes sum to all that was lost. Causes that were not measured at all are absent.
    """
    columns = delta.table.columns
    others = lost_to_others_ns(columns)
    ledger: dict[str, Floats] = {}
    for cause in LOSS_CAUSES:
        if cause.by_others:
            found = others.get(cause.name)
        elif cause.columns in _OWN_PARTS:
            found = _subtracted(columns, cause.columns, others)
        else:
            found = _sum(columns, cause.columns)
        if found is not None:
            ledger[cause.name] = found
    return ledger


def lost_to_others_ns(columns: Mapping[str, Column], causes: Iterable[str] = CAUSED_BY_OTHERS) -> dict[str, Floats]:
    """Nanoseconds that others cost each cgroup, by cause name: the one place where the own part is subtracted.

    `columns` are those of a delta (raw nanoseconds of growth). Causes that were not measured are absent.
    """
    wanted = frozenset(causes)
    found: dict[str, Floats] = {}
    for cause in LOSS_CAUSES:
        if not cause.by_others or cause.name not in wanted or cause.name in found:
            continue
        if cause.less:
            shared = _without_own(columns, cause.less)
            found.update((name, left) for name, left in shared.items() if name in wanted)
        elif (whole := _sum(columns, cause.columns)) is not None:
            found[cause.name] = whole
    return found


def total_lost_ns(ledger: Mapping[str, Floats]) -> Floats:
    """Sum over all causes, a row for each cgroup; empty when nothing was measured."""
    if not ledger:
        return np.empty(0)
    return np.asarray(np.sum(list(ledger.values()), axis=0))


def _sum(columns: Mapping[str, Column], names: Iterable[str]) -> Floats | None:
    """Sum of the columns that are there, NaN as zero; None where none is."""
    present = [_whole(columns[name]) for name in names if name in columns]
    if len(present) < 2:
        return present[0] if present else None
    return np.asarray(np.sum(present, axis=0))


def _whole(column: Column) -> Floats:
    """Return the column as floats, NaN as zero; whole numbers, as counters are, have none to look for."""
    values: Floats = column.astype(np.float64)
    return np.nan_to_num(values) if column.dtype.kind == "f" else values


def _without_own(columns: Mapping[str, Column], less: tuple[str, ...]) -> dict[str, Floats]:
    """The causes that share `less`, without it; in whole nanoseconds, so that the parts sum to the rest exactly."""
    wholes = {cause.name: whole for cause in _sharing(less) if (whole := _sum(columns, cause.columns)) is not None}
    own = _sum(columns, less)
    if own is None or not wholes:
        return wholes
    total = total_lost_ns(wholes)
    left = np.maximum(total - own, 0.0)
    kept = left / np.where(total > 0, total, 1.0)
    *first, last = wholes
    parts = {name: np.minimum(np.rint(wholes[name] * kept), left) for name in first}
    parts[last] = left - total_lost_ns(parts) if parts else left
    return parts


def _subtracted(columns: Mapping[str, Column], less: tuple[str, ...], others: Mapping[str, Floats]) -> Floats | None:
    """The part of `less` that was taken off the causes that share it; None where it was not measured."""
    sharing = [cause for cause in _sharing(less) if cause.name in others]
    if not sharing or _sum(columns, less) is None:
        return None
    wholes = {cause.name: whole for cause in sharing if (whole := _sum(columns, cause.columns)) is not None}
    return total_lost_ns(wholes) - total_lost_ns({cause.name: others[cause.name] for cause in sharing})
