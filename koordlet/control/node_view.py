"""The node as strategies see it, from the tick, the cgroups' own files and facts of pods.

Without Kubernetes the cgroups that a `[[qos]]` rule classifies are host applications. Limits that the pod's
facts lack come from the cgroup's files. Unknown values are None.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from resource import getpagesize
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.cgroup_path import parent
from api.frame import HOST, CgroupInfo, CgroupKind
from api.intents import Knob
from api.kube.resources import CPU, MEMORY
from api.plugin import Unsupported
from api.protocol import LABEL_PRIORITY_CLASS
from api.qos import QoSClass, QoSSource
from api.window import Window
from detector.breaks import Between, no_breaks
from detector.subtrees import Subtrees
from koordlet.config import StrategiesSettings
from koordlet.control.capabilities import caches
from koordlet.control.memory_domains import open_memory_domains
from koordlet.control.node_amounts import allocatable, with_bound_cpus
from koordlet.host.files import HostTree
from koordlet.host.filesystems import used_ratio
from koordlet.host.knobs.current import CurrentKnobs
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.host.topology import cpu_places, disk_names
from koordlet.identity.pods import FactsOf, PodFacts, no_pod_facts
from koordlet.response.host_capabilities import BANDWIDTH_EIGHTHS_GB
from koordlet.strategies.cpuquota import PERIOD_US, parse_quota
from koordlet.strategies.view import CacheControl, CpuThread, Group, GroupKind, KubeQoS, NodeInfo, NodeView
from koordlet.tick import Tick

_OLD_SECONDS = 60.0
"""Age from which a level that is read in turn is not known any more: its file cannot be read."""
_GROUPS_AT_A_STRETCH = 128
_LATE = 1.5
"""Turns after which a mean is old."""
_READ_KNOBS = (Knob.CPU_MAX, Knob.CPUSET_CPUS)
"""Knobs whose present values strategies need."""
_KINDS = {
    CgroupKind.KUBEPODS: GroupKind.QOS_DIR,
    CgroupKind.POD: GroupKind.POD,
    CgroupKind.CONTAINER: GroupKind.CONTAINER,
}


@dataclass(frozen=True, kw_only=True)
class NodeConfiguration:
    """What node object and kubelet say of the node; the defaults are those of a host without either."""

    allocatable: Mapping[str, int] = field(default_factory=dict)
    """Amounts that pods may request; empty where no cluster tells."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """Amounts of the node's reservation annotation."""
    reserved_cpus: frozenset[int] = frozenset()
    system_cpus: frozenset[int] = frozenset()
    """CPUs exclusive to the system class."""
    kubelet_static: bool = False
    cpu_normalization_ratio: float = 1.0


UNCONFIGURED = NodeConfiguration()


_GROUP_IDENTITY = "kernel/sched_group_identity_enabled"
"""Sysctl of kernels with group identity."""


@dataclass(frozen=True, slots=True)
class _Described:
    """What is known of a cgroup without a measurement."""

    info: CgroupInfo
    facts: PodFacts | None
    fields: Mapping[str, Any] | None
    """Fields of its group that stay as long as both are the same; None where it is no group."""


class NodeViewBuilder:
    """Builds a view each tick; keeps the parts that do not change."""

    def __init__(
        self,
        tree: HostTree,
        knobs: Knobs,
        facts_of: FactsOf = no_pod_facts,
        *,
        settings: StrategiesSettings | None = None,
        network_bits_per_second: int = 0,
        may_evict: bool = True,
    ) -> None:
        """`settings` replace facts of the cluster; a network speed of 0 is unknown. `may_evict` as the enforcer may."""
        self._may_evict = may_evict
        self._settings = settings or StrategiesSettings()
        self._network_bits_per_second = network_bits_per_second
        self._tree = tree
        self._knobs = knobs
        self._current = CurrentKnobs(knobs)
        self._described: dict[int, _Described] = {}
        """The cgroups of the newest tick, by id."""
        self._subtrees: tuple[tuple[CgroupInfo, ...], Subtrees] = ((), Subtrees(()))
        self._facts_of = facts_of
        self._node: NodeInfo | None = None
        self._configured = UNCONFIGURED
        self.configuration_of: Callable[[], NodeConfiguration] = lambda: UNCONFIGURED
        """The newest configuration; never waits."""
        self.between: Between = no_breaks
        """Called between groups of a view, so that a tick may be spread."""
        self._memory_domains = open_memory_domains(tree)
        self._pressure: dict[int, tuple[float, float]] = {}
        """Memory pressure by id of cgroup, and the time until which it is news."""

    def view(self, tick: Tick, evictions: Mapping[str, float], *, with_memory: bool = False) -> NodeView:
        """The tick as strategies see it; `evictions` are recent ones by path, `with_memory` adds the memory domains."""
        window, delta = tick.window, tick.delta
        measured = _Measured(tick, self._memory_pressure(tick), self._subtrees_of(window.cgroups))
        unbound: list[Group] = []
        described: dict[int, _Described] = {}
        for row, info in enumerate(window.cgroups):
            known = described[info.id] = self._describe(info)
            if known.fields is not None:
                unbound.append(_SeenGroup.of(known.fields, row, measured, self._current))
                if len(unbound) % _GROUPS_AT_A_STRETCH == 0:
                    self.between()
        self._described = described
        self._current.keep({group.path for group in unbound})
        host = window.last.tables.get(HOST)
        memory = _host_number(host.columns, "hostwide.memory_total_bytes") if host else None
        free = _host_number(host.columns, "hostwide.memory_available_bytes") if host else None
        node = self._node_of(int(memory or 0))
        groups = with_bound_cpus(unbound, frozenset(cpu.id for cpu in node.cpus))
        domains = None
        if with_memory and self._memory_domains is not None and memory is not None and free is not None:
            domains = self._memory_domains.domains(groups, int(memory), int(free))
        return NodeView(
            node=node,
            groups=groups,
            time_seconds=window.last.wall_ns / 1e9,
            interval_seconds=delta.seconds,
            cpu_millicores=_busy_millicores(window),
            memory_bytes=int(memory - free) if memory is not None and free is not None else None,
            load=self._load(),
            cpu_pressure_ratio=_pressure(window, "cpu"),
            memory_pressure_ratio=_pressure(window, "memory"),
            io_pressure_ratio=_pressure(window, "io"),
            disk_used_ratio=used_ratio(self._tree, self._settings.disk_paths),
            evictions=evictions,
            may_evict=self._may_evict,
            memory_domains=domains,
        )

    def _memory_pressure(self, tick: Tick) -> Mapping[int, float]:
        """Memory pressure by id of cgroup: the mean between the last two readings, for as long as the next is due."""
        column, window, now = "pressure.memory_some_us", tick.window, tick.window.last.monotonic_ns / 1e9
        grown = tick.delta.table.columns.get(column)
        if grown is None:
            return {}
        ids, seconds = tick.delta.table.ids, window.reading_seconds(column)
        shares = np.minimum(grown.astype(np.float64) / 1e6 / seconds, 1.0)
        fresh = np.flatnonzero(np.isfinite(shares))
        known = {identity: seen for identity, seen in self._pressure.items() if now < seen[1]}
        for identity, share, span in zip(
            ids[fresh].tolist(), shares[fresh].tolist(), seconds[fresh].tolist(), strict=True
        ):
            known[identity] = (share, now + _LATE * span)
        self._pressure = known
        return {identity: share for identity, (share, _) in known.items()}

    def node_info(self) -> NodeInfo:
        """The node without a tick: its memory is not known."""
        return self._node_of(0)

    def _load(self) -> float | None:
        text = self._tree.text("/proc/loadavg")
        return float(text.split()[0]) if text else None

    def _node_of(self, memory_bytes: int) -> NodeInfo:
        configured = self.configuration_of()
        if self._node is None or self._node.memory_bytes != memory_bytes or self._configured != configured:
            self._configured = configured
            cache_info = caches(self._knobs.resctrl)
            cache = None
            if cache_info.l3_domains or cache_info.bandwidth_domains:
                cache = CacheControl(
                    mask=cache_info.l3_mask,
                    domains=cache_info.l3_domains,
                    least_ways=cache_info.l3_least_bits,
                    bandwidth_domains=cache_info.bandwidth_domains,
                    bandwidth_step=cache_info.bandwidth_step,
                    bandwidth_floor=cache_info.bandwidth_least,
                    bandwidth_full=BANDWIDTH_EIGHTHS_GB if cache_info.bandwidth_is_absolute else None,
                )
            places = cpu_places(self._tree)
            capacity = {CPU: len(places) * 1000, MEMORY: memory_bytes}
            self._node = NodeInfo(
                cpus=tuple(CpuThread(place.id, place.core, place.socket, place.node) for place in places),
                memory_bytes=memory_bytes,
                allocatable=allocatable(
                    capacity, self._settings.reserved, {**configured.allocatable, **self._settings.allocatable}
                ),
                reserved=configured.reserved,
                reserved_cpus=configured.reserved_cpus,
                system_cpus=configured.system_cpus,
                kubelet_static=configured.kubelet_static,
                cpu_normalization_ratio=configured.cpu_normalization_ratio,
                page_bytes=getpagesize(),
                network_bits_per_second=self._network_bits_per_second,
                disks=disk_names(self._tree),
                cache=cache,
                lacking=self._lacking(),
            )
        return self._node

    def _lacking(self) -> frozenset[Knob]:
        """Knobs that the host has not, where strategies have another for them."""
        lacking = {Knob.MEMORY_HIGH} if self._memory_domains and self._memory_domains.v1 else set()
        if self._tree.text(f"/proc/sys/{_GROUP_IDENTITY}") is None and not self._has_file(Knob.CPU_BVT):
            lacking.add(Knob.CPU_BVT)
        return frozenset(lacking)

    def _has_file(self, knob: Knob) -> bool:
        """Whether the root cgroup or one directly below, where it may lack what others have, has the knob's file."""
        try:
            root = self._knobs.directory("cpu", "/")
        except (Unsupported, CgroupGone):
            return False
        return any(next(root.glob(f"{below}{knob.value}"), None) is not None for below in ("", "*/"))

    def _describe(self, info: CgroupInfo) -> _Described:
        """Describe a cgroup, anew where its identity or its pod's facts changed."""
        facts = self._facts_of(info.pod_uid) if info.pod_uid else None
        known = self._described.get(info.id)
        if known is not None and known.info is info and known.facts is facts:
            return known
        kind = _role(info)
        return _Described(info, facts, None if kind is None else _fields(info, kind, facts))

    def _subtrees_of(self, cgroups: tuple[CgroupInfo, ...]) -> Subtrees:
        if cgroups != self._subtrees[0]:
            self._subtrees = cgroups, Subtrees(cgroups)
        return self._subtrees[1]


class _SeenGroup(Group):
    """A group of one tick: measurements and limits in its files are looked up when they are asked for first."""

    _row: int
    _measured: "_Measured"
    _current: CurrentKnobs

    @classmethod
    def of(cls, fields: Mapping[str, Any], row: int, measured: "_Measured", current: CurrentKnobs) -> "_SeenGroup":
        """The group in a row, with the fields that are known; `limits` are looked up where they are not among these."""
        made = object.__new__(cls)
        vars(made).update(fields, _row=row, _measured=measured, _current=current)
        return made

    @cached_property
    def limits(self) -> Mapping[str, int]:
        # Strategies scale the quotas of pods, so a pod's present quota is no limit to scale again.
        return _limits(self.knobs if self.kind is GroupKind.HOST_APP else {}, self._measured.limit_bytes(self._row))

    @cached_property
    def cpu_millicores(self) -> float | None:
        return self._measured.cpu_millicores(self._row)

    @cached_property
    def throttled_ratio(self) -> float | None:
        return self._measured.throttled_ratio(self._row)

    @cached_property
    def memory_bytes(self) -> int | None:
        return self._measured.memory_bytes(self._row)

    @cached_property
    def cache_bytes(self) -> int | None:
        return self._measured.cache_bytes(self._row)

    @cached_property
    def memory_pressure_ratio(self) -> float | None:
        return self._measured.memory_pressure(self._row)

    @cached_property
    def knobs(self) -> Mapping[Knob, str]:
        return self._current.of(self.path, _READ_KNOBS)


def _fields(info: CgroupInfo, kind: GroupKind, facts: PodFacts | None) -> Mapping[str, Any]:
    """What a group has besides its measurements; limits only where they are stated."""
    stated = facts or PodFacts(
        info.name,
        _stated_class(info),
        labels={LABEL_PRIORITY_CLASS: info.priority_band} if info.priority_band and not info.pod_uid else {},
    )
    requests, limits = _amounts(info, kind, stated)
    group = Group(
        path=info.path,
        kind=kind,
        name=stated.name if kind is not GroupKind.CONTAINER else info.container or info.name,
        workload=stated.workload,
        uid=info.pod_uid,
        pod=parent(info.path) if kind is GroupKind.CONTAINER else "",
        qos=QoSClass.NONE if kind is GroupKind.QOS_DIR else _stated_class(info) or stated.qos,
        qos_source=info.qos_source,
        kube_qos=KubeQoS(info.kube_qos)
        if info.kube_qos
        else KubeQoS.GUARANTEED
        if kind is GroupKind.QOS_DIR
        else KubeQoS.BURSTABLE,
        priority=stated.priority,
        labels=stated.labels,
        annotations=stated.annotations,
        requests=requests,
        limits=limits,
        active=stated.active,
    )
    looked_up = _LOOKED_UP if facts is not None else _LOOKED_UP | {"limits"}
    return {name: value for name, value in vars(group).items() if name not in looked_up}


_LOOKED_UP = frozenset(
    {"cpu_millicores", "throttled_ratio", "memory_bytes", "cache_bytes", "memory_pressure_ratio", "knobs"}
)
"""Fields of a group that are looked up in each tick."""


def _role(info: CgroupInfo) -> GroupKind | None:
    """The role of a cgroup for strategies; None where it has none."""
    if info.kind is CgroupKind.CONTAINER and not info.pod_uid:
        return GroupKind.HOST_APP if info.qos else None
    if info.kind in _KINDS:
        return _KINDS[info.kind]
    return GroupKind.HOST_APP if info.qos and info.kind is not CgroupKind.ROOT and not info.pod_uid else None


def _stated_class(info: CgroupInfo) -> QoSClass:
    """The class that settings, labels or a critical priority state; none where it only follows from Kubernetes'."""
    return QoSClass.NONE if info.qos_source is QoSSource.KUBERNETES else QoSClass(info.qos)


def _amounts(info: CgroupInfo, kind: GroupKind, facts: PodFacts) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Requests and limits of the pod, or of its container; a sandbox has none."""
    if kind is not GroupKind.CONTAINER or not facts.containers:
        return facts.requests, facts.limits
    own = next((each for each in facts.containers if each.name == info.container), None)
    return (own.requests, own.limits) if own is not None else ({}, {})


def _limits(knobs: Mapping[Knob, str], memory_bytes: int | None) -> Mapping[str, int]:
    """Limits in the cgroup's own files, for want of a pod's."""
    limits: dict[str, int] = {}
    quota = parse_quota(knobs.get(Knob.CPU_MAX, "max"))
    if quota is not None:
        limits[CPU] = quota * 1000 // PERIOD_US
    if memory_bytes is not None:
        limits[MEMORY] = memory_bytes
    return limits


class _Measured:
    """Measurements of the newest tick by row; None where one is missing, stands still since an earlier tick, or is old.

    Counters count only with a reading of this tick, over the time since the reading before. Levels (bytes) count for as
    long as the next reading is due.
    """

    def __init__(self, tick: Tick, memory_pressure: Mapping[int, float], subtrees: Subtrees) -> None:
        self._window = tick.window
        self._columns = tick.delta.table.columns
        self._seconds = tick.delta.seconds
        self._ids = tick.delta.table.ids.tolist()
        self._memory_pressure = memory_pressure
        self._spans: dict[str, list[float]] = {}
        self._known: dict[str, list[bool] | None] = {}
        """Whether a level is recent, by row; None where it is read in each tick."""
        own = self._columns.get("cpu.oncpu_ns")
        rows = np.arange(len(self._ids))
        self._run_ns = None if own is None else subtrees.sums(own.astype(np.float64), rows).tolist()
        self._listed: dict[str, list[float] | None] = {}
        """Columns as lists: a number of an array is costly to take by itself."""

    def cpu_millicores(self, row: int) -> float | None:
        # The probe's run time is fresh in each tick; the controller's clock is read in each tick only without it.
        if self._run_ns is not None:
            return float(self._run_ns[row]) / self._seconds / 1e6
        rate = self._rate("cpustat.usage_ns", row)
        return None if rate is None else rate / 1e6

    def throttled_ratio(self, row: int) -> float | None:
        periods, throttled = self._rate("cpustat.periods", row), self._rate("cpustat.throttled_periods", row)
        return None if not periods or throttled is None else throttled / periods

    def memory_bytes(self, row: int) -> int | None:
        used, cache = self._level("memstat.usage_bytes", row), self._level("memstat.file_bytes", row)
        return None if used is None else int(max(used - (cache or 0.0), 0.0))

    def cache_bytes(self, row: int) -> int | None:
        cache = self._level("memstat.file_bytes", row)
        return None if cache is None else int(cache)

    def limit_bytes(self, row: int) -> int | None:
        limit = self._level("memstat.limit_bytes", row)
        return None if limit is None else int(limit)

    def memory_pressure(self, row: int) -> float | None:
        return self._memory_pressure.get(self._ids[row])

    def _rate(self, name: str, row: int) -> float | None:
        """Growth per second of a counter."""
        grown = self._number(name, row)
        if grown is None:
            return None
        if name not in self._spans:
            self._spans[name] = self._window.reading_seconds(name).tolist()
        seconds = self._spans[name][row]
        return grown / seconds if seconds > 0 else None

    def _level(self, name: str, row: int) -> float | None:
        if name not in self._known:
            read = self._window.last.read_ns.get(name)
            age = None if read is None else self._window.last.monotonic_ns - read.astype(np.float64)
            self._known[name] = None if age is None else (age < _OLD_SECONDS * 1e9).tolist()
        known = self._known[name]
        return None if known is not None and not known[row] else self._number(name, row)

    def _number(self, name: str, row: int) -> float | None:
        if name not in self._listed:
            column = self._columns.get(name)
            self._listed[name] = None if column is None else column.tolist()
        listed = self._listed[name]
        if listed is None or not math.isfinite(value := float(listed[row])):
            return None
        return value


def _busy_millicores(window: Window) -> float | None:
    """CPU time of the whole node per second, from /proc/stat, whose grain is 10 ms."""
    if "host.cpu" not in window.last.tables:
        return None
    try:
        delta = window.delta("host.cpu")
    except ValueError:
        return None
    return float(delta.table.columns["hostcpu.busy_ns"].sum()) / delta.seconds / 1e6


def _pressure(window: Window, resource: str) -> float | None:
    column = f"hostwide.{resource}_some_us"
    try:
        delta = window.delta(HOST)
    except (KeyError, ValueError):
        return None
    stalled = delta.table.columns.get(column)
    return None if stalled is None else min(float(stalled[0]) / 1e6 / delta.seconds, 1.0)


def _host_number(columns: Mapping[str, NDArray[np.generic]], name: str) -> float | None:
    return float(columns[name][0]) if name in columns else None
