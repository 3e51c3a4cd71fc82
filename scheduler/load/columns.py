"""Load limits and load scores of all nodes at once. Arrays are int64 of shape [resources, nodes]."""

from collections.abc import Sequence

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
    allocatable: Amounts, used: Amounts, *, weights: Sequence[int], dominant_weight: int
) -> npt.NDArray[np.int64]:
    """0 to 100 per node: the weighted mean of each resource's free share, the least free one weighed again.

    Free share is `(allocatable - used) * 100 / allocatable` in whole percent, 0 when over-used or absent.
    All divisions round down. No weights at all: 0 for every node.
    """
    total_weight = sum(weights) + dominant_weight
    if total_weight <= 0 or not len(weights):
        return np.zeros(allocatable.shape[-1], dtype=np.int64)
    free = free_percent(allocatable, used)
    weighed = np.asarray(weights, dtype=np.int64) @ free
    if dominant_weight:
        weighed += free.min(axis=0) * dominant_weight
    return weighed // total_weight


def free_percent(allocatable: Amounts, used: Amounts) -> Amounts:
    """Free share per resource and node in whole percent, rounded down; 0 when over-used or absent."""
    free = np.maximum(allocatable - used, 0)
    share: Amounts = np.zeros_like(free)
    np.floor_divide(free * 100, allocatable, out=share, where=allocatable > 0)
    return share
