"""Log2 histograms as values: the one slot layout shared by the BPF programs and everything that reads them.

Slot 0 counts durations below 1,024 ns; slot i (i >= 1) counts [2**(9+i), 2**(10+i)) ns; the last slot is
open-ended. The layout is fixed so that histograms of any two probes, nodes or recordings can be added.
"""

import numpy as np
from numpy.typing import NDArray

SLOTS = 26
"""Slots of a histogram; the last one counts everything from 2**34 ns (17.2 s) up."""

UPPER_EDGES_NS: NDArray[np.uint64] = np.uint64(1) << np.arange(10, 10 + SLOTS, dtype=np.uint64)
"""Exclusive upper edge of each slot in nanoseconds; that of the last slot is nominal."""


def slot_of(duration_ns: int) -> int:
    """The slot that counts `duration_ns`; the same arithmetic as `log2_slot` in probes/c/log2.h."""
    return min(max(int(duration_ns).bit_length() - 10, 0), SLOTS - 1)


def percentile_ns(slots: NDArray[np.integer], quantile: float) -> NDArray[np.float64]:
    """Estimate a quantile of each histogram, interpolating linearly inside the slot.

    `slots` has shape (..., SLOTS); the result has the leading shape, in nanoseconds, NaN where the
    histogram is empty. The error is bounded by the slot: at most a factor of two.
    """
    if not 0.0 <= quantile <= 1.0:
        raise ValueError(f"quantile {quantile} is outside 0..1")
    slots = np.asarray(slots)
    counted = slots.any(axis=-1)
    if slots.ndim > 1 and not counted.all():  # most of a node's cgroups count nothing
        result = np.full(slots.shape[:-1], np.nan)
        result[counted] = percentile_ns(slots[counted], quantile) if counted.any() else np.nan
        return result
    counts = np.atleast_2d(slots.astype(np.float64))
    cumulative = counts.cumsum(axis=-1)
    total = cumulative[..., -1]
    wanted = quantile * total
    index = np.minimum((cumulative < wanted[..., None]).sum(axis=-1), SLOTS - 1)
    picked = index[..., None]
    inside = np.take_along_axis(counts, picked, axis=-1)[..., 0]
    below = np.take_along_axis(cumulative, picked, axis=-1)[..., 0] - inside
    upper = UPPER_EDGES_NS[index].astype(np.float64)
    lower = np.where(index == 0, 0.0, upper / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = np.where(inside > 0, (wanted - below) / inside, 0.0)
    value = lower + (upper - lower) * np.clip(fraction, 0.0, 1.0)
    result = np.where(total > 0, value, np.nan)
    return result.reshape(np.asarray(slots).shape[:-1])
