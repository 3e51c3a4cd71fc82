"""Requests during which the hypervisor had a CPU elsewhere: what they lost is no doing of anything on this machine.

On a machine that shares its CPUs with others most of a service's slowest requests fall into such times (here 219 of 239
of those above 3 ms), and these come and go from minute to minute, so a tail with them compares hypervisors.
"""

import os
import time

import numpy as np
from numpy.typing import NDArray

TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
RECOVERY_SECONDS = 0.02
"""After which what had queued up meanwhile is served."""
HORIZON_SECONDS = 0.02
"""From the begin of a request: far beyond a latency of the ordinary, and the same for all, so that those an agent slows
are left out no more often than others."""
_STEAL = 8
"""Column of /proc/stat (proc_stat(5))."""

Floats = NDArray[np.float64]


class StolenTime:
    """The kernel's account of stolen time, looked at every few milliseconds."""

    def __init__(self) -> None:
        self._file = os.open("/proc/stat", os.O_RDONLY)
        self._looks: list[tuple[float, int]] = []
        self.look()

    def look(self) -> None:
        """Read the account once."""
        first = os.pread(self._file, 256, 0).split(b"\n", 1)[0]
        self._looks.append((time.monotonic(), int(first.split()[_STEAL])))

    @property
    def looks(self) -> Floats:
        """CLOCK_MONOTONIC and ticks stolen so far from all CPUs, a row for each look."""
        return np.array(self._looks, dtype=np.float64)

    def close(self) -> None:
        os.close(self._file)


def share(looks: Floats) -> float:
    """Stolen part of the time of all CPUs between the first look and the last."""
    seconds = (looks[-1, 0] - looks[0, 0]) * (os.cpu_count() or 1)
    return float((looks[-1, 1] - looks[0, 1]) * TICK_SECONDS / seconds) if seconds else 0.0


def disturbed(looks: Floats, begins: Floats) -> NDArray[np.bool_]:
    """Whether stolen time, or what it had left behind, came within the horizon of each request, `begins` in
    CLOCK_MONOTONIC.

    A CPU's loss is booked when it is back, in whole ticks: what a look finds began up to as many ticks, and one,
    before the look that preceded it.
    """
    growth = np.diff(looks[:, 1])
    found = growth > 0
    starts = looks[:-1, 0][found] - (growth[found] + 1) * TICK_SECONDS
    stops = looks[1:, 0][found] + RECOVERY_SECONDS
    if not len(starts):
        return np.zeros(len(begins), dtype=np.bool_)
    order = np.argsort(starts)
    latest_stop = np.maximum.accumulate(stops[order])
    before = np.searchsorted(starts[order], begins + HORIZON_SECONDS, side="right") - 1
    return (before >= 0) & (latest_stop[np.maximum(before, 0)] >= begins)
