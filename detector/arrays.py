"""Array types of the detector: numpy arrays with a row for each cgroup, or a value for each pair of a blame table."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ids: TypeAlias = NDArray[np.uint64]
"""Cgroup ids."""
Flags: TypeAlias = NDArray[np.bool_]
Rows: TypeAlias = NDArray[np.intp]
"""Positions of rows."""

_ONE_THREAD = 4 * 65_536
"""Multiplications up to which OpenBLAS uses one thread."""


def product(left: Floats, right: Floats) -> Floats:
    """Matrix product in parts so small that OpenBLAS starts no threads, which would spin on others' CPUs."""
    step = max(_ONE_THREAD // max(right.size, 1), 1)
    return np.concatenate([left[first : first + step] @ right for first in range(0, max(len(left), 1), step)])
