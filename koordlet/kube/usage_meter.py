"""Usage of the node, its pods and host applications in one tick, from the frame's columns. Pure.

CPU comes from the probe's run time, which is fresh in every tick. Without the probe it comes from the CPU controller's
clock, which is read in turn: between two readings a workload counts with its rate up to the last one. What was not
measured is NaN, never zero.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import lineage
from api.frame import HOST, CgroupInfo, CgroupKind, Table
from api.window import Window
from koordlet.kube.usage_series import NOT_MEASURED, Sample
from koordlet.tick import Tick

FRESH = "cpu.oncpu_ns"
"""Run time of each cgroup's own threads."""
IN_TURN = "cpustat.usage_ns"
"""CPU time of a cgroup with all below it."""
THROTTLED = ("cpu.wait_own_quota_ns",)
"""Time that threads of each cgroup could not run because its own quota was used up."""
WAITED = ("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns")
"""Time that they waited for CPUs that others held."""
_MEMORY = ("memstat.without_cache_bytes", "memstat.usage_bytes")


@dataclass(frozen=True, slots=True)
class TickUsage:
    """Usage in one tick."""

    node: Sample = NOT_MEASURED
    system: Sample = NOT_MEASURED
    """Of the node outside its pods and applications."""
    pods: Mapping[str, Sample] = field(default_factory=dict)
    """By uid."""
    applications: Mapping[str, Sample] = field(default_factory=dict)
    """By name."""


@dataclass(slots=True)
class _Clock:
    """CPU time of a cgroup that is read in turn."""

    value_ns: float
    seconds: float
    cores: float = math.nan


class UsageMeter:
    """Makes a `TickUsage` of each tick; keeps what does not change and the clocks that are read in turn."""

    def __init__(self, turn_seconds: float) -> None:
        """`turn_seconds` is the time in which each file that is read in turn was read once."""
        self._turn_seconds = turn_seconds
        self._cgroups: Sequence[CgroupInfo] = ()
        self._application_paths: Mapping[str, str] = {}
        self._owners: list[str] = []
        self._owner_of_row: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._own_rows: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._pods = 0
        self._clocks: dict[str, _Clock] = {}

    def measure(self, tick: Tick, applications: Mapping[str, str]) -> TickUsage:
        """Return the usage in a tick; `applications` maps the paths of host applications to their names."""
        cgroups = tick.window.cgroups
        if cgroups is not self._cgroups or applications != self._application_paths:
            self._index(cgroups, applications)
        table = tick.window.last.cgroup
        cores = self._cores(tick)
        memory = [_of_rows(table, name, self._own_rows) for name in _MEMORY]
        samples = list(zip(cores.tolist(), memory[0].tolist(), memory[1].tolist(), strict=True))
        node = _node(tick.window)
        system = np.maximum(np.array(node) - _sum(np.array(samples).reshape(-1, 3)), 0.0)
        return TickUsage(
            node,
            (float(system[0]), float(system[1]), float(system[2])),
            dict(zip(self._owners[: self._pods], samples, strict=False)),
            dict(zip(self._owners[self._pods :], samples[self._pods :], strict=True)),
        )

    def lost_seconds(self, tick: Tick, names: Sequence[str]) -> dict[str, float] | None:
        """Return the sum of some columns for each pod in the tick measured last, by uid; None where the probe did not
        measure them."""
        columns = [each for name in names if (each := tick.delta.table.columns.get(name)) is not None]
        if len(columns) < len(names) or len(columns[0]) != len(self._owner_of_row):
            return None
        counted = (self._owner_of_row >= 0) & (self._owner_of_row < self._pods)
        lost = np.sum([each[counted].astype(np.float64) for each in columns], axis=0)
        sums = np.bincount(self._owner_of_row[counted], lost, minlength=self._pods) / 1e9
        return dict(zip(self._owners[: self._pods], sums.tolist(), strict=True))

    def _index(self, cgroups: Sequence[CgroupInfo], applications: Mapping[str, str]) -> None:
        """Note for each row the pod or application that it counts to."""
        self._cgroups, self._application_paths = cgroups, dict(applications)
        pods = {info.pod_uid: row for row, info in enumerate(cgroups) if info.kind is CgroupKind.POD and info.pod_uid}
        apps = {info.path: row for row, info in enumerate(cgroups) if info.path in applications and not info.pod_uid}
        outer = {path: row for path, row in apps.items() if not set(lineage(path)) & (apps.keys() - {path})}
        number = {uid: position for position, uid in enumerate(pods)}
        number_of_app = {path: len(pods) + position for position, path in enumerate(outer)}
        self._pods = len(pods)
        self._owners = [*pods, *(applications[path] for path in outer)]
        self._own_rows = np.array([*pods.values(), *outer.values()], dtype=np.intp)
        self._owner_of_row = np.full(len(cgroups), -1, dtype=np.intp)
        for row, info in enumerate(cgroups):
            if info.pod_uid:
                self._owner_of_row[row] = number.get(info.pod_uid, -1)
            elif outer:
                self._owner_of_row[row] = next(
                    (number_of_app[path] for path in lineage(info.path) if path in number_of_app), -1
                )
        paths = {cgroups[row].path for row in self._own_rows}
        self._clocks = {path: clock for path, clock in self._clocks.items() if path in paths}

    def _cores(self, tick: Tick) -> NDArray[np.float64]:
        fresh = tick.delta.table.columns.get(FRESH)
        if fresh is not None:
            counted = self._owner_of_row >= 0
            spent = np.bincount(
                self._owner_of_row[counted], weights=fresh[counted].astype(np.float64), minlength=len(self._owners)
            )
            return spent / tick.delta.seconds / 1e9
        totals = _of_rows(tick.window.last.cgroup, IN_TURN, self._own_rows)
        now_seconds = tick.window.last.monotonic_ns / 1e9
        return np.array(
            [
                self._rate(self._cgroups[row].path, total, now_seconds)
                for row, total in zip(self._own_rows.tolist(), totals.tolist(), strict=True)
            ],
            dtype=np.float64,
        )

    def _rate(self, path: str, total_ns: float, now_seconds: float) -> float:
        """Return cores from the last two different readings; a clock that stood still for longer than a turn is 0."""
        if not math.isfinite(total_ns):
            return math.nan
        clock = self._clocks.get(path)
        if clock is None or total_ns < clock.value_ns:
            self._clocks[path] = _Clock(total_ns, now_seconds)
            return math.nan
        passed_seconds = now_seconds - clock.seconds
        if total_ns > clock.value_ns:
            clock.cores = (total_ns - clock.value_ns) / passed_seconds / 1e9 if passed_seconds > 0 else clock.cores
            clock.value_ns, clock.seconds = total_ns, now_seconds
        elif passed_seconds > 1.5 * self._turn_seconds:
            clock.cores, clock.seconds = 0.0, now_seconds
        return clock.cores


def _sum(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sum of the measured parts, NaN where there are parts and none was measured.

    A part whose first reading is still to come counts to the rest of the node, which errs on the careful side.
    """
    unknown = np.logical_and(len(parts) > 0, np.all(np.isnan(parts), axis=0))
    return np.where(unknown, np.nan, np.nansum(parts, axis=0))


def _of_rows(table: Table, name: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    column = table.columns.get(name)
    if column is None:
        return np.full(len(rows), np.nan)
    return column[rows].astype(np.float64)


def _node(window: Window) -> Sample:
    """Return usage of the whole node: busy CPU time, and memory that is not available, or not free."""
    host = window.last.tables.get(HOST)
    if host is None:
        return NOT_MEASURED
    total = _first(host, "hostwide.memory_total_bytes")
    return (
        _busy_cores(window),
        total - _first(host, "hostwide.memory_available_bytes"),
        total - _first(host, "hostwide.memory_free_bytes"),
    )


def _busy_cores(window: Window) -> float:
    try:
        delta = window.delta("host.cpu")
    except (KeyError, ValueError):
        return math.nan
    return float(delta.table.columns["hostcpu.busy_ns"].sum()) / delta.seconds / 1e9


def _first(table: Table, name: str) -> float:
    column = table.columns.get(name)
    return float(column[0]) if column is not None and len(column) else math.nan
