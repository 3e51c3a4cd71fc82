"""Usual values of the fleet: sketches that nodes add to, and how far each node lies from them. Bounded. Pure.

A sketch is a window of 64 buckets (sixteen octaves) around the first value that was told of it; what lies beyond counts
at its end. Weights lose half in three days, as on the nodes.
"""

from collections.abc import Iterable

import numpy as np

from api.crds.analysis import MAX_USUAL_VALUES
from api.kube.interference import POINTS, UsualValues, WireUsualValues
from controllers.profiles.slow_nodes import SLOWNESS, NodeShifts
from detector.baselines.points import points_of
from detector.baselines.sketch import BUCKETS
from detector.baselines.values import LOWEST_OCTAVE, OCTAVES

HALF_LIFE_SECONDS = 3 * 86_400.0
MOST_CELLS = 400_000
MOST_WEIGHT = 1_200.0
"""Of one statement of one node: no node outweighs the others by what it claims."""
LEAST_WEIGHT = 60.0
"""Samples from which a value is published."""
WIDTH = 64
KEPT_SECONDS = 14 * 86_400.0
"""A cell that nothing was told of for this long gives its row to another: the most that was told of it once weighs less
by then than what is published."""
SWEEP_SECONDS = 3600.0
"""Least time between two looks for such cells, which are taken when there is no room."""

_MIDDLE = (np.arange(4, 12) + 0.5) / POINTS
"""Quantiles of the points of the middle half."""

_Cell = tuple[str, str, str, int, int]
"""Container, node type, signal, kind and octave of the load."""


class FleetValues:
    """Sketches by workload."""

    def __init__(self) -> None:
        self.refused = 0
        """Statements for which there was no room, or that no node can have learned."""
        self.shifts = NodeShifts()
        self._cells: dict[str, dict[_Cell, int]] = {}
        self._counts = np.zeros((0, WIDTH), np.float32)
        self._base = np.zeros(0, np.int64)
        self._time = np.zeros(0)
        self._used = 0
        """Rows that were ever taken."""
        self._free: list[int] = []
        self._next_sweep_seconds = float("-inf")

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add(self, told: WireUsualValues, node: str, time: float) -> None:
        """Add what a node states; compare it with the fleet's before."""
        if not _is_sound(told):
            self.refused += 1
            return
        key = (told.container, told.node_type, told.signal, told.load_kind, told.octave)
        row = self._cells.get(told.workload, {}).get(key)
        points = np.array(told.points, np.int64)
        if row is None:
            if len(self) >= MOST_CELLS:
                self._sweep(time)
            if len(self) >= MOST_CELLS or len(self._cells.get(told.workload, ())) >= 4 * MAX_USUAL_VALUES:
                self.refused += 1
                return
            row = self._make(int(points[POINTS // 2]), time)
            self._cells.setdefault(told.workload, {})[key] = row
        elif node and told.signal in SLOWNESS and self.weight(row) >= LEAST_WEIGHT:
            self.shifts.add(node, told.workload, float(points[4:12].sum()) / 8 - self._middle(row), time)
        self._counts[row] *= np.float32(_aged(time - self._time[row]))
        self._time[row] = max(self._time[row], time)
        places = np.minimum(np.maximum(points - self._base[row], 0), WIDTH - 1)
        each = np.float32(min(told.weight, MOST_WEIGHT) / POINTS)
        self._counts[row] += np.bincount(places, minlength=WIDTH).astype(np.float32) * each

    def weight(self, row: int) -> float:
        """Return the weight of a cell as of its last statement."""
        return float(self._counts[row].sum())

    def restore(self, workload: str, usual: Iterable[UsualValues], time: float) -> None:
        """Begin a workload that nothing is known of with what was published."""
        if workload in self._cells:
            return
        for each in usual:
            told = WireUsualValues(
                workload=workload,
                container=each.container,
                node_type=each.node_type,
                signal=each.signal,
                load_kind=each.load_kind,
                octave=each.octave,
                weight=each.weight,
                points=each.points,
            )
            self.add(told, "", time)

    def of(self, workload: str, now: float) -> list[UsualValues]:
        """Return what is published of a workload: the values with the most behind them."""
        found = []
        for (container, node_type, signal, load_kind, octave), row in self._cells.get(workload, {}).items():
            weight = self.weight(row) * _aged(now - self._time[row])
            if weight >= LEAST_WEIGHT:
                buckets = points_of(self._counts[row : row + 1], POINTS)[0]
                points = np.minimum(np.minimum(buckets, WIDTH - 1) + self._base[row], BUCKETS - 1)
                found.append(
                    UsualValues(
                        container=container,
                        node_type=node_type,
                        signal=signal,
                        load_kind=load_kind,
                        octave=octave,
                        weight=float(round(weight)),
                        points=points.tolist(),
                    )
                )
        best = sorted(found, key=lambda each: -each.weight)[:MAX_USUAL_VALUES]
        return sorted(best, key=lambda each: (each.container, each.node_type, each.signal, each.load_kind, each.octave))

    def workloads(self) -> Iterable[str]:
        """Return the names of all workloads that something is known of."""
        return self._cells.keys()

    def _middle(self, row: int) -> float:
        """Return the mean bucket of the middle half of the points."""
        sums = np.cumsum(self._counts[row], dtype=np.float64)
        return float(np.searchsorted(sums, _MIDDLE * sums[-1]).sum()) / len(_MIDDLE) + float(self._base[row])

    def _sweep(self, time: float) -> None:
        """Forget the cells that nothing was told of for long, such as those of jobs that have ended."""
        if time < self._next_sweep_seconds:
            return
        self._next_sweep_seconds = time + SWEEP_SECONDS
        for workload, cells in list(self._cells.items()):
            for key in [key for key, row in cells.items() if time - self._time[row] > KEPT_SECONDS]:
                self._free.append(cells.pop(key))
            if not cells:
                del self._cells[workload]

    def _make(self, middle: int, time: float) -> int:
        if not self._free and self._used == len(self._time):
            self._sweep(time)
        if self._free:
            row = self._free.pop()
            self._counts[row] = 0.0
            return self._begin(row, middle, time)
        if self._used == len(self._time):
            more = max(1024, self._used // 2)
            self._counts = np.concatenate([self._counts, np.zeros((more, WIDTH), np.float32)])
            self._base = np.concatenate([self._base, np.zeros(more, np.int64)])
            self._time = np.concatenate([self._time, np.zeros(more)])
        self._used += 1
        return self._begin(self._used - 1, middle, time)

    def _begin(self, row: int, middle: int, time: float) -> int:
        self._base[row] = max(middle - WIDTH // 2, 0)
        self._time[row] = time
        return row


def _aged(seconds: float) -> float:
    return float(2.0 ** (-max(seconds, 0.0) / HALF_LIFE_SECONDS))


def _is_sound(each: UsualValues) -> bool:
    return (
        len(each.points) == POINTS
        and all(0 <= point < BUCKETS for point in each.points)
        and each.load_kind in (0, 1)
        and 0 <= each.octave - LOWEST_OCTAVE < OCTAVES
        and 0 < each.weight < 1e12
        and max(map(len, (each.container, each.node_type, each.signal))) <= 253
    )
