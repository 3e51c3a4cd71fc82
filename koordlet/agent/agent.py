"""Measuring on one node: walk the cgroups, read collectors and probes, merge what they read into a frame, keep it."""

import contextlib
import logging
import math
import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from api.frame import HOST, CgroupInfo, CgroupKind, Frame, Reading, Table, merge, reading_times
from api.plugin import Unsupported
from detector.breaks import no_breaks
from koordlet.agent.frame_store import FrameStore
from koordlet.agent.known_cgroups import KnownCgroups
from koordlet.agent.plugins import discover_collectors
from koordlet.agent.probe_set import ProbeSet, reported_ids
from koordlet.collectors import Collector, Host, Round
from koordlet.config import AgentSettings
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.cgroups.walk import CgroupWalk
from koordlet.host.files import HostTree
from koordlet.identity.cgroup_names import QoSRule
from koordlet.identity.describe import Sources
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pods import PodTableOf, no_pods
from probes.parents import Parents

_log = logging.getLogger(__name__)

_WITHOUT_CPU_PROBE = frozenset({"cpustat", "pressure"})
"""Collectors whose files then tell of CPU time and of waiting, and are read of all cgroups in every tick: what is read
in turn stands still for nine ticks and jumps in the tenth."""


_LIST_EVERY_TICKS = 8
_MOST_STRANGERS, _MOST_STRANGERS_RATIO = 256, 1 / 4
"""Cgroups that probes report and the walk does not know, and the same as a part of a map's entries: beyond the lesser
they are dropped in each tick, and every known cgroup keeps an entry. An owner that makes cgroups faster than they are
listed, or more than its share, takes room from no other."""


class Agent:
    """Sources of frames on one node: the cgroup walk, collectors and probes. Call `collect` once an interval."""

    def __init__(
        self,
        settings: AgentSettings,
        probes: ProbeSet | None = None,
        pods: PodTableOf = no_pods,
        on_unknown_pods: Callable[[], None] | None = None,
    ) -> None:
        """Open collectors and probes; `unsupported` names those that this host cannot run, with the reason.

        `probes` replaces the set that the settings ask for; `close` closes it. `pods` gives the newest table of the
        node's pods, which is read in each tick; `on_unknown_pods` asks its source to look anew, and must not wait.

        Raises Unsupported when there is no cpu cgroup hierarchy at all.
        """
        self.settings = settings
        self._tree = tree = HostTree(Path(settings.root))
        self.hierarchies = find_hierarchies(tree)
        raise_descriptor_limit()
        self._walk = CgroupWalk(self.hierarchies.cpu)
        self._known = KnownCgroups(
            self._walk,
            tree,
            Sources(rules=tuple(QoSRule(rule.match, rule.qos_class) for rule in settings.qos)),
            pods,
            ignore=settings.cgroups.ignore,
            on_unknown_pods=on_unknown_pods,
            history_seconds=settings.history_seconds,
        )
        self.unsupported: dict[str, Unsupported] = {}
        self._collectors = self._open_collectors(Host(tree, self.hierarchies))
        self.probes = probes if probes is not None else ProbeSet.open(settings.probes)
        self.probes.follow(Parents(lambda: self._known.cgroups, lambda: self._known.gone))
        self.unsupported |= self.probes.refused
        self.store = FrameStore(settings.history_seconds, settings.interval_seconds)
        self.lost: Counter[str] = Counter()
        """Losses of the agent itself by place, reported with the next frame."""
        self.extra_readings: list[Callable[[], Reading]] = []
        """Called in each tick; their readings are merged into the frame."""
        self.between: Callable[[], None] = no_breaks
        """Called between the parts of a tick, so that it may be spread (`koordlet.host.scheduling.Breaks`)."""
        self._directories_of: tuple[CgroupInfo, ...] = ()
        self._kubelets: tuple[CgroupInfo, ...] = ()
        self._each_tick: frozenset[str] = frozenset() if "cpu" in self.probes.opened else _WITHOUT_CPU_PROBE
        self._unknown_ids: set[int] = set()
        self._listed_ids: set[int] = set()
        """Of these, those that a listing has not found."""
        self._list_from_tick = 0
        self._in_vain = 0
        """Listings in a row that found none of the unknown ids."""
        self._most_strangers = min(_MOST_STRANGERS, int(settings.probes.max_cgroups * _MOST_STRANGERS_RATIO))
        self._ticks = 0

    def _open_collectors(self, host: Host) -> dict[str, Collector]:
        opened: dict[str, Collector] = {}
        for name, kind in discover_collectors().items():
            try:
                opened[name] = kind.open(host)
            except Unsupported as reason:
                self.unsupported[name] = Unsupported(reason.reason, reason.remedy)  # without the exception's frames
        return opened

    def collect(self, *, everything: bool = False) -> Frame:
        """Measure once and keep the frame; `everything` reads the costly files of all cgroups at once."""
        started = time.monotonic_ns()
        self._forget(self._known.update(everything=everything))
        wall, monotonic = time.time_ns(), time.monotonic_ns()
        readings, sources = self._read_collectors(monotonic, everything=everything)
        read, failures = self.probes.read(self.between)
        self._resolve_unknown_ids(read)
        sources |= failures
        sources |= {name: str(reason) for name, reason in self.unsupported.items()}
        readings.extend(read.values())
        readings.extend(read() for read in self.extra_readings)
        readings.append(self._own_cost(time.monotonic_ns() - started))
        self.between()
        if self._walk.unopened:
            self.lost["walk.descriptors"] = self._walk.unopened
        tables, lost = merge(self._known.ids, readings)
        read_ns = reading_times(self._known.ids, readings)
        frame = Frame(monotonic, wall, self._known.cgroups, tables, lost | self.lost, sources, read_ns)
        self.store.append(frame)
        self._ticks += 1
        return frame

    def _forget(self, removed: Sequence[CgroupInfo]) -> None:
        if removed:
            for collector in self._collectors.values():
                collector.forget(removed)
            self.probes.forget(np.array([info.id for info in removed], dtype=np.uint64))

    def _read_collectors(self, now_ns: int, *, everything: bool) -> tuple[list[Reading], dict[str, str]]:
        every = 1 if everything else self.settings.cgroups.slow_every_ticks
        turn = self._ticks % every
        cgroups = self._known.cgroups
        due = cgroups[turn::every]
        if every > 1:
            waiting = {info.id for info in due}
            due = (*due, *(info for info in self._directories() if info.id not in waiting))
        work = Round(cgroups, due, now_ns, self._each_tick)
        readings, sources = [], {}
        for name, collector in self._collectors.items():
            self.between()
            try:
                readings.append(collector.collect(work))
            except (OSError, ValueError) as error:
                sources[name] = str(error)
        return readings, sources

    def _directories(self) -> tuple[CgroupInfo, ...]:
        """The kubelet's directories, few and of much weight: their files are read in every tick."""
        if self._directories_of is not self._known.cgroups:
            self._directories_of = self._known.cgroups
            self._kubelets = tuple(info for info in self._directories_of if info.kind is CgroupKind.KUBEPODS)
        return self._kubelets

    def _resolve_unknown_ids(self, read: dict[str, Reading]) -> None:
        """List all directories with children anew for ids that probes report and the walk does not know.

        Where it found none of them three times in a row, they are cgroups that came and went between two walks, and it
        is done once in `_LIST_EVERY_TICKS`. What it does not find belongs to removed cgroups, and probes forget it.
        """
        reported = reported_ids(read)
        unknown = self._unknown_among(reported)
        if unknown and self._ticks >= self._list_from_tick and (unknown - self._listed_ids):
            asked = unknown
            self.between()
            self._forget(self._known.relist())
            unknown = self._unknown_among(reported)
            self._in_vain = self._in_vain + 1 if unknown == asked else 0
            if self._in_vain >= 3:
                self._list_from_tick = self._ticks + _LIST_EVERY_TICKS
            self._listed_ids |= unknown
        is_flood = len(unknown) > self._most_strangers
        dead = unknown if is_flood else unknown & self._listed_ids & self._unknown_ids
        if dead:
            known = self._walk.paths
            dead = {identity for identity in dead if identity not in known}
        strangers = np.array(sorted(dead), dtype=np.uint64)
        if is_flood:
            self.lost["probes.strangers"] += len(strangers)
            self.lost["probes.no_room"] += self.probes.make_room(strangers, self._known.ids, read)
        elif dead:
            self.probes.forget(strangers)
        self._unknown_ids = unknown
        self._listed_ids &= unknown

    def _unknown_among(self, reported: NDArray[np.uint64]) -> set[int]:
        return set(reported[~np.isin(reported, self._known.ids)].tolist())

    def follow_applications(self, applications: Mapping[str, HostApplicationGroup]) -> None:
        """Give the cgroups at these paths, and those below, the classes of host applications, from the next tick on."""
        self._known.follow_applications(applications)

    def capabilities(self) -> dict[str, bool]:
        """Collectors and probes by name; true where one measures on this host."""
        opened = dict.fromkeys((*self._collectors, *self.probes.opened), True)
        return opened | dict.fromkeys(self.unsupported, False)

    def program_rows(self) -> list[tuple[str, str, float, int]]:
        """(probe, program, run seconds, runs) of every BPF program; zero unless the kernel's statistics are on."""
        return [
            (probe, stats.name, stats.run_time_ns / 1e9, stats.run_count)
            for probe, programs in self.probes.stats().items()
            for stats in programs
        ]

    def info_of(self, identity: int) -> CgroupInfo | None:
        """Description of a living or recently removed cgroup."""
        return self._known.info_of(identity)

    def path_of(self, identity: int) -> str | None:
        """Path of a living or recently removed cgroup."""
        return self._known.path_of(identity)

    def name_of(self, path: str) -> str:
        """Name of the cgroup at a path, as `KnownCgroups.name_of`: the path itself where two cgroups share the name."""
        return self._known.name_of(path)

    def title_of(self, path: str) -> str:
        """Name of the cgroup at a path, and the owner of its pod in brackets."""
        return self._known.title_of(path)

    def _own_cost(self, tick_ns: int) -> Reading:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        columns = {
            "agent.cpu_ns": np.array([int((usage.ru_utime + usage.ru_stime) * 1e9)], dtype=np.uint64),
            "agent.rss_bytes": np.array([_resident_bytes_if_known()]),
            "agent.tick_ns": np.array([float(tick_ns)]),
            "agent.cgroups": np.array([float(len(self._known.cgroups))]),
            "agent.cgroups_passed_over": np.array([float(self._walk.passed_over)]),
        }
        return Reading({HOST: Table({}, columns)})

    def close(self) -> None:
        """Detach everything; idempotent."""
        self.probes.close()
        for collector in self._collectors.values():
            collector.close()
        self._walk.close()


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _resident_bytes_if_known() -> float:
    """NaN where no descriptor is free, which must not end the tick."""
    try:
        return float(resident_bytes())
    except OSError:
        return math.nan


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard one: the agent keeps a few open for each cgroup."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
