"""Harm of neighbours to each workload: lost seconds per second of progress, with a confidence interval.

The estimator is a ratio of sums over the last minutes, R = sum(lost) / sum(progress). Lost is the ledger's time lost
to others (`api.loss.lost_to_others_ns`), at most one second per second for every thread that waited at once. The
progress is the time on CPU, the least that the workload did meanwhile; a request that takes T alone takes at most
T (1 + R) beside its neighbours on average, so "the neighbours cost the workload less than 5 %" means R < 0.05.

The interval comes from batch means (`koordlet/control/batch_means.py`); docs/harm.md has the reasons.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.loss import lost_to_others_ns, total_lost_ns
from api.window import Delta
from koordlet.control.batch_means import BatchMeans, Floats, ratio_of


@dataclass(frozen=True, slots=True)
class Harm:
    """Columns with a row for each cgroup asked for; NaN with fewer than two batches or without progress."""

    ratio: Floats
    """Seconds lost to others per second of progress."""
    low: Floats
    high: Floats
    """95 % confidence interval."""
    batches: NDArray[np.int64]


class HarmMeter:
    """Batches of the last minutes, fed every tick."""

    def __init__(self, batch_seconds: float = 5.0) -> None:
        self._batches = BatchMeans(2, batch_seconds)

    def add(self, ids: NDArray[np.uint64], lost: Floats, progress: Floats, seconds: float) -> None:
        """One tick: seconds lost to others and seconds of progress of each cgroup in `seconds` of time."""
        self._batches.add(ids, np.stack([lost, progress]), seconds)

    def harm(self, ids: NDArray[np.uint64]) -> Harm:
        """The figures of these cgroups over the full batches; what was never seen is NaN."""
        full = self._batches.full(ids)
        found = ratio_of(full[:, 0], full[:, 1])
        low = np.maximum(found.value - found.reach, 0.0)
        return Harm(found.value, low, found.value + found.reach, found.batches)


def tick_of(delta: Delta) -> tuple[Floats, Floats] | None:
    """Seconds lost to others and seconds on CPU of each cgroup in a window; None where no probe measures them."""
    columns = delta.table.columns
    lost = lost_to_others_ns(columns)
    usage = next((name for name in ("cpu.oncpu_ns", "cpustat.usage_ns") if name in columns), None)
    if not lost or usage is None:
        return None
    return total_lost_ns(lost) / 1e9, np.nan_to_num(columns[usage].astype(np.float64)) / 1e9
