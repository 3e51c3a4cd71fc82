"""Answers for all rows by what is asked, of which only those for changed rows are asked again."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster_state.columns import Row

MAX_QUESTIONS = 128
"""Questions whose answers are kept."""
MAX_CHANGES = 4096
"""Changes that are remembered one by one; answers from before that are asked anew."""
ENOUGH_ROWS = 256
"""Rows that an attempt searches once it knows one that serves; kube-scheduler stops at a share of the nodes too."""
MAX_ROWS = 1024
"""Rows that an attempt searches in any case; then it is the next tick's turn."""


@dataclass(slots=True, eq=False)
class _Answers:
    bits: NDArray[np.int64]
    stale: NDArray[np.bool_]
    """Rows to ask."""
    seen: int
    """Number of changes that they take into account."""

    def fit(self, rows_used: int) -> None:
        """Have so many rows; new ones are to be asked."""
        kept = min(rows_used, self.bits.shape[0])
        bits, stale = np.zeros(rows_used, dtype=np.int64), np.ones(rows_used, dtype=bool)
        bits[:kept], stale[:kept] = self.bits[:kept], self.stale[:kept]
        self.bits, self.stale = bits, stale


@dataclass(slots=True, eq=False)
class Looks:
    """Rows that one attempt asked for their devices."""

    known: dict[Hashable, int] = field(default_factory=dict)
    """Answers by likeness."""
    searched: int = 0
    serving: int = 0

    @property
    def over(self) -> bool:
        """The other rows are left for the next attempt."""
        return self.searched >= (ENOUGH_ROWS if self.serving else MAX_ROWS)


class RowAnswers:
    """Answers, int64 a row, by question."""

    def __init__(self) -> None:
        self._known: dict[bytes, _Answers] = {}
        self._changes: list[Row] = []
        self._forgotten = 0
        """Number of changes before the first that is remembered."""

    def row_changed(self, row: Row | None) -> None:
        """Answers for the row are out of date; None is every row."""
        if row is None or len(self._changes) >= MAX_CHANGES:
            self._forgotten += len(self._changes) + 1
            self._changes.clear()
        else:
            self._changes.append(row)

    def clear(self) -> None:
        """Forget all answers."""
        self._known.clear()

    def of(
        self,
        question: bytes,
        rows_used: int,
        answer: Callable[[Row], int],
        *,
        unknown: int | None = None,
        wanted: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """int64[rows_used]: the answers for the rows that are `wanted`, all by default. Not to be changed.

        An answer `unknown` is asked for again next time; what stands at other rows means nothing.
        """
        seen = self._forgotten + len(self._changes)
        known = self._known.pop(question, None)
        if known is None or known.seen < self._forgotten:
            known = _Answers(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool), seen)
        for row in self._changes[known.seen - self._forgotten :]:
            if row < known.stale.shape[0]:
                known.stale[row] = True
        if known.bits.shape[0] != rows_used:
            known.fit(rows_used)
        asked = np.flatnonzero(known.stale if wanted is None else known.stale & wanted).tolist()
        if asked:
            known.bits = known.bits.copy()
        for row in asked:
            known.bits[row] = given = answer(row)
            known.stale[row] = given == unknown
        known.seen = seen
        if len(self._known) >= MAX_QUESTIONS:
            del self._known[next(iter(self._known))]
        self._known[question] = known
        return known.bits
