"""Usual values that this node learned, a few in each report, and those of the fleet as cells of the judge. Pure."""

from collections.abc import Iterable

import numpy as np

from api.kube.interference import POINTS, UsualValues, WireUsualValues
from api.kube.workload import workload_named
from detector.baselines.learner import Baselines
from detector.baselines.points import counted, points_of
from detector.baselines.sketch import BUCKETS
from detector.baselines.values import LOWEST_OCTAVE, OCTAVES, CellRecord, LoadKind, WorkloadKey

MAX_STATED = 16
"""In one report: about 2 KB."""
LEAST_SAMPLES = 60
"""New samples from which a cell is stated."""

_Cell = tuple[WorkloadKey, str, int]


class UsualValueReports:
    """Chooses what a report states: cells with the most samples since they were stated last."""

    def __init__(self) -> None:
        self._stated: dict[_Cell, int] = {}
        """Samples of each cell when it was stated."""
        self._begun = False

    def newest(self, baselines: Baselines) -> list[WireUsualValues]:
        """Return the next few; the first call states nothing, since what a file held was stated before."""
        cells, keys, signals = baselines.cells, list(baselines.workloads), list(baselines.signals)
        places = cells.place[: cells.count].tolist()
        names: list[_Cell] = [(keys[workload], signals[signal], place) for workload, signal, place in places]
        samples = cells.samples[: cells.count]
        if not self._begun:
            self._begun = True
            self._stated = dict(zip(names, samples.tolist(), strict=True))
            return []
        known = self._stated
        before = np.fromiter((known.get(name, 0) for name in names), np.int64, len(names))
        fresh = samples - before
        chosen = np.argsort(-fresh, kind="stable")[: 4 * MAX_STATED]
        made: list[WireUsualValues] = []
        for row in chosen.tolist():
            key, signal, place = names[row]
            if fresh[row] < LEAST_SAMPLES or len(made) == MAX_STATED:
                break
            self._stated[names[row]] = int(samples[row])
            if workload_named(key.workload) is None or not cells.counts[row].any():
                continue
            kind, octave = divmod(place, OCTAVES)
            made.append(
                WireUsualValues(
                    workload=key.workload,
                    container=key.container,
                    node_type=key.node_type,
                    signal=signal,
                    load_kind=kind,
                    octave=octave + LOWEST_OCTAVE,
                    weight=float(fresh[row]),
                    points=points_of(cells.counts[row : row + 1], POINTS)[0].tolist(),
                )
            )
        if len(self._stated) > 2 * len(names) + 1000:
            alive = frozenset(names)
            self._stated = {name: count for name, count in self._stated.items() if name in alive}
        return made


def cells_of(workload: str, usual: Iterable[UsualValues], now_seconds: float) -> list[CellRecord]:
    """Return what a fleet's profile says of a workload as cells; what no judge could have learned is left out."""
    return [
        CellRecord(
            key=WorkloadKey(workload, each.container, each.node_type),
            signal=each.signal,
            load_kind=LoadKind(each.load_kind),
            octave=each.octave,
            samples=int(each.weight),
            weight=each.weight,
            first_seconds=now_seconds,
            last_seconds=now_seconds,
            buckets=buckets,
            counts=counts,
        )
        for each in usual
        if is_sound(each)
        for buckets, counts in (counted(np.array(each.points, np.int64), each.weight),)
    ]


def is_sound(each: UsualValues) -> bool:
    """Return whether the numbers are in the ranges that a judge learns in."""
    return (
        each.load_kind in (0, 1)
        and 0 <= each.octave - LOWEST_OCTAVE < OCTAVES
        and len(each.points) == POINTS
        and all(0 <= point < BUCKETS for point in each.points)
        and 0 < each.weight < 1e12
    )
