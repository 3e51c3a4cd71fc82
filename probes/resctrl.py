"""Last-level cache occupancy and memory bandwidth, by resctrl monitor groups.

Table `host.resctrl_group` has the readings of every group that others made, and the whole host's ("/", the root; like
any control group it includes its own monitor groups). Nothing is written for it.

With `[probes.options.resctrl] monitor_groups = true` the probe makes a monitor group `koord-<cgroup id>` for each
cgroup whose path matches `match`, and the dense table has `resctrl.llc_occupancy_bytes` (gauge),
`resctrl.mbm_total_bytes` and `resctrl.mbm_local_bytes` (NaN where the hardware gives no number). Off by default: a
monitor group limits no cgroup, but making one is a write. When there are more cgroups than free monitor ids they
take turns of `turn_seconds`; bandwidth between turns is assumed to go on as last measured, and `resctrl.sampled` is 1.
Fresh groups begin with an occupancy of nothing, since lines already cached keep their old owner.

Our groups are removed on close, and what a killed run left behind at the next start; other groups are never touched.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from api.frame import CGROUP, Reading, Table
from api.plugin import Unsupported
from probes.cgroups import cgroup_id, cpu_mount, matching, threads_below
from probes.probe import Kernel, Probe, ProbeLimits
from probes.resctrl_meter import Meter, Metered
from probes.resctrl_tree import OWN_NAME, MonitoredGroup, ResctrlTree, control_of
from probes.resctrl_turns import next_turns

MOUNT = Path("/sys/fs/resctrl")
MOUNTS = Path("/proc/self/mounts")
FILESYSTEMS = Path("/proc/filesystems")
MATCH = (
    "/kubepods*/pod*,/kubepods*/*-pod*.slice,/system.slice/*.service,/system.slice/*.scope,/docker/*,"
    "/machine.slice/*.scope,/user.slice/*.slice"
)
RESERVED_MONITORS = 8
"""Monitor ids left to others: a control group made by another program needs one as well."""


@dataclass(frozen=True, slots=True)
class ResctrlOptions:
    """`[probes.options.resctrl]`."""

    monitor_groups: bool = False
    match: str = MATCH
    """Comma-separated globs of paths under the cpu hierarchy (`*` crosses slashes); the topmost match counts."""
    turn_seconds: float = 10.0
    sync_seconds: float = 5.0
    """Interval at which cgroups and their threads are listed."""

    @classmethod
    def of(cls, limits: ProbeLimits) -> "ResctrlOptions":
        """Read them; raises SettingsError for a wrong type."""
        given = {key: limits.option("resctrl", key, getattr(cls(), key)) for key in cls.__slots__}
        return cls(**given)


@dataclass(slots=True)
class _Watched:
    """A cgroup with its monitor group of the moment, if it has one."""

    directory: Path
    meter: Meter
    group: MonitoredGroup | None = None
    reading: Metered | None = None
    """Its last monitor group; None before the first turn."""


class Resctrl(Probe):
    """Needs a mounted resctrl with L3 monitoring (Intel RDT, AMD QoS, Arm MPAM)."""

    name: ClassVar[str] = "resctrl"
    options: ClassVar = {key: getattr(ResctrlOptions(), key) for key in ResctrlOptions.__slots__}

    def __init__(self, tree: ResctrlTree, cgroups: Path, options: ResctrlOptions) -> None:
        self._tree = tree
        self._cgroups = cgroups
        self._options = options
        self._others: dict[str, Meter] = {}
        self._watched: dict[int, _Watched] = {}
        self._serving: dict[int, float] = {}
        """Cgroups that have a monitor group, and since when, in the order they started."""
        self._rested: list[int] = []
        """Cgroups that had one, longest ago first."""
        self._synced_seconds = float("-inf")
        self._lost = {"resctrl.vanished": 0, "resctrl.tasks": 0, "resctrl.refused": 0}
        if options.monitor_groups:
            tree.remove_own()

    @classmethod
    def open(cls, kernel: Kernel, limits: ProbeLimits) -> "Resctrl":  # noqa: ARG003
        """Read the host's resctrl."""
        return cls.open_at(MOUNT, cpu_mount(MOUNTS.read_text()), ResctrlOptions.of(limits))

    @classmethod
    def open_at(cls, root: Path, cgroups: Path, options: ResctrlOptions) -> "Resctrl":
        """Read the resctrl mounted at `root`; `cgroups` is the mount point of the cpu hierarchy."""
        if not (root / "info").is_dir():
            if "resctrl" not in FILESYSTEMS.read_text().split():
                raise Unsupported("the CPU or kernel has no resource control", "needs Intel RDT, AMD QoS or Arm MPAM")
            raise Unsupported(f"resctrl is not mounted at {root}", f"mount -t resctrl resctrl {root}")
        tree = ResctrlTree(root)
        if tree.monitor_count() is None:
            raise Unsupported("the CPU does not monitor its last-level cache (no info/L3_MON)")
        try:
            return cls(tree, cgroups, options)
        except PermissionError as error:
            raise Unsupported(
                f"monitor groups cannot be made: {error}", "run as root, or set monitor_groups = false"
            ) from error

    def read(self) -> Reading:
        return self.read_at(time.monotonic())

    def read_at(self, now_seconds: float) -> Reading:
        """`read` at a given moment of the monotonic clock."""
        if self._options.monitor_groups:
            self._sync(now_seconds)
        tables = {"host.resctrl_group": self._read_others(now_seconds)}
        if self._options.monitor_groups:
            tables[CGROUP] = self._read_watched(now_seconds)
        return Reading(tables, dict(self._lost))

    def forget(self, ids: NDArray[np.uint64]) -> None:
        for gone in ids.tolist():
            watched = self._watched.pop(gone, None)
            if watched:
                self._end_turn(gone, watched, time.monotonic())

    def close(self) -> None:
        if self._options.monitor_groups:
            self._watched.clear()
            self._serving.clear()
            self._tree.remove_own()

    def _read_others(self, now_seconds: float) -> Table:
        rows: dict[str, Metered] = {}
        for group in self._tree.groups():
            if OWN_NAME.fullmatch(group.monitor):
                continue
            readings = self._tree.read(group)
            if readings is None:
                self._lost["resctrl.vanished"] += 1
                continue
            rows[group.name] = self._others.setdefault(group.name, Meter()).advance(now_seconds, readings)
        self._others = {name: meter for name, meter in self._others.items() if name in rows}
        return Table({"resctrl_group": np.array(list(rows), dtype=np.str_)}, _columns(rows.values(), "resctrl.group_"))

    def _read_watched(self, now_seconds: float) -> Table:
        for cgroup, watched in self._watched.items():
            if watched.group is None:
                continue
            readings = self._tree.read(watched.group)
            if readings is None:  # our group was removed from outside
                self._lost["resctrl.vanished"] += 1
                self._end_turn(cgroup, watched, now_seconds, is_gone=True)
            else:
                watched.reading = watched.meter.advance(now_seconds, readings)
        served = {
            cgroup: item.reading if item.group else item.meter.assumed(now_seconds)
            for cgroup, item in self._watched.items()
            if item.reading is not None
        }
        taking_turns = any(item.group is None for item in self._watched.values())
        columns = _columns(served.values(), "resctrl.")
        columns["resctrl.sampled"] = np.full(len(served), float(taking_turns))
        return Table({"cgroup": np.array(list(served), dtype=np.uint64)}, columns)

    def _sync(self, now_seconds: float) -> None:
        """Give turns, and every `sync_seconds` list cgroups and catch threads that joined from outside."""
        if now_seconds - self._synced_seconds >= self._options.sync_seconds:
            self._synced_seconds = now_seconds
            self._list(now_seconds)
            claims = self._tree.claims()
            for cgroup, watched in self._watched.items():
                self._follow(cgroup, watched, claims, now_seconds)
        self._give_turns(now_seconds)

    def _list(self, now_seconds: float) -> None:
        found = {
            cgroup_id(directory): directory for directory in matching(self._cgroups, self._options.match.split(","))
        }
        for gone in self._watched.keys() - found.keys():
            self._end_turn(gone, self._watched.pop(gone), now_seconds)
        for cgroup, directory in found.items():
            if cgroup and cgroup not in self._watched:
                self._watched[cgroup] = _Watched(directory, Meter())

    def _give_turns(self, now_seconds: float) -> None:
        turns = next_turns(
            now_seconds,
            self._watched.keys(),
            serving=self._serving,
            rested=[cgroup for cgroup in self._rested if cgroup in self._watched],
            room=self._room(),
            turn_seconds=self._options.turn_seconds,
        )
        for cgroup in turns.stop:
            self._end_turn(cgroup, self._watched[cgroup], now_seconds)
            self._rested.append(cgroup)
        for cgroup in turns.start:
            if not self._begin_turn(cgroup, self._watched[cgroup], now_seconds):
                self._lost["resctrl.refused"] += 1
                break  # the id that came free still rests; others would be refused too

    def _room(self) -> int:
        """Monitor ids we may hold: all but the ones others hold and the reserve."""
        others = sum(1 for group in self._tree.groups() if not OWN_NAME.fullmatch(group.monitor))
        return max((self._tree.monitor_count() or 0) - others - RESERVED_MONITORS, 0)

    def _begin_turn(self, cgroup: int, watched: _Watched, now_seconds: float) -> bool:
        tids = threads_below(watched.directory)
        group = self._tree.make(control_of(tids, self._tree.claims()), cgroup)
        if group is None:
            return False
        self._catch_tasks(group, watched.directory)
        watched.group, self._serving[cgroup] = group, now_seconds
        self._rested = [other for other in self._rested if other != cgroup and other in self._watched]
        watched.reading = watched.meter.advance(now_seconds, self._tree.read(group) or {})
        return True

    def _end_turn(self, cgroup: int, watched: _Watched, now_seconds: float, *, is_gone: bool = False) -> None:
        if watched.group is None:
            return
        if not is_gone:
            watched.meter.advance(now_seconds, self._tree.read(watched.group) or {})
            self._tree.remove(watched.group)
        watched.meter.rest(now_seconds)
        watched.group = None
        del self._serving[cgroup]

    def _follow(self, cgroup: int, watched: _Watched, claims: Mapping[str, frozenset[int]], now_seconds: float) -> None:
        """Catch threads; a cgroup that was moved to another control group ends its turn and begins one there."""
        if watched.group is None:
            return
        if control_of(threads_below(watched.directory), claims) == watched.group.control:
            self._catch_tasks(watched.group, watched.directory)
        else:
            self._end_turn(cgroup, watched, now_seconds)

    def _catch_tasks(self, group: MonitoredGroup, directory: Path) -> None:
        """Children inherit the group; threads that join a cgroup from outside do not, and are moved here."""
        missing = threads_below(directory) - (self._tree.tasks(group) or frozenset())
        self._lost["resctrl.tasks"] += self._tree.add_tasks(group, sorted(missing))


def _columns(rows: Iterable[Metered], prefix: str) -> dict[str, NDArray[Any]]:
    listed = list(rows)
    return {
        f"{prefix}{name}": np.array([getattr(row, name) for row in listed], dtype=np.float64)
        for name in Metered.__slots__
    }
