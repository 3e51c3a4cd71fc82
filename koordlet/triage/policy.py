"""Whom to look at closely, and how many, for what the close look may cost. Pure: measurements in, a plan out.

Cheap signals are measured of everybody, always. The expensive probes (those that take a focus: `pmu`, `smt`) are given
up in this order when they cost more than their budget, one level at a measurement:

    everything  all cgroups
    rotation    suspects, and a part of the others in turn, so that what is ordinary goes on being learned
    suspects    suspects only
    worst       the few suspects that lose most
    nothing     the expensive probes rest

A level is taken back after the cost was well below the budget for several measurements in a row, and each time that
proves too dear at once, the next try waits twice as long. Where the kernel does not tell the cost (it wants
CAP_SYS_ADMIN for its statistics), only suspects are looked at.
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
    """[triage]: what the expensive probes may cost, and whom they look at when that is not enough for all."""

    enabled: bool = True
    cpu_budget_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.005
    """Part of the host's CPU time that the programs of the expensive probes may take; 0 lets them rest."""
    measure_every_ticks: Annotated[int, msgspec.Meta(ge=2, le=3600)] = 15
    """The kernel's statistics of program run time are on for one tick in so many, and are what costs are taken from."""
    worst_cgroups: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 8
    """Suspects that are still looked at on the level before rest."""
    rotation_ratio: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.25
    """Part of the others that is looked at in one turn."""
    rotation_ticks: Annotated[int, msgspec.Meta(ge=2, le=600)] = 10
    """Length of a turn."""
    linger_ticks: Annotated[int, msgspec.Meta(ge=0, le=600)] = 5
    """A suspect stays in the focus for so long after it stopped being one."""


class Level(IntEnum):
    """How much is looked at closely; the higher, the less."""

    EVERYTHING = 0
    ROTATION = 1
    SUSPECTS = 2
    WORST = 3
    NOTHING = 4


WELL_BELOW = 0.5
"""Part of the budget under which a level may be taken back."""
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
        """The cost cannot be had: no more than suspects from here on, until it can."""
        self._calm, self._trying = 0, False
        self.level = max(self.level, Level.SUSPECTS)
        return self.level

    def measured(self, used_millicores: float) -> Level:
        """Take one measurement of what the expensive probes cost on the present level."""
        if self.millicores <= 0:
            return self.level
        if used_millicores > self.millicores:
            # A level that was just taken back and is too dear at once: the next try comes later.
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


class Descent:
    """Passes suspicion down: a quota or a pressure is a pod's, the threads that are looked at are its containers'."""

    def __init__(self, cgroups: Sequence[CgroupInfo]) -> None:
        self.cgroups = cgroups
        row_of = {info.path: row for row, info in enumerate(cgroups) if info.path != "/"}
        self._above = np.array([_above(info.path, row_of, row) for row, info in enumerate(cgroups)], dtype=np.intp)

    def spread(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The marked rows and all below them; what marks the root stays there."""
        while True:
            wider = marked | marked[self._above]
            if np.array_equal(wider, marked):
                return wider
            marked = wider


def _above(path: str, row_of: Mapping[str, int], own_row: int) -> int:
    """Row of the nearest cgroup above, other than the root; the own one where there is none."""
    return next((row_of[above] for above in ancestors(path) if above in row_of), own_row)


class TriagePolicy:
    """Chooses the focus of each tick. `ids` are the cgroups of the newest frame in row order."""

    def __init__(self, settings: TriageSettings, cpus: int) -> None:
        self.budget = Budget(settings.cpu_budget_ratio * cpus * 1000.0)
        self.shed_ticks = 0
        """Ticks in which less than everything was looked at closely, for want of budget."""
        self._settings = settings
        self._tick = 0
        self._suspected: dict[int, int] = {}
        """Tick in which each was last suspected."""

    def focus(self, ids: Ids, suspects: NDArray[np.bool_], lost: NDArray[np.float64]) -> Ids | None:
        """Who is looked at closely until the next tick, ascending; None for everybody.

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
        held = np.isin(ids, np.fromiter(self._suspected, dtype=np.uint64, count=len(self._suspected)))
        if level is Level.WORST:
            rows = np.flatnonzero(held)
            worst = rows[np.argsort(-lost[rows], kind="stable")][: self._settings.worst_cgroups]
            return np.sort(ids[worst])
        chosen = ids[held]
        if level is Level.ROTATION:
            chosen = np.concatenate([chosen, self._turn(np.sort(ids[~held]))])
        return np.sort(chosen)

    def _remember(self, ids: Ids, suspects: NDArray[np.bool_]) -> None:
        oldest = self._tick - self._settings.linger_ticks
        alive = set(ids.tolist())
        kept = {each: seen for each, seen in self._suspected.items() if seen >= oldest and each in alive}
        self._suspected = kept | dict.fromkeys(ids[suspects].tolist(), self._tick)

    def _turn(self, others: Ids) -> Ids:
        """The others whose turn it is: each has one in every round."""
        turns = round(1 / self._settings.rotation_ratio)
        turn = self._tick // self._settings.rotation_ticks % turns
        # By identity, not by position: who comes or goes does not move the others into another turn. Identities are
        # inode numbers, often of one step (a directory's files lie between), so they are spread first.
        spread = (others * _SPREAD) >> np.uint64(32)
        return np.asarray(others[spread % np.uint64(turns) == turn], dtype=np.uint64)
