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
