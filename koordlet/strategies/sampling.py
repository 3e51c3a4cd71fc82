"""Samples of the last ticks, and their means."""

from collections import deque


class Samples:
    """Values by time, as far back as the longest window asked for."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, tuple[float, ...]]] = deque()

    def add(self, now: float, window_seconds: float, *values: float) -> None:
        """Add the values of this tick and drop those older than the window."""
        self._kept.append((now, values))
        self.forget(now, window_seconds)

    def forget(self, now: float, window_seconds: float) -> None:
        """Drop values older than the window, where this tick has nothing to add."""
        while self._kept and self._kept[0][0] <= now - window_seconds:
            self._kept.popleft()

    def __len__(self) -> int:
        return len(self._kept)

    def means(self) -> tuple[float, ...]:
        """Return the mean of each value; empty without samples."""
        columns = zip(*(values for _, values in self._kept), strict=True)
        return tuple(sum(column) / len(self._kept) for column in columns)

    def covers(self, window_seconds: float, interval_seconds: float) -> bool:
        """Return whether there are samples for at least a third of the window, as Koordinator asks of averages."""
        return len(self._kept) * interval_seconds >= window_seconds / 3
