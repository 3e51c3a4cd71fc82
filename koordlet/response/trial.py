"""Judgement of a rung: what its culprit costs its victim with and without it, and who fares worse for it.

Both sides of a comparison are means over ticks of the same quantity, the pair's claim (entitlement.py). A short lift
of a rung gives the side without it: losses that end by themselves prove nothing, and a peak of 50 ms that made the
kernel trip is no mean of seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

_LEAST_PROGRESS_CORES = 0.05
"""Use of a victim below which a tick without progress says nothing."""
_STANDSTILL_RATIO = 0.5
_RECOVERED_RATIO = 0.8
_RISE_RATIO = 0.3
_SLOWER = 1.0
_CHANCE = 0.065
"""Greatest probability of a difference that is none: two ticks without a rung beside three with it are as few as can
show one."""
BYSTANDER_RATIO = 0.02
"""Loss of a bystander, relative to its progress, by which a rung may not raise it."""


class Judgement(StrEnum):
    """What a comparison says of a rung."""

    HELPS = "helps"
    USELESS = "useless"
    """The loss is there with the rung, too."""
    NEEDLESS = "needless"
    """There is no loss without it."""


def judge(
    with_rung: Sequence[float], without: Sequence[float], *, budget: float, min_improvement_ratio: float
) -> Judgement:
    """Compare ticks of a pair's claims, in seconds per second, with and without a rung.

    A rung helps if the loss without it is above the budget, the mean with it lower by the ratio (or within the budget),
    and if ticks as bad as those without it are so rare with it that the difference is no chance: losses come in bursts,
    and one that falls into a lift is not the lift's doing.
    """
    on, off = fmean(with_rung), fmean(without)
    if off <= budget:
        return Judgement.NEEDLESS if on <= budget else Judgement.USELESS
    level = max(off * (1 - min_improvement_ratio), budget)
    if on > level:
        return Judgement.USELESS
    as_bad = sum(tick > level for tick in with_rung)
    chance = ((as_bad + 1) / (len(with_rung) + 1)) ** sum(tick > level for tick in without)
    return Judgement.HELPS if chance <= _CHANCE else Judgement.USELESS


@dataclass(frozen=True, slots=True)
class VictimState:
    """A victim in one tick, or the worst of several; NaN where something is not known."""

    lost: float
    """Seconds per second lost that no cgroup is blamed for, or of other resources than the rung is for."""
    progress_cores: float
    slowdown: float


UNKNOWN_STATE = VictimState(math.nan, math.nan, math.nan)
"""Compares with nothing."""


def worsened(before: VictimState, now: VictimState, *, budget: float) -> str:
    """Return in what a victim fares clearly worse than in its worst tick before the rung; empty for nothing.

    A culprit may hold what its victim waits for (an inode lock, a journal commit, mmap_lock): the victim then loses
    less CPU time than before, because it does not run at all.
    """
    if now.lost > before.lost * (1 + _RISE_RATIO) + budget:
        return f"its loss rose from {before.lost:.2f} to {now.lost:.2f} s/s"
    if has_stopped(before, now):
        return f"its progress fell from {before.progress_cores:.2f} to {now.progress_cores:.2f} CPUs"
    if now.slowdown > before.slowdown + _SLOWER:
        return f"its requests took {1 + now.slowdown:.1f} instead of {1 + before.slowdown:.1f} times as long as usual"
    return ""


def has_stopped(before: VictimState, now: VictimState) -> bool:
    """Return whether a victim runs less than half as much as in its least tick before."""
    known = before.progress_cores >= _LEAST_PROGRESS_CORES
    return known and now.progress_cores < before.progress_cores * _STANDSTILL_RATIO


def has_recovered(before: VictimState, now: VictimState, *, budget: float) -> bool:
    """Return whether a victim that fared worse is as before: the rung that was taken back was at fault."""
    runs = not now.progress_cores < before.progress_cores * _RECOVERED_RATIO
    return runs and not worsened(before, now, budget=budget)


def bystander_harmed(*, before: float, now: float, progress_cores: float, budget: float) -> bool:
    """Return whether a cgroup that is no culprit lost more for the rung than may be, in seconds per second."""
    return now - before > budget + BYSTANDER_RATIO * progress_cores


def jittered(seconds: float, *seed: object) -> float:
    """Return a time between three and five quarters of `seconds`, the same for the same seed: a lift must not fall
    in step with what a workload does at intervals."""
    digest = 2166136261
    for byte in repr(seed).encode():  # FNV-1a: hash() differs from process to process, and a replay must not
        digest = (digest ^ byte) * 16777619 & 0xFFFFFFFF
    return seconds * (0.75 + 0.5 * digest / 0xFFFFFFFF)
