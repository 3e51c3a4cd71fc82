"""A mergeable quantile sketch: counts in fixed logarithmic buckets, four to the octave.

The grid never changes, so sketches of any two nodes add bucket by bucket. It is the idea of DDSketch (Masson,
Rim and Lee, VLDB 2019) with a fixed range; linear interpolation inside a bucket keeps the relative error of a
quantile below one bucket's width, 19 %.
"""

import numpy as np
from numpy.typing import NDArray

PER_OCTAVE = 4
LOWEST_EXPONENT = -20
"""Values up to 2**-20 (about one millionth) count as zero, in bucket 0."""
HIGHEST_EXPONENT = 40
"""Values from 2**40 (1.1e12; 18 minutes in nanoseconds) up share the last bucket."""
BUCKETS = 1 + (HIGHEST_EXPONENT - LOWEST_EXPONENT) * PER_OCTAVE

UPPER_EDGES: NDArray[np.float64] = np.exp2(LOWEST_EXPONENT + np.arange(BUCKETS) / PER_OCTAVE)
"""Upper edge of each bucket, in the unit of the values; that of the last one is nominal."""
_LOWER_EDGES: NDArray[np.float64] = np.concatenate([[0.0], UPPER_EDGES[:-1]])
RESOLUTION = 2 ** (1 / PER_OCTAVE) - 1
"""Relative width of a bucket: no spread below it can be distinguished from none."""


def bucket_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each value, same shape; values must be finite, negative ones count as zero."""
    with np.errstate(divide="ignore"):
        exponents = np.log2(np.maximum(values, 0.0))
    steps = np.ceil((np.maximum(exponents, LOWEST_EXPONENT) - LOWEST_EXPONENT) * PER_OCTAVE)
    return np.asarray(np.minimum(steps, BUCKETS - 1), dtype=np.int64)


def edges_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Lower and upper edge of the bucket of each value, same shape: no quantile is known closer than these."""
    bucket = bucket_of(values)
    return _LOWER_EDGES[bucket], UPPER_EDGES[bucket]


def quantiles(counts: NDArray[np.floating], wanted: tuple[float | NDArray[np.float64], ...]) -> NDArray[np.float64]:
    """Quantiles of sketches of shape (n, BUCKETS): shape (n, len(wanted)), NaN where nothing was counted.

    Each is one number for all sketches, or one for each.
    """
    cumulative = np.cumsum(counts, axis=1, dtype=np.float64)
    total = cumulative[:, -1]
    rows = np.arange(len(counts))
    found = np.empty((len(counts), len(wanted)))
    for position, quantile in enumerate(wanted):
        target = quantile * total
        index = np.minimum((cumulative < target[:, None]).sum(axis=1), BUCKETS - 1)
        inside = counts[rows, index].astype(np.float64)
        below = cumulative[rows, index] - inside
        fraction = np.clip((target - below) / np.where(inside > 0, inside, 1.0), 0.0, 1.0)
        lower = _LOWER_EDGES[index]
        value = np.where(index == 0, 0.0, lower + (UPPER_EDGES[index] - lower) * fraction)
        found[:, position] = np.where(total > 0, value, np.nan)
    return found
