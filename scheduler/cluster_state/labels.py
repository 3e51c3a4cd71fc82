"""Node labels as columns of interned values, made for the keys that a plugin asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ABSENT = -1
"""Value id of a node without the label."""


@dataclass(slots=True, eq=False)
class LabelColumn:
    """One label key over all rows. `ids[row]` indexes `texts`; a value once seen keeps its id."""

    ids: NDArray[np.int32]
    texts: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def set(self, row: int, value: str | None) -> None:
        """Store the value of a row; None is absent."""
        if value is None:
            self.ids[row] = ABSENT
            return
        known = self.index.get(value)
        if known is None:
            known = self.index[value] = len(self.texts)
            self.texts.append(value)
        self.ids[row] = known


class LabelColumns:
    """Labels of all rows, with a column per key that was asked for."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._labels: dict[int, Mapping[str, str]] = {}
        self._columns: dict[str, LabelColumn] = {}

    def column(self, key: str) -> LabelColumn:
        """The column of a label key, kept up to date from here on."""
        column = self._columns.get(key)
        if column is None:
            column = LabelColumn(np.full(self._capacity, ABSENT, dtype=np.int32))
            for row, labels in self._labels.items():
                column.set(row, labels.get(key))
            self._columns[key] = column
        return column

    def of(self, row: int) -> Mapping[str, str]:
        """All labels of a row; empty when it holds no node."""
        return self._labels.get(row, {})

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """Take over a node's labels."""
        self._labels[row] = labels
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def clear(self, row: int) -> None:
        """The row holds no node any more."""
        self._labels.pop(row, None)
        for column in self._columns.values():
            column.set(row, None)

    def lengthen(self, capacity: int) -> None:
        """Make room for more rows."""
        extra = capacity - self._capacity
        self._capacity = capacity
        for column in self._columns.values():
            tail = np.full(extra, ABSENT, dtype=np.int32)
            column.ids = np.concatenate([column.ids, tail])
