"""Recent frames in memory, bounded by time and size.

The newest frames are whole. Older ones keep only the columns that long windows need: plain ones of the dense table and
the host, so that two minutes of a full node fit in a few megabytes.
"""

from collections import deque
from dataclasses import replace

from api.frame import CGROUP, HOST, Frame, Table
from api.window import Window

WHOLE_SECONDS = 12.0
"""Age up to which frames keep histograms and sparse tables."""


class FrameStore:
    """A ring of frames, newest last."""

    def __init__(self, history_seconds: float, interval_seconds: float) -> None:
        self._whole = max(2, int(WHOLE_SECONDS / interval_seconds))
        self._frames: deque[Frame] = deque(maxlen=max(2, int(history_seconds / interval_seconds) + 1))

    def append(self, frame: Frame) -> None:
        """Add a frame; one loses its histograms and sparse tables, and the oldest is dropped."""
        self._frames.append(frame)
        if len(self._frames) > self._whole:
            position = len(self._frames) - self._whole - 1
            self._frames[position] = thin(self._frames[position])

    def window(self, seconds: float | None = None) -> Window | None:
        """Return the newest frames that span at least `seconds` (all by default); None until there are two."""
        if len(self._frames) < 2:
            return None
        window = Window(tuple(self._frames))
        return window if seconds is None else window.tail(seconds)


def thin(frame: Frame) -> Frame:
    """The frame without histograms and without tables other than the dense one and the host's."""
    dense = frame.tables[CGROUP]
    plain = {name: column.copy() for name, column in dense.columns.items() if column.ndim == 1}
    kept = {CGROUP: Table(dense.keys, plain)}
    if HOST in frame.tables:
        kept[HOST] = frame.tables[HOST]
    return replace(frame, tables=kept)
