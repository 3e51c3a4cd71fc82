"""Levels: how high a cell's samples lie by now, and how high they lie where they are ordinary. Pure.

What is ordinary is a lower envelope. A stretch that lies half as high again as it, and more, teaches nothing: the level
follows by at most a quarter in an hour, which a day's rhythm does not outrun and a neighbour that takes more and more
does. A stretch that lies as far below for some minutes shows that what was learned before was not ordinary, such as a
start beside a neighbour, so learning starts anew. Where a higher level was told for long and accepted, it stays
ordinary until it was not seen again for a half-life.

A service that wanders comes down by itself, again and again, by some part of an octave from minute to minute. As far as
moves of that size in random order carry a level in an hour, its ordinary reach is wider. One that is steady, and one
that a neighbour slows step by step, does not come down.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.arrays import Flags, Floats
from detector.baselines.sketch import BUCKETS, LOWEST_EXPONENT, PER_OCTAVE

NEAR_OCTAVES = float(np.log2(1.5))
"""Distance from the ordinary level within which a stretch is ordinary."""
OCTAVES_A_SECOND = float(np.log2(1.25)) / 3600.0
"""The ordinary level follows what is seen by no more than this."""
LOWER_PERIODS = 5
"""Periods in a row after which a lower level replaces what was learned: a burst of quick failures is none."""
MOST_REACH_OCTAVES = 1.5
"""A slowdown of three times is told of the service that wanders most."""
_FALL_PERIODS = 240.0
"""Periods over which the mean of the way down is taken."""
_LEAST_FALL_PERIODS = 8.0
"""Before so many were seen, the others are taken to have had none."""
_JUMP_OCTAVES = 0.3
"""A move of a period from which it is a step, up or down: that is a neighbour that comes or goes, and no wandering."""
_JUMP_PERIODS = 2
"""Periods after a step in which the recent level is still on its way."""
_MEAN_ROOT = 0.411
"""Mean of the root of the positive part of a normal variable of variance 1. Roots, because many small ways down are
wandering and a long one is the end of a neighbour's work."""
_REACH_RATIO = float(np.sqrt(60.0 * np.e))
"""From the standard deviation of the recent level's moves in a minute to that of an hour's moves in random order; the
recent level is a mean over a minute itself and shows one part in e of a minute's variance."""
_RECENT_TICKS = 60.0
"""Ticks over which the recent level is a mean."""
_LONGEST_STEP_SECONDS = 10.0
"""Of the time in which a cell was not seen, no more counts as time to follow."""
_COLUMNS: Mapping[str, Any] = {
    "recent": np.float64,
    "ordinary": np.float64,
    "seen": np.float64,
    "ticks": np.int64,
    "period": np.int64,
    "periods": np.int64,
    "lower": np.int64,
    "kept_until": np.float64,
    "known": np.bool_,
    "marked": np.float64,
    "fall": np.float64,
    "falls": np.float64,
    "jumped": np.int64,
}


def octaves_of(values: Floats) -> Floats:
    """Return values as powers of two; what a sketch counts as zero lies at its lowest."""
    return np.asarray(np.log2(np.maximum(values, 2.0**LOWEST_EXPONENT)), dtype=np.float64)


def middle_octaves(counts: NDArray[np.floating]) -> Floats:
    """Return the levels of sketches that are not empty, shape (n, BUCKETS): the middle of their medians' buckets."""
    sums = np.cumsum(counts, axis=1, dtype=np.float64)
    buckets = np.minimum((sums < sums[:, -1:] / 2).sum(axis=1), BUCKETS - 1)
    return np.asarray(LOWEST_EXPONENT + (buckets - 0.5) / PER_OCTAVE, dtype=np.float64)


def middle_octave(counts: NDArray[np.floating]) -> float:
    """Return the level of one sketch that is not empty."""
    return float(middle_octaves(counts[None])[0])


class Levels:
    """One row a cell; levels are powers of two of the signal's unit, times are wall-clock seconds."""

    __slots__ = ("columns", "half_life", "period_seconds")

    def __init__(self, half_life_seconds: float, period_seconds: float, count: int = 0) -> None:
        self.half_life = half_life_seconds
        self.period_seconds = period_seconds
        self.columns: dict[str, NDArray[Any]] = {name: np.zeros(count, dtype) for name, dtype in _COLUMNS.items()}

    def extend(self, more: int) -> None:
        """Add rows that have seen nothing."""
        for name, column in self.columns.items():
            self.columns[name] = np.concatenate([column, np.zeros(more, column.dtype)])

    def keep(self, rows: NDArray[np.intp]) -> None:
        """Drop all other rows."""
        for name, column in self.columns.items():
            self.columns[name] = column[rows]

    def reach(self, rows: NDArray[np.int32]) -> Floats:
        """Return how far above the ordinary level cells wander by themselves, in octaves."""
        seen = self.columns["falls"][rows]
        mean = self.columns["fall"][rows] * np.minimum(seen / _LEAST_FALL_PERIODS, 1.0)
        return np.asarray(np.minimum((mean / _MEAN_ROOT) ** 2 * _REACH_RATIO, MOST_REACH_OCTAVES), dtype=np.float64)

    def _near(self, rows: NDArray[np.int32]) -> Floats:
        return np.maximum(self.reach(rows), NEAR_OCTAVES)

    def are_kept(self, rows: NDArray[np.int32], now_seconds: float) -> Flags:
        """Return where a level was accepted lately; a row of -1 has none."""
        kept = rows >= 0
        kept[kept] = self.columns["kept_until"][rows[kept]] > now_seconds
        return np.asarray(kept, dtype=np.bool_)

    def accept(self, rows: NDArray[np.int32], octaves: Floats, now_seconds: float) -> Flags:
        """Return which values are ordinary by a level that was accepted lately: as single ones, before a stretch is."""
        accepted = self.are_kept(rows, now_seconds)
        rows = rows[accepted]
        accepted[accepted] = octaves[accepted] <= self.columns["ordinary"][rows] + self._near(rows)
        return accepted

    def begin(self, row: int, ordinary: float, periods: int, kept_until: float, now_seconds: float) -> None:
        """Let a row go on from what another had learned; of two levels the lower is ordinary, unless one is kept."""
        columns = self.columns
        before = float(columns["ordinary"][row])
        kept = max(kept_until, float(columns["kept_until"][row]))
        known = columns["periods"][row] > 0
        level = ordinary if not known else max(before, ordinary) if kept > now_seconds else min(before, ordinary)
        columns["recent"][row] = columns["ordinary"][row] = level
        columns["periods"][row] = max(int(columns["periods"][row]), periods)
        columns["ticks"][row] = max(int(columns["ticks"][row]), int(_RECENT_TICKS))
        columns["kept_until"][row] = kept
        columns["known"][row] = True

    def add_falls(self, row: int, fall: float, falls: float) -> None:
        """Count what another has seen of how a cell comes down."""
        columns = self.columns
        seen = float(columns["falls"][row]) + falls
        if seen > 0:
            columns["fall"][row] += (fall - columns["fall"][row]) * falls / seen
            columns["falls"][row] = seen

    def unsettled(self, rows: NDArray[np.int32], ready: Flags) -> NDArray[np.int32]:
        """Return the cells that are ready and were not when they last were asked what may teach."""
        return np.unique(rows[ready & ~self.columns["known"][rows]])

    def settle(self, rows: NDArray[np.int32], octaves: Floats, now_seconds: float) -> None:
        """Let these levels be ordinary: those of all that was learned so far.

        Until then the recent level stands for them. It comes from the first value by an octave a minute at most, so
        after a first tick of zero it would be far below all others for a quarter of an hour.
        """
        columns = self.columns
        kept = columns["kept_until"][rows] > now_seconds
        columns["recent"][rows] = octaves
        columns["ordinary"][rows] = np.where(kept, np.maximum(columns["ordinary"][rows], octaves), octaves)

    def see(self, rows: NDArray[np.int32], octaves: Floats) -> None:
        """Take in what the cells show in this tick, whether or not it may teach; a row may occur more than once."""
        cells, place, times = np.unique(rows, return_inverse=True, return_counts=True)
        columns = self.columns
        recent, ticks = columns["recent"][cells], columns["ticks"][cells]
        first = ticks == 0
        if first.any():
            recent[first] = (np.bincount(place, octaves) / times)[first]
        # A step counts as an octave at most, so that a heavy tail moves the level as little as the middle does.
        steps = np.bincount(place, np.clip(octaves - recent[place], -1.0, 1.0)) / times
        columns["recent"][cells] = recent + steps / np.minimum(ticks + 1, _RECENT_TICKS)
        columns["ticks"][cells] = ticks + 1

    def admit(
        self, rows: NDArray[np.int32], ready: Flags, accepted: Flags, now_seconds: float
    ) -> tuple[Flags, NDArray[np.int32]]:
        """Return which rows may teach, and the cells that have to start anew.

        `ready` marks cells that know an ordinary level, `accepted` what is ordinary from now on wherever it lies.
        """
        cells, first, place = np.unique(rows, return_index=True, return_inverse=True)
        known, columns = ready[first], self.columns
        told = np.bincount(place, accepted) > 0
        recent, ordinary = columns["recent"][cells], columns["ordinary"][cells]
        period = int(now_seconds // self.period_seconds)
        fresh = (columns["period"][cells] != period) | (columns["periods"][cells] == 0)
        self._follow_falls(cells, fresh, period)
        near = self._near(cells)
        columns["period"][cells] = period
        columns["periods"][cells] += fresh
        kept_until = columns["kept_until"][cells]
        rise = recent - ordinary
        renewed = told | ((kept_until > now_seconds) & (rise >= -near))
        kept_until = np.where(renewed & known, now_seconds + self.half_life, kept_until)
        kept = kept_until > now_seconds
        below = known & ~kept & (rise < -near)
        lower = np.where(below, columns["lower"][cells] + fresh, 0)
        anew = lower > LOWER_PERIODS
        passed = np.clip(now_seconds - columns["seen"][cells], 0.0, _LONGEST_STEP_SECONDS) * OCTAVES_A_SECOND
        followed = ordinary + np.clip(rise, np.where(kept, 0.0, -passed), passed)
        followed = np.where(told, np.maximum(ordinary, recent), followed)
        columns["ordinary"][cells] = np.where(known & ~anew, followed, recent)
        columns["seen"][cells] = now_seconds
        columns["known"][cells] = known
        columns["lower"][cells] = np.where(anew, 0, lower)
        columns["kept_until"][cells] = kept_until
        teaches = ~known | told | (rise <= near)
        return np.asarray(teaches[place], dtype=np.bool_), cells[anew]

    def _follow_falls(self, cells: NDArray[np.int32], fresh: Flags, period: int) -> None:
        """Take in how far the recent levels came down since the period before, where both may teach."""
        columns = self.columns
        cells = cells[fresh]
        recent = columns["recent"][cells]
        paired = (columns["period"][cells] == period - 1) & (columns["periods"][cells] > 0)
        moved = (columns["marked"][cells] - recent)[paired]
        columns["marked"][cells] = recent
        columns["jumped"][cells[~paired]] = _JUMP_PERIODS  # what was not seen may have been a step
        cells = cells[paired]
        jumped = np.where(np.abs(moved) > _JUMP_OCTAVES, _JUMP_PERIODS + 1, columns["jumped"][cells])
        columns["jumped"][cells] = np.maximum(jumped - 1, 0)
        fell = np.where(jumped > 0, 0.0, np.sqrt(np.maximum(moved, 0.0)))
        columns["falls"][cells] += 1.0
        columns["fall"][cells] += (fell - columns["fall"][cells]) / np.minimum(columns["falls"][cells], _FALL_PERIODS)
