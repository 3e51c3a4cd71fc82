"""Totals of pairs of victim and culprit, as series with a bound for each victim."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from koordlet.metrics.labels import Labels

_SWEEP_AT = 512
"""Culprits remembered by number from which those that do not come at present are forgotten: they may be gone."""
_MAX_KEYS = 65_536
"""Pairs remembered before all are numbered anew; those of a victim that has its most culprits are many, and all in the
row of `other`."""
_NUMBER = 0xFFFFFFFF
"""Bits of a key that are the culprit's number; the others are the seat."""


class PairTotals:
    """Seconds by victim and culprit. Thousands of pairs come at once, nearly all of which had a series before."""

    def __init__(self, most: int, other: Labels) -> None:
        """Each victim has at most `most` culprits of its own; the rest is that of the culprit `other`."""
        self._most = most
        self._other = other
        self._series: dict[Labels, dict[Labels, int]] = {}
        """Row of the totals, by victim and culprit."""
        self._totals = np.zeros(256)
        self._free = list(range(255, -1, -1))
        self._codes: dict[Labels, int] = {}
        """Number of each culprit that came."""
        self._next_code = 0
        self._sweep_at = _SWEEP_AT
        self._keys = np.empty(0, dtype=np.int64)
        """Seat and number of culprit of each pair that came, sorted."""
        self._rows = np.empty(0, dtype=np.intp)
        """Row of the totals of each."""

    def add(
        self,
        seats: NDArray[np.int64],
        culprits: NDArray[np.uint64],
        seconds: NDArray[np.float64],
        label_of: Callable[[int], Labels],
        name_of: Callable[[int], Labels],
    ) -> None:
        """Add what pairs grew by. Victims come by seat, 0 for all without one, and `label_of` has their labels."""
        distinct, inverse = np.unique(culprits, return_inverse=True)
        if len(self._keys) > _MAX_KEYS:
            self._codes, self._next_code = {}, 0
            self._keys, self._rows = self._keys[:0], self._rows[:0]
        names = [name_of(culprit) for culprit in distinct.tolist()]
        if len(self._codes) > self._sweep_at:
            self._sweep(names)
        numbers = np.array([self._code(name) for name in names], dtype=np.int64)
        keys = seats << 32 | numbers[inverse]
        new = np.setdiff1d(keys, self._keys)
        if len(new):
            by_code = dict(zip(numbers.tolist(), names, strict=True))
            found = {key: self._row(label_of(key >> 32), by_code[key & _NUMBER], key >> 32) for key in new.tolist()}
            at = np.searchsorted(self._keys, new)
            self._keys = np.insert(self._keys, at, new)
            self._rows = np.insert(self._rows, at, [found[key] for key in new.tolist()])
        np.add.at(self._totals, self._rows[np.searchsorted(self._keys, keys)], seconds)

    @property
    def remembered(self) -> int:
        """Number of culprits that are remembered by number."""
        return len(self._codes)

    def _code(self, name: Labels) -> int:
        code = self._codes.get(name)
        if code is None:
            code = self._codes[name] = self._next_code
            self._next_code += 1
        return code

    def _sweep(self, names: Iterable[Labels]) -> None:
        """Forget all culprits but those that come now, with their pairs: one that comes again is numbered anew."""
        self._codes = {name: self._codes[name] for name in names if name in self._codes}
        self._sweep_at = max(_SWEEP_AT, 2 * len(self._codes))
        kept = np.isin(self._keys & _NUMBER, np.array(list(self._codes.values()), dtype=np.int64))
        self._keys, self._rows = self._keys[kept], self._rows[kept]

    def forget(self, seat: int, victim: Labels) -> None:
        """Drop the series of a victim that loses its seat."""
        for row in self._series.pop(victim, {}).values():
            self._totals[row] = 0.0
            self._free.append(row)
        kept = self._keys >> 32 != seat
        self._keys, self._rows = self._keys[kept], self._rows[kept]

    def items(self) -> Iterator[tuple[Labels, Labels, float]]:
        """Victim, culprit and seconds of each series."""
        for victim, rows in self._series.items():
            for culprit, row in rows.items():
                yield victim, culprit, float(self._totals[row])

    def _row(self, victim: Labels, culprit: Labels, seat: int) -> int:
        series = self._series.setdefault(victim, {})
        if culprit not in series and (len(series) > self._most or not seat):
            culprit = self._other
        if culprit not in series:
            if not self._free:
                size = len(self._totals)
                self._totals = np.append(self._totals, np.zeros(size))
                self._free = list(range(2 * size - 1, size - 1, -1))
            series[culprit] = self._free.pop()
        return series[culprit]
