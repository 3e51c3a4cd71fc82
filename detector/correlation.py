"""Correlation of neighbours' activity with losses, for many victims at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.arrays import Floats
from detector.cpi2.published import antagonist_scores

MIN_SCORE = 0.35
"""Antagonist score from which CPI2 blames (Zhang et al., EuroSys 2013)."""
MIN_SHARE = 0.01
"""Smaller parts of a loss are not listed."""
MIN_TICKS = 5
"""Ticks that a correlation needs."""


@dataclass(frozen=True, slots=True)
class History:
    """The ticks up to this one, oldest first."""

    harm: Floats
    """Loss of each cgroup, shape (ticks, cgroups); NaN where it was not measured."""
    activity: Floats
    """Activity of each cgroup meanwhile, same shape."""


def correlate(past: History, rows: NDArray[np.intp], thresholds: Floats) -> list[list[tuple[int, float]]]:
    """For each victim's row the rows of cgroups whose activity correlates with its loss, with their shares of all
    activity.

    Harm above the victim's threshold counts as harmed. Needs ticks with and without it: without contrast every steady
    neighbour goes with a steady loss. No cgroup is blamed for its own loss.
    """
    harm = past.harm[:, rows]
    harmed, known = harm > thresholds, np.isfinite(harm)
    contrast = harmed.any(axis=0) & (known & ~harmed).any(axis=0) & (known.sum(axis=0) >= MIN_TICKS)
    if not contrast.any():
        return [[] for _ in rows]
    activity = np.nan_to_num(past.activity)
    scores = antagonist_scores(harm, thresholds, activity)
    scores[np.arange(len(rows)), rows] = -1.0
    scores[~contrast] = -1.0
    total = activity.sum(axis=1)
    return [
        _shared(activity[harmed[:, place]], total[harmed[:, place]], row, np.flatnonzero(above))
        for place, (row, above) in enumerate(zip(rows.tolist(), scores >= MIN_SCORE, strict=True))
    ]


def _shared(meanwhile: Floats, total: Floats, own: int, chosen: NDArray[np.intp]) -> list[tuple[int, float]]:
    """Parts of the activity of all but the victim while it was harmed."""
    if not len(chosen):
        return []
    others = float(total.sum() - meanwhile[:, own].sum())
    parts = np.minimum(meanwhile[:, chosen].sum(axis=0) / max(others, 1e-300), 1.0)
    listed = parts >= MIN_SHARE
    return list(zip(chosen[listed].tolist(), parts[listed].tolist(), strict=True))
