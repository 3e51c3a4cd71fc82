"""Measuring on one node: walk the cgroups, read collectors and probes, merge what they read into a frame, keep it."""

import contextlib
import logging
import os
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import koordlet.collectors
from api.frame import HOST, CgroupInfo, Frame, Reading, Table, merge
from api.plugin import Unsupported, discover
from koordlet.agent.frame_store import FrameStore
from koordlet.agent.probe_set import ProbeSet, reported_ids
from koordlet.collectors import Collector, Host, Round
from koordlet.config import AgentSettings
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.cgroups.walk import CgroupWalk
from koordlet.host.containers import container_facts
from koordlet.host.files import HostTree
from koordlet.identity.cgroup_names import QoSRule, name_cgroup, printable, qos_of
from koordlet.identity.workloads import ContainerFacts, workload_of

_log = logging.getLogger(__name__)

_REMEMBERED_GONE = 4096


class Agent:
    """Everything that measures on one node. Build it, call `collect` once an interval, `close` it."""

    def __init__(self, settings: AgentSettings) -> None:
        """Open collectors and probes; `unsupported` names those that this host cannot run, with the reason.

        Raises Unsupported when there is no cpu cgroup hierarchy at all.
        """
        self.settings = settings
        self._tree = tree = HostTree(Path(settings.root))
        self.hierarchies = find_hierarchies(tree)
        raise_descriptor_limit()
        self._rules = tuple(QoSRule(rule.match, rule.qos_class) for rule in settings.qos)
        self._walk = CgroupWalk(self.hierarchies.cpu)
        self.unsupported: dict[str, Unsupported] = {}
        self._collectors = self._open_collectors(Host(tree, self.hierarchies))
        self.probes = ProbeSet.open(settings.probes)
        self.unsupported |= self.probes.refused
        self.store = FrameStore(settings.history_seconds, settings.interval_seconds)
        self.lost: Counter[str] = Counter()
        """What the agent itself could not do, by place; told with the next frame."""
        self.extra_readings: list[Callable[[], Reading]] = []
        """What others on this node add to each frame."""
        self._infos: dict[int, CgroupInfo] = {}
        self._gone: OrderedDict[int, CgroupInfo] = OrderedDict()
        self._strangers: set[int] = set()
        self._ticks = 0
        self._ids = np.empty(0, dtype=np.uint64)
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._names: dict[str, str] | None = None

    def _open_collectors(self, host: Host) -> dict[str, Collector]:
        opened: dict[str, Collector] = {}
        for name, kind in discover(koordlet.collectors, Collector, "koord.collectors").items():  # type: ignore[type-abstract]
            try:
                opened[name] = kind.open(host)
            except Unsupported as reason:
                self.unsupported[name] = reason
        return opened

    def collect(self, *, everything: bool = False) -> Frame:
        """Measure once and keep the frame; `everything` reads the costly files of all cgroups at once."""
        started = time.monotonic_ns()
        self._look(everything=everything)
        wall, monotonic = time.time_ns(), time.monotonic_ns()
        readings, sources = self._read_collectors(everything=everything)
        read, failures = self.probes.read()
        self._meet_strangers(read)
        sources |= failures
        sources |= {name: str(reason) for name, reason in self.unsupported.items()}
        readings.extend(read.values())
        readings.extend(read() for read in self.extra_readings)
        readings.append(self._own_cost(time.monotonic_ns() - started))
        tables, lost = merge(self._ids, readings)
        frame = Frame(monotonic, wall, self._cgroups, tables, lost | self.lost, sources)
        self.store.append(frame)
        self._ticks += 1
        return frame

    def _look(self, *, everything: bool) -> None:
        change = self._walk.look(everything=everything)
        for identity, path in change.added.items():
            if not any(fnmatchcase(path, pattern) for pattern in self.settings.cgroups.ignore):
                self._infos[identity] = self._describe(identity, path)
        removed = [self._infos.pop(identity) for identity in change.removed if identity in self._infos]
        if removed:
            self._bury(removed)
        if removed or change.added:
            self._names = None
            self._cgroups = tuple(self._infos.values())
            self._ids = np.array([info.id for info in self._cgroups], dtype=np.uint64)

    def _describe(self, identity: int, path: str) -> CgroupInfo:
        name = name_cgroup(path)
        facts = container_facts(self._tree, name.container_id) if name.container_id else ContainerFacts()
        name = replace(name, name=facts.full_name or name.name)
        return CgroupInfo(
            id=identity,
            path=path,
            name=printable(name.name),
            qos=qos_of(path, name, self._rules).value,
            workload=printable(workload_of(path, name, facts)),
            container=printable(facts.container),
        )

    def _bury(self, removed: Iterable[CgroupInfo]) -> None:
        gone = list(removed)
        for collector in self._collectors.values():
            collector.forget(gone)
        self.probes.forget(np.array([info.id for info in gone], dtype=np.uint64))
        for info in gone:
            self._gone[info.id] = info
        while len(self._gone) > _REMEMBERED_GONE:
            self._gone.popitem(last=False)

    def _read_collectors(self, *, everything: bool) -> tuple[list[Reading], dict[str, str]]:
        every = 1 if everything else self.settings.cgroups.slow_every_ticks
        turn = self._ticks % every
        work = Round(self._cgroups, self._cgroups[turn::every])
        readings, sources = [], {}
        for name, collector in self._collectors.items():
            try:
                readings.append(collector.collect(work))
            except (OSError, ValueError) as error:
                sources[name] = str(error)
        return readings, sources

    def _meet_strangers(self, read: dict[str, Reading]) -> None:
        """Ids the kernel reports but the walk does not know: list anew; what stays unknown is a dead cgroup's rest."""
        reported = reported_ids(read)
        unknown = self._unknown_of(reported)
        if unknown - self._strangers:
            self._look(everything=True)
            unknown = self._unknown_of(reported)
        if unknown:
            known = self._walk.paths
            dead = [identity for identity in unknown & self._strangers if identity not in known]
            if dead:
                self.probes.forget(np.array(dead, dtype=np.uint64))
        self._strangers = unknown

    def _unknown_of(self, reported: NDArray[np.uint64]) -> set[int]:
        return set(reported[~np.isin(reported, self._ids)].tolist())

    @property
    def collector_names(self) -> tuple[str, ...]:
        """Every collector there is, opened or not."""
        return tuple(discover(koordlet.collectors, Collector, "koord.collectors"))  # type: ignore[type-abstract]

    def capabilities(self) -> dict[str, bool]:
        """Source to whether it measures here."""
        able = dict.fromkeys((*self._collectors, *self.probes.opened), True)
        return able | dict.fromkeys(self.unsupported, False)

    def program_rows(self) -> list[tuple[str, str, float, int]]:
        """(probe, program, run seconds, runs) of every BPF program; zero unless the kernel's statistics are on."""
        return [
            (probe, stats.name, stats.run_time_ns / 1e9, stats.run_count)
            for probe, programs in self.probes.stats().items()
            for stats in programs
        ]

    def path_of(self, identity: int) -> str | None:
        """Path of a living or recently removed cgroup."""
        info = self._infos.get(identity) or self._gone.get(identity)
        return info.path if info else None

    def name_of(self, path: str) -> str:
        """What people call the cgroup at a path; the path itself where no name is its own."""
        if self._names is None:
            infos = [*self._gone.values(), *self._infos.values()]
            bearers = Counter(name for _path, name in {(info.path, info.name) for info in infos})
            self._names = {info.path: info.name for info in infos if bearers[info.name] == 1}
        return self._names.get(path, path)

    def _own_cost(self, tick_ns: int) -> Reading:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        columns = {
            "agent.cpu_ns": np.array([int((usage.ru_utime + usage.ru_stime) * 1e9)], dtype=np.uint64),
            "agent.rss_bytes": np.array([float(resident_bytes())]),
            "agent.tick_ns": np.array([float(tick_ns)]),
            "agent.cgroups": np.array([float(len(self._cgroups))]),
        }
        return Reading({HOST: Table({}, columns)})

    def close(self) -> None:
        """Detach everything; idempotent."""
        self.probes.close()
        for collector in self._collectors.values():
            collector.close()
        self._walk.close()


def resident_bytes() -> int:
    """This process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def raise_descriptor_limit() -> None:
    """Let this process keep as many files open as it is allowed to: the agent keeps a few for each cgroup."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
