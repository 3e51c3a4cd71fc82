"""Samples of the last moments, and their means: what a strategy remembers of the ticks before."""

from collections import deque


class Samples:
    """Values by time, as far back as the longest window asked for."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, tuple[float, ...]]] = deque()

    def add(self, now: float, window_seconds: float, *values: float) -> None:
        """Note the values of this tick and forget those older than the window."""
        self._kept.append((now, values))
        self.forget(now, window_seconds)

    def forget(self, now: float, window_seconds: float) -> None:
        """Forget what is older than the window, where this tick has nothing to add."""
        while self._kept and self._kept[0][0] <= now - window_seconds:
            self._kept.popleft()

    def __len__(self) -> int:
        return len(self._kept)

    def means(self) -> tuple[float, ...]:
        """Mean of each value over what is kept; empty without samples."""
        columns = zip(*(values for _, values in self._kept), strict=True)
        return tuple(sum(column) / len(self._kept) for column in columns)

    def covers(self, window_seconds: float, interval_seconds: float) -> bool:
        """Whether there are samples for at least a third of the window, as Koordinator asks of averages."""
        return len(self._kept) * interval_seconds >= window_seconds / 3
