"""Recent frames in memory, bounded by time and size.

The newest frames are whole. Older ones keep only the columns that long windows need: plain ones of the dense table and
the host, so that two minutes of a full node fit in a few megabytes.
"""

from collections import deque
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, HOST, Column, Frame, Table
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
            before = self._frames[position - 1] if position else None
            self._frames[position] = thin(self._frames[position], before)

    def window(self, seconds: float | None = None) -> Window | None:
        """Return the newest frames that span at least `seconds` (all by default); None until there are two."""
        if len(self._frames) < 2:
            return None
        window = Window(tuple(self._frames))
        return window if seconds is None else window.tail(seconds)


def thin(frame: Frame, before: Frame | None = None) -> Frame:
    """The frame without histograms and without tables other than the dense one and the host's.

    Columns that are as in the thin frame before it are that frame's: much of a node stands still, and what is read in
    turn has one time for all columns of a file.
    """
    dense = frame.tables[CGROUP]
    known = before.tables[CGROUP].columns if before else {}
    plain = {name: _kept(column, known.get(name)) for name, column in dense.columns.items() if column.ndim == 1}
    kept = {CGROUP: Table(dense.keys, plain)}
    if HOST in frame.tables:
        kept[HOST] = frame.tables[HOST]
    times: dict[str, NDArray[np.float64]] = {}
    distinct: dict[bytes, NDArray[np.float64]] = {}
    for name, column in frame.read_ns.items():
        content = column.tobytes()
        if content not in distinct:
            distinct[content] = column.copy()
        times[name] = distinct[content]
    return replace(frame, tables=kept, read_ns=times)


def _kept(column: Column, before: Column | None) -> Column:
    if before is None or before.dtype != column.dtype:
        return column.copy()
    # As bytes: a tenth of the time of a comparison by value, and NaN, not measured, is as it was.
    return before if before.tobytes() == column.tobytes() else column.copy()
