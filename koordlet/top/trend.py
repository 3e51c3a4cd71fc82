"""Trends: lost time of every cgroup over the last minute, a point a tick. Pure."""

from collections import deque

import numpy as np

from api.loss import lost_ns, total_lost_ns
from api.window import Window


class Trend:
    """Points of the last `seconds`, one a tick; a cgroup absent from a tick lost nothing in it."""

    def __init__(self, seconds: float, interval_seconds: float) -> None:
        self._points: deque[dict[int, float]] = deque(maxlen=max(int(seconds / interval_seconds), 1))
        self._last_ns = 0

    def add(self, window: Window) -> None:
        """Take the newest two frames of a window; the same frame is taken once."""
        if window.last.monotonic_ns == self._last_ns or len(window.frames) < 2:
            return
        self._last_ns = window.last.monotonic_ns
        delta = Window(window.frames[-2:]).delta()
        total = total_lost_ns(lost_ns(delta)) / 1e9 / delta.seconds
        rows = np.flatnonzero(total > 0)
        self._points.append(dict(zip(delta.table.ids[rows].tolist(), total[rows].tolist(), strict=True)))

    def of(self, cgroup: int) -> list[float]:
        """Lost seconds per second, oldest first."""
        return [point.get(cgroup, 0.0) for point in self._points]

    def whole(self) -> list[float]:
        """The same over all cgroups."""
        return [sum(point.values()) for point in self._points]
