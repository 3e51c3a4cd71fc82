"""The one currency: nanoseconds of progress lost, by cause. Every face and every symptom ranks by this ledger."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.window import Delta


@dataclass(frozen=True, slots=True)
class LossCause:
    """One way to lose time, and the columns that measure it."""

    name: str
    resource: str
    columns: tuple[str, ...]
    by_others: bool
    """True where somebody else holds the resource meanwhile; own threads and own limits are not."""


LOSS_CAUSES: tuple[LossCause, ...] = (
    LossCause("cpu:neighbour", "cpu", ("cpu.wait_neighbour_ns",), by_others=True),
    LossCause("cpu:kernel", "cpu", ("cpu.wait_kernel_ns",), by_others=True),
    LossCause("cpu:irq", "cpu", ("cpu.irq_ns", "cpu.softirq_ns"), by_others=True),
    LossCause("cpu:self", "cpu", ("cpu.wait_self_ns",), by_others=False),
    LossCause("cpu:own_quota", "cpu", ("cpu.wait_own_quota_ns",), by_others=False),
    LossCause("cpu:ancestor_quota", "cpu", ("cpu.wait_ancestor_quota_ns",), by_others=False),
    LossCause("cpu:idle", "cpu", ("cpu.wait_idle_ns",), by_others=False),
    LossCause("cpu:unknown", "cpu", ("cpu.wait_unknown_ns",), by_others=False),
    LossCause("memory:global", "memory", ("memory.stall_global_ns",), by_others=True),
    LossCause("memory:compaction", "memory", ("memory.stall_compaction_ns",), by_others=True),
    LossCause("memory:own_limit", "memory", ("memory.stall_own_limit_ns",), by_others=False),
    LossCause("memory:ancestor_limit", "memory", ("memory.stall_ancestor_limit_ns",), by_others=False),
    LossCause("blockio:queue", "blockio", ("blockio.queue_ns",), by_others=True),
    LossCause("blockio:device", "blockio", ("blockio.excess_ns",), by_others=True),
    LossCause("blockio:limit", "blockio", ("blockio.throttle_ns",), by_others=False),
    LossCause("net:qdisc", "net", ("net.qdisc_delay_ns",), by_others=True),
)
"""In the order faces show them. A cause whose columns no probe delivers counts as not measured, never as zero."""


def lost_ns(delta: Delta) -> Mapping[str, NDArray[np.float64]]:
    """Nanoseconds lost in the window by cause name; each array has a row for each cgroup.

    Causes that were not measured at all are absent.
    """
    measured = delta.table.columns
    ledger: dict[str, NDArray[np.float64]] = {}
    for cause in LOSS_CAUSES:
        present = [measured[column].astype(np.float64) for column in cause.columns if column in measured]
        if present:
            ledger[cause.name] = np.nan_to_num(np.sum(present, axis=0))
    return ledger


def total_lost_ns(ledger: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Sum over all causes, a row for each cgroup; empty when nothing was measured."""
    if not ledger:
        return np.empty(0)
    return np.asarray(np.sum(list(ledger.values()), axis=0))
