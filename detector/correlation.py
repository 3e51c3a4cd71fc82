"""Correlation of neighbours' activity with losses, for many victims at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.arrays import Floats, product
from detector.cpi2.published import antagonist_scores

MIN_SCORE = 0.35
"""Antagonist score from which CPI2 blames (Zhang et al., EuroSys 2013)."""
MIN_SHARE = 0.01
"""Smaller parts of a loss are not listed."""
MIN_TICKS = 5
"""Ticks that a correlation needs."""
CHANCE = 0.05
"""Probability at which chance names a suspect where none is to blame."""
ALIKE = 0.5
"""Correlation of the harm with its own past from which a shift is no other course."""


@dataclass(frozen=True, slots=True)
class History:
    """The ticks up to this one, oldest first."""

    harm: Floats
    """Loss of each cgroup, shape (ticks, cgroups); NaN where it was not measured."""
    activity: Floats
    """Activity of each cgroup meanwhile, same shape."""


def correlate(past: History, rows: NDArray[np.intp], thresholds: Floats) -> list[list[tuple[int, float]]]:
    """For each victim's row the rows of cgroups whose activity correlates with its loss, with their shares of what
    was more than at other times.

    Harm above the victim's threshold counts as harmed. Needs ticks with and without it: without contrast every steady
    neighbour goes with a steady loss. No cgroup is blamed for its own loss, and none where chance explains the best of
    them (`_by_more_than_chance`).
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
    found: list[list[tuple[int, float]]] = []
    for place, row in enumerate(rows.tolist()):
        chosen = np.flatnonzero(scores[place] >= MIN_SCORE)
        seen = known[:, place]
        if len(chosen):
            chosen = chosen[_by_more_than_chance(harm[seen, place], thresholds[place], activity[seen], row)[chosen]]
        found.append(_shared(activity, harmed[:, place], seen & ~harmed[:, place], row, chosen))
    return found


def _by_more_than_chance(harm: Floats, threshold: float, activity: Floats, own: int) -> NDArray[np.bool_]:
    """Suspects whose activity goes with the harm better than any suspect's does when one is shifted in time.

    A circular shift keeps both courses and breaks their relation, so the best correlation of all suspects at each
    shift is what chance gives where there are so many of them. Shifts at which the harm looks like itself, next to
    none and whole periods, say nothing and are left out. Correlations are about the mean: who is always active goes
    with nothing. With few ticks none of the shifts may do as well.
    """
    weight = _standardised(np.clip(harm / threshold, 0.0, 2.0)[:, None])[:, 0]
    courses = _standardised(activity)
    courses[:, own] = 0.0
    ticks = len(weight)
    shifted = weight[(np.arange(ticks)[None, :] - np.arange(ticks)[:, None]) % ticks]
    null = np.flatnonzero(shifted @ weight < ALIKE)
    observed = product(weight[None, :], courses)[0]
    if not len(null):
        return np.zeros(len(observed), dtype=np.bool_)
    by_chance = np.sort(product(shifted[null], courses).max(axis=1))
    as_good = len(null) - np.searchsorted(by_chance, observed - 1e-9, side="left")
    level = max(CHANCE, 1.0 / (1 + len(null)))
    return np.asarray((observed > 0) & ((1 + as_good) / (1 + len(null)) <= level + 1e-12))


def _standardised(columns: Floats) -> Floats:
    """Columns about their mean, of length 1; a column that does not change becomes 0."""
    centred = columns - columns.mean(axis=0)
    length = np.sqrt((centred**2).sum(axis=0))
    steady = length <= 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1e-300) * np.sqrt(len(columns))
    return np.asarray(np.where(steady, 0.0, centred / np.where(steady, 1.0, length)))


def _shared(
    activity: Floats, harmed: NDArray[np.bool_], calm: NDArray[np.bool_], own: int, chosen: NDArray[np.intp]
) -> list[tuple[int, float]]:
    """Parts of what all but the victim did more while it was harmed than while it was not."""
    if not len(chosen):
        return []
    more = np.maximum(activity[harmed].mean(axis=0) - activity[calm].mean(axis=0), 0.0)
    more[own] = 0.0
    parts = np.minimum(more[chosen] / max(float(more.sum()), 1e-300), 1.0)
    listed = parts >= MIN_SHARE
    return list(zip(chosen[listed].tolist(), parts[listed].tolist(), strict=True))
