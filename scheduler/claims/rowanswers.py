"""Answers for all rows by what is asked, of which only those for changed rows are asked again."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster_state.columns import Row

MAX_QUESTIONS = 128
"""Questions whose answers are kept."""
MAX_CHANGES = 4096
"""Changes that are remembered one by one; answers from before that are asked anew."""


@dataclass(slots=True, eq=False)
class _Answers:
    bits: NDArray[np.int64]
    seen: int
    """Number of changes that they take into account."""
    unknown: set[Row] = field(default_factory=set)
    """Rows that are asked again next time."""


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
        self, question: bytes, rows_used: int, answer: Callable[[Row], int], *, unknown: int | None = None
    ) -> NDArray[np.int64]:
        """int64[rows_used]: the answers for all rows. Not to be changed. An answer `unknown` is not kept."""
        seen = self._forgotten + len(self._changes)
        known = self._known.pop(question, None)
        if known is None or known.seen < self._forgotten:
            known = _Answers(np.zeros(0, dtype=np.int64), seen)
            stale: set[Row] = set()
        else:
            stale = {*self._changes[known.seen - self._forgotten :], *known.unknown}
        before = known.bits.shape[0]
        if before != rows_used:
            bits = np.zeros(rows_used, dtype=np.int64)
            bits[: min(before, rows_used)] = known.bits[:rows_used]
            known.bits = bits
            stale |= set(range(before, rows_used))
        elif stale:
            known.bits = known.bits.copy()
        known.unknown.clear()
        for row in stale:
            if row < rows_used:
                known.bits[row] = given = answer(row)
                if given == unknown:
                    known.unknown.add(row)
        known.seen = seen
        if len(self._known) >= MAX_QUESTIONS:
            del self._known[next(iter(self._known))]
        self._known[question] = known
        return known.bits
