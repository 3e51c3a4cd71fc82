"""Sketches as a few points of equal weight: small enough for objects of the cluster, and still mergeable. Pure.

Of n points the i-th is the bucket of the (i + 1/2)/n quantile, so a distribution made of them has every quantile within
1/(2n) of its rank; the ends are cut by as much, and the highest point stands for the 99th percentile.
"""

import numpy as np
from numpy.typing import NDArray

from detector.baselines.sketch import BUCKETS


def points_of(counts: NDArray[np.floating], points: int) -> NDArray[np.int64]:
    """Return ascending buckets of shape (n, points) of sketches of shape (n, BUCKETS), none of which is empty."""
    cumulative = np.cumsum(counts, axis=1, dtype=np.float64)
    targets = (np.arange(points) + 0.5) / points * cumulative[:, -1:]
    found = (cumulative[:, None, :] < targets[:, :, None]).sum(axis=2)
    return np.asarray(np.minimum(found, BUCKETS - 1), dtype=np.int64)


def counted(points: NDArray[np.int64], weight: float) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return buckets and counts of the sketch that some points stand for, `weight` in all."""
    buckets, times = np.unique(points, return_counts=True)
    return tuple(buckets.tolist()), tuple((times * (weight / len(points))).tolist())
