"""Triage policy: cgroups in the focus of expensive probes, as many as the CPU budget allows. Pure.

Cheap signals are measured of all cgroups, always. The expensive probes (those that take a focus: `pmu`, `smt`) are
given up in this order when they cost more than their budget, one level at a measurement:

    everything  all cgroups
    rotation    suspects, and a part of the others in turn, so that baselines go on being learned
    suspects    suspects only
    worst       the few suspects that lose most
    nothing     the expensive probes rest

A level is left after the cost was well below the budget for several measurements in a row; each time the wider focus
exceeds the budget at once, the following attempt waits twice as long. Where the kernel gives no cost (its statistics
need CAP_SYS_ADMIN), the focus is on suspects only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import ancestors
from api.frame import CgroupInfo

Ids = NDArray[np.uint64]


class TriageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[triage]: CPU budget of the expensive probes, and their focus when it does not suffice for all cgroups."""

    enabled: bool = True
    cpu_budget_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.005
    """Part of the host's CPU time that the programs of the expensive probes may take; 0 lets them rest."""
    measure_every_ticks: Annotated[int, msgspec.Meta(ge=2, le=3600)] = 15
    """Costs are taken from the kernel's statistics of program run time, which are on for one tick in this many."""
    worst_cgroups: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    """Suspects in the focus on the last level before `nothing`."""
    rotation_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.25
    """Part of the others that is in the focus in one turn."""
    rotation_ticks: Annotated[int, msgspec.Meta(ge=2, le=600)] = 10
    """Length of a turn."""
    linger_ticks: Annotated[int, msgspec.Meta(ge=0, le=600)] = 5
    """Ticks that a cgroup stays in the focus after it was last a suspect."""


class Level(IntEnum):
    """Size of the focus; the higher, the smaller."""

    EVERYTHING = 0
    ROTATION = 1
    SUSPECTS = 2
    WORST = 3
    NOTHING = 4


WELL_BELOW = 0.5
"""Part of the budget below which a level may be left."""
PATIENCE = 3
"""Measurements in a row that must be well below."""
MOST_PATIENCE = 96
_SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4)."""


@dataclass(slots=True)
class Budget:
    """The level that the measured costs allow."""

    millicores: float
    level: Level = Level.EVERYTHING
    _calm: int = 0
    _patience: int = PATIENCE
    _trying: bool = False

    def __post_init__(self) -> None:
        if self.millicores <= 0:
            self.level = Level.NOTHING

    def unmeasurable(self) -> Level:
        """Take a failed measurement: the focus is on suspects at most until the next successful one."""
        self._calm, self._trying = 0, False
        self.level = max(self.level, Level.SUSPECTS)
        return self.level

    def measured(self, used_millicores: float) -> Level:
        """Take one measurement of what the expensive probes cost on the present level."""
        if self.millicores <= 0:
            return self.level
        if used_millicores > self.millicores:
            # The wider focus exceeds the budget at once: the next attempt comes later.
            self._patience = min(2 * self._patience, MOST_PATIENCE) if self._trying else PATIENCE
            self._calm, self._trying = 0, False
            self.level = Level(min(self.level + 1, Level.NOTHING))
            return self.level
        self._trying = False
        self._calm = self._calm + 1 if used_millicores < WELL_BELOW * self.millicores else 0
        if self._calm >= self._patience and self.level > Level.EVERYTHING:
            self._calm, self._trying = 0, True
            self.level = Level(self.level - 1)
        return self.level


class Descendants:
    """Extends suspects to their descendants: quotas and pressure are a pod's, threads are its containers'."""

    def __init__(self, cgroups: Sequence[CgroupInfo]) -> None:
        self.cgroups = cgroups
        row_of = {info.path: row for row, info in enumerate(cgroups) if info.path != "/"}
        self._above = np.array([_above(info.path, row_of, row) for row, info in enumerate(cgroups)], dtype=np.intp)

    def spread(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the marked rows and all below them; a mark on the root is not extended."""
        while True:
            extended = marked | marked[self._above]
            if np.array_equal(extended, marked):
                return extended
            marked = extended


def _above(path: str, row_of: Mapping[str, int], own_row: int) -> int:
    """Row of the nearest cgroup above, other than the root; the own one where there is none."""
    return next((row_of[above] for above in ancestors(path) if above in row_of), own_row)


class TriagePolicy:
    """Chooses the focus of each tick. `ids` are the cgroups of the newest frame in row order."""

    def __init__(self, settings: TriageSettings, cpus: int) -> None:
        self.budget = Budget(settings.cpu_budget_ratio * cpus * 1000.0)
        self.shed_ticks = 0
        """Ticks in which the focus was smaller than all cgroups, for want of budget."""
        self._settings = settings
        self._tick = 0
        self._suspected: dict[int, int] = {}
        """Tick in which each was last suspected."""

    def focus(self, ids: Ids, suspects: NDArray[np.bool_], lost: NDArray[np.float64]) -> Ids | None:
        """Return the cgroups in the focus until the next tick, ascending; None for all.

        `suspects` and `lost` (any measure of loss by which to prefer) have a value for each of `ids`.
        """
        self._tick += 1
        self._remember(ids, suspects)
        level = self.budget.level
        if level is Level.EVERYTHING:
            return None
        self.shed_ticks += 1
        if level is Level.NOTHING:
            return np.empty(0, dtype=np.uint64)
        suspected = np.isin(ids, np.fromiter(self._suspected, dtype=np.uint64, count=len(self._suspected)))
        if level is Level.WORST:
            rows = np.flatnonzero(suspected)
            worst = rows[np.argsort(-lost[rows], kind="stable")][: self._settings.worst_cgroups]
            return np.sort(ids[worst])
        chosen = ids[suspected]
        if level is Level.ROTATION:
            chosen = np.concatenate([chosen, self._turn(np.sort(ids[~suspected]))])
        return np.sort(chosen)

    def _remember(self, ids: Ids, suspects: NDArray[np.bool_]) -> None:
        oldest = self._tick - self._settings.linger_ticks
        alive = set(ids.tolist())
        kept = {each: seen for each, seen in self._suspected.items() if seen >= oldest and each in alive}
        self._suspected = kept | dict.fromkeys(ids[suspects].tolist(), self._tick)

    def _turn(self, others: Ids) -> Ids:
        """Return the others whose turn it is: each has one in every round."""
        turns = round(1 / self._settings.rotation_ratio)
        turn = self._tick // self._settings.rotation_ticks % turns
        # By identity, not by position: cgroups that come or go do not move the others into another turn. Identities are
        # inode numbers, often of one step (a directory's files lie between), so they are spread first.
        spread = (others * _SPREAD) >> np.uint64(32)
        return np.asarray(others[spread % np.uint64(turns) == turn], dtype=np.uint64)
