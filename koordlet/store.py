"""Recent frames in memory, bounded by time and number; hands out immutable windows."""

from collections import deque

from api.frame import Frame
from api.window import Window


class FrameStore:
    """A ring of frames, newest last."""

    def __init__(self, history_seconds: float, interval_seconds: float) -> None:
        self._frames: deque[Frame] = deque(maxlen=max(2, int(history_seconds / interval_seconds) + 1))

    def append(self, frame: Frame) -> None:
        """Keep one more frame; the oldest falls out."""
        self._frames.append(frame)

    def window(self, seconds: float | None = None) -> Window | None:
        """The newest frames spanning at least `seconds` (all by default); None until there are two."""
        if len(self._frames) < 2:
            return None
        window = Window(tuple(self._frames))
        return window if seconds is None else window.tail(seconds)
