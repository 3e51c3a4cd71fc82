"""Columns: one value per row of the snapshot, and the subscripts that choose rows."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Rows: TypeAlias = slice | NDArray[np.intp]
"""Rows of the snapshot: a slice or an index array; any column takes either as a subscript."""

Row: TypeAlias = int


@dataclass(slots=True, eq=False, weakref_slot=True)
class Column:
    """One value per row, at the snapshot's capacity. Read `values` anew each time: growth replaces the array.

    The snapshot keeps it up to date as long as anything else holds it.
    """

    values: NDArray[Any]
    fill: Any
    """Value of rows that hold no node; a removed node's row is refilled with it."""
