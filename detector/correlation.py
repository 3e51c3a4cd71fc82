"""Whose activity goes with a loss, for many victims at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.blame import Floats
from detector.cpi2 import antagonist_scores

LEAST_SCORE = 0.35
"""Antagonist score from which CPI2 blames (Zhang et al., EuroSys 2013)."""
LEAST_TICKS = 5
"""Ticks that a correlation needs."""


@dataclass(frozen=True, slots=True)
class History:
    """The ticks up to this one, oldest first."""

    harm: Floats
    """What each cgroup suffered, shape (ticks, cgroups); NaN where it was not measured."""
    activity: Floats
    """What each cgroup did meanwhile, same shape."""


def correlate(
    past: History, rows: NDArray[np.intp], thresholds: Floats, eligible: NDArray[np.bool_]
) -> list[list[tuple[int, float]]]:
    """For each victim's row the rows of those whose activity goes with its loss, with their shares of all activity.

    Harm above the victim's threshold counts as harmed. Needs ticks with and without it: without contrast every steady
    neighbour goes with a steady loss. `eligible` are the rows that may be blamed; nobody is blamed for its own loss.
    """
    harm = past.harm[:, rows]
    harmed, known = harm > thresholds, np.isfinite(harm)
    contrast = harmed.any(axis=0) & (known & ~harmed).any(axis=0) & (known.sum(axis=0) >= LEAST_TICKS)
    if not contrast.any():
        return [[] for _ in rows]
    activity = np.where(eligible, np.nan_to_num(past.activity), 0.0)
    scores = antagonist_scores(harm, thresholds, activity)
    scores[np.arange(len(rows)), rows] = -1.0
    scores[~contrast] = -1.0
    meanwhile = harmed.T.astype(np.float64) @ activity
    meanwhile[np.arange(len(rows)), rows] = 0.0
    shares = meanwhile / np.maximum(meanwhile.sum(axis=1), 1e-300)[:, None]
    return [_chosen(scores[place], shares[place]) for place in range(len(rows))]


def _chosen(scores: Floats, shares: Floats) -> list[tuple[int, float]]:
    rows = np.flatnonzero(scores >= LEAST_SCORE)
    return list(zip(rows.tolist(), shares[rows].tolist(), strict=True))
