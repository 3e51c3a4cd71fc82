"""State of rules between ticks: a row for each rule, a column for each cgroup."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from detector.arrays import Floats, Ids
from detector.hysteresis import NEVER, Bits, Episodes, Times
from detector.ring import positions


@dataclass(slots=True)
class RuleState(Episodes):
    """Arrays of shape (rules, cgroups); times are monotonic nanoseconds."""

    ids: Ids
    """Cgroups of the columns."""
    rested: Bits
    """Ticks in which the cgroup wanted no CPU, as `held` has those in which the rule was met."""
    reported_ns: Times
    """Time of the verdict's last line."""
    reported_lost: Floats
    """Smoothed loss of its last line."""
    smoothed: Floats
    """Loss of the harmed ticks, the newest weighing half."""
    reported_severity: NDArray[np.int8]
    reported_symptom: NDArray[np.int16]
    earlier_seconds: Floats
    """Time for which earlier verdicts were open and did not come to count as usual, aged, as of the last opening."""
    looked_ns: Times
    """Time at which it was last looked at who uses most of an ancestor's limit."""
    reported_culprit: Ids
    """First culprit by a blame table; without one, `OTHER_ID` where culprits were named, else 0."""

    @classmethod
    def empty(cls, rules: int) -> "RuleState":
        """State without any cgroup."""
        kinds = {field.name: _KINDS[field.name] for field in fields(cls) if field.name != "ids"}
        empty = {name: np.empty((rules, 0), kind) for name, kind in kinds.items()}
        return cls(ids=np.empty(0, dtype=np.uint64), **empty)

    def align(self, ids: Ids) -> Ids:
        """Make the columns those of these cgroups; return which of the earlier ones are gone."""
        if np.array_equal(ids, self.ids):
            return np.empty(0, dtype=np.uint64)
        gone = self.ids[~positions(ids, self.ids)[1]]
        place, found = positions(self.ids, ids)
        for name in _KINDS:
            old = getattr(self, name)
            moved = np.full((len(old), len(ids)), _missing(name), dtype=old.dtype)
            moved[:, found] = old[:, place[found]]
            setattr(self, name, moved)
        self.ids = ids
        return gone

    def rearrange_rules(self, origin: Sequence[int]) -> None:
        """Make row n that of the former rule `origin[n]`; -1 is a new one without state."""
        rows = np.array(origin, dtype=np.int64)
        for name in _KINDS:
            old = getattr(self, name)
            moved = np.full((len(rows), len(self.ids)), _missing(name), dtype=old.dtype)
            moved[rows >= 0] = old[rows[rows >= 0]]
            setattr(self, name, moved)

    def forget(self, name: str) -> None:
        """Make a field of shape (rules, cgroups) what it is for new cgroups."""
        setattr(self, name, np.full(self.is_open.shape, _missing(name), dtype=_KINDS[name]))

    def not_after(self, now_ns: int) -> None:
        """Let no time lie ahead, for a clock that started anew."""
        for times in (self.harmed_ns, self.closed_ns, self.reported_ns, self.opened_ns, self.looked_ns):
            np.minimum(times, now_ns, out=times)


def _missing(name: str) -> int:
    return NEVER if name.endswith("_ns") and name != "hold_ns" else 0


_KINDS: dict[str, type[np.generic]] = {
    "held": np.uint64,
    "rested": np.uint64,
    "harmed_ns": np.int64,
    "closed_ns": np.int64,
    "hold_ns": np.int64,
    "is_open": np.bool_,
    "reported_ns": np.int64,
    "looked_ns": np.int64,
    "reported_lost": np.float64,
    "smoothed": np.float64,
    "reported_severity": np.int8,
    "reported_symptom": np.int16,
    "reported_culprit": np.uint64,
    "opened_ns": np.int64,
    "earlier_seconds": np.float64,
}
