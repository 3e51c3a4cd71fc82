"""Load limits and load scores of all nodes at once. Arrays are int64, one value per node."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Amounts = npt.NDArray[np.int64]

UNLIMITED = np.int64(1) << np.int64(62)
"""A limit that nothing reaches and that still leaves room to add."""


def usage_limits(allocatable: Amounts, thresholds: Amounts) -> Amounts:
    """The largest usage that passes: `round(100 * used / allocatable) <= threshold` in whole percent.

    Threshold or allocatable zero means that the resource of that node is not checked. Exact in integers:
    the rounded percentage exceeds t when `200 * used >= (2 * t + 1) * allocatable`.
    """
    hundreds, rest = np.divmod(allocatable, 200)
    doubled = 2 * thresholds + 1
    limits = hundreds * doubled - (-(rest * doubled) // 200) - 1
    return np.where((thresholds <= 0) | (allocatable <= 0), UNLIMITED, limits)


def load_scores(
    allocatable: Iterable[Amounts], used: Iterable[Amounts], *, weights: Sequence[int], dominant_weight: int
) -> npt.NDArray[np.int64]:
    """0 to 100 per node: the weighted mean of each resource's free share, the least free one weighed again.

    `allocatable` and `used` hold an int64[nodes] per resource, in the order of `weights`. Free share is
    `(allocatable - used) * 100 / allocatable` in whole percent, 0 when over-used or absent. All divisions round
    down. No weights at all: 0 for every node.
    """
    total_weight = sum(weights) + dominant_weight
    shares = [free_percent(offered, taken) for offered, taken in zip(allocatable, used, strict=True)]
    if total_weight <= 0:
        return np.zeros_like(shares[0])
    weighed = sum((share * weight for share, weight in zip(shares, weights, strict=True)), np.int64(0))
    if dominant_weight:
        weighed = weighed + np.minimum.reduce(shares) * dominant_weight
    return np.asarray(weighed // total_weight, dtype=np.int64)


def free_percent(allocatable: Amounts, used: Amounts) -> Amounts:
    """Free share per node in whole percent, rounded down; 0 when over-used or absent."""
    share: Amounts = np.maximum(allocatable - used, 0) * 100 // np.maximum(allocatable, 1)
    return share
