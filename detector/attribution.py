"""Who is to blame: what was seen directly first, correlation second and labelled; where nothing explains it, nobody.

Shares are parts of the victim's loss and sum to at most 1. Two cgroups that look alike are never blamed for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from api.frame import KERNEL_ID, OTHER_ID
from api.verdicts import ANCESTOR, GONE, KERNEL, NOBODY, OWN_THREADS, Culprit, How
from detector.symptom import Signal, Symptom
from detector.view import Floats, View

LEAST_SHARE = 0.01
"""Smaller parts are not listed."""
LEAST_SCORE = 0.35
"""Antagonist score from which CPI2 blames (Zhang et al., EuroSys 2013)."""
LEAST_TICKS = 5
"""Ticks that a correlation needs."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Culprits by falling share, and the share of the loss that was seen directly to be a named one's."""

    culprits: tuple[Culprit, ...] = ()
    confidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Past:
    """The ticks up to this one, oldest first, for correlation."""

    lost: Floats
    """The victim's loss, shape (ticks,)."""
    activity: Floats
    """What each cgroup did meanwhile, shape (ticks, cgroups)."""
    threshold: float
    """Loss above which a tick counts as harmed."""


def attribute(view: View, row: int, *, symptom: Symptom, signal: Signal, past: Past | None = None) -> Attribution:
    """Blame for the loss of one cgroup; an empty attribution where it loses nothing."""
    lost = float(signal.lost[row])
    if not lost > 0:
        return Attribution()
    source = symptom.blame
    direct: dict[str, float] = {}
    if source.table:
        direct = _from_table(
            view, row, source.table, float((signal.lost if signal.whole is None else signal.whole)[row])
        )
    elif source.named:
        direct = {source.named: 1.0}
    elif source.ancestor_column:
        direct = {_ancestor(view, row, source.ancestor_column): 1.0}
    explained = min(sum(direct.values()), 1.0)
    named = sum(share for path, share in direct.items() if path != NOBODY)
    culprits = [Culprit(path, share, How.DIRECT) for path, share in direct.items()]
    if source.suspects and past is not None and explained < 1.0:
        culprits += _correlated(view, row, past, 1.0 - explained)
    return Attribution(_ranked(culprits), min(named, 1.0) if signal.measured else 0.0)


def antagonist_score(activity: Floats, lost: Floats, threshold: float) -> Floats:
    """Score in -1..1 of each cgroup: activity while the victim was harmed, less activity while it was not.

    CPI2's formula with the victim's loss in the place of its CPI: with u the activity normalised to sum 1 over the
    window, `sum of u * (1 - T / x)` where the loss x is above the threshold T, plus `sum of u * (x / T - 1)` where it
    is below. `activity` has shape (ticks, cgroups), `lost` (ticks,). The idle score 0.
    """
    total = activity.sum(axis=0)
    usage = np.divide(activity, total, out=np.zeros_like(activity), where=total > 0)
    harmed = lost > threshold
    weight = np.where(harmed, 1.0 - threshold / np.where(harmed, lost, 1.0), lost / threshold - 1.0)
    return np.asarray(weight @ usage, dtype=np.float64)


def _from_table(view: View, row: int, table: str, whole: float) -> dict[str, float]:
    """Share of the loss by path; amounts that exceed the whole (another span, rounding) are scaled down to it."""
    blame = view.blame(table)
    if blame is None:
        return {}
    victim = int(view.ids[row])
    culprits, amounts = blame.of(victim)
    whole = max(whole, float(amounts.sum()))
    shares: dict[str, float] = {}
    if whole <= 0:
        return shares
    for culprit, amount in sorted(zip(culprits.tolist(), amounts.tolist(), strict=True)):
        path = OWN_THREADS if culprit == victim else _path(view, culprit)
        shares[path] = shares.get(path, 0.0) + amount / whole
    return shares


def _path(view: View, identity: int) -> str:
    if identity == KERNEL_ID:
        return KERNEL
    if identity == OTHER_ID:
        return NOBODY
    return view.path_of(identity) or GONE


def _ancestor(view: View, row: int, column: str) -> str:
    """Path of the nearest ancestor for which the column is above zero."""
    if not view.has(column):
        return ANCESTOR
    amounts = view.rate(column)
    path = view.cgroups[row].path.rstrip("/")
    while path:
        path = path.rpartition("/")[0]
        found = view.row_of(path or "/")
        if found is not None and amounts[found] > 0:
            return path or "/"
    return ANCESTOR


def _correlated(view: View, row: int, past: Past, rest: float) -> Iterable[Culprit]:
    """Share the unexplained rest by activity among those whose activity goes with the loss.

    Needs ticks with and without harm: without contrast every steady neighbour goes with a steady loss.
    """
    known = np.isfinite(past.lost)
    lost, activity = past.lost[known], np.nan_to_num(past.activity[known], copy=True)
    harmed = lost > past.threshold
    if len(lost) < LEAST_TICKS or harmed.all() or not harmed.any():
        return []
    activity[:, row] = 0.0
    scores = antagonist_score(activity, lost, past.threshold)
    meanwhile = activity[harmed].sum(axis=0)
    return [
        Culprit(view.cgroups[other].path, rest * float(meanwhile[other] / meanwhile.sum()), How.CORRELATED)
        for other in np.flatnonzero(scores >= LEAST_SCORE).tolist()
    ]


def _ranked(culprits: Iterable[Culprit]) -> tuple[Culprit, ...]:
    worth = [culprit for culprit in culprits if culprit.share >= LEAST_SHARE]
    return tuple(sorted(worth, key=lambda culprit: (-culprit.share, culprit.path)))
