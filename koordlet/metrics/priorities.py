"""Use of the node by priority class, and what best-effort work may use, as Prometheus series."""

from collections.abc import Iterable, Iterator, Mapping
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from api.cgroup_path import lineage
from api.cpuset import parse_cpuset
from api.frame import CgroupInfo, CgroupKind, Column
from api.intents import Knob, Setting
from api.qos import PriorityBand, QoSClass
from koordlet.tick import Tick

FRESH = "cpu.oncpu_ns"
"""Run time of each cgroup's own threads, in each tick."""
IN_TURN = "cpustat.usage_ns"
"""CPU time of a cgroup with all below it, read in turn."""
MEMORY = "memstat.usage_bytes"

PRIORITIES = ("prod", "mid", "batch", "free", "system")
"""`system` is what belongs to no pod and has no class."""
_BANDS = {
    PriorityBand.PROD: "prod",
    PriorityBand.MID: "mid",
    PriorityBand.BATCH: "batch",
    PriorityBand.FREE: "free",
}

FAMILIES: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "koord_priority_cpu_usage_seconds": (
        "counter",
        ("priority",),
        "CPU time by priority class; `system` is what belongs to no pod and has no class",
    ),
    "koord_priority_memory_usage_bytes": (
        "gauge",
        ("priority",),
        "Memory charged to pods and to cgroups with a class, by priority class",
    ),
    "koord_batch_cpu_allowed_cores": (
        "gauge",
        (),
        "CPUs that best-effort work may use: those of the node, or what suppression leaves of them",
    ),
    "koord_evictions": (
        "counter",
        ("namespace", "name", "strategy"),
        "Evictions of pods, and ends of other cgroups, that began; `strategy` says why",
    ),
}
"""Kind, labels and meaning of every family; counters get `_total`."""

Evictions = Mapping[tuple[str, str, str], int]
"""Number of evictions by namespace, name and strategy."""


def priority_of(info: CgroupInfo) -> str:
    """Return the priority class of a cgroup: its pod's own, else batch for BE and prod for other classes."""
    named = _BANDS.get(PriorityBand(info.priority_band)) if info.priority_band in _NAMED else None
    if info.qos == QoSClass.SYSTEM or (not info.qos and not info.pod_uid):
        return "system"
    if named is not None:
        return named
    return "batch" if info.qos == QoSClass.BE or info.kube_qos == "BestEffort" else "prod"


_NAMED = frozenset(_BANDS)


class PriorityMetrics(PrometheusCollector):
    """Series by priority class: `update` takes each tick; `collect` may run in another thread."""

    def __init__(self) -> None:
        self._cgroups: tuple[CgroupInfo, ...] = ()
        self._class_of_row: NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self._is_outer: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._spent_ns: NDArray[np.float64] = np.zeros(len(PRIORITIES))
        self._memory: Mapping[str, float] = {}
        self._allowed_cores = float("nan")
        self._evictions: Evictions = {}
        self._lock = Lock()

    def update(self, tick: Tick, settings: Iterable[Setting], evictions: Evictions) -> None:
        """Take a tick, the settings in effect after it and the evictions so far."""
        cgroups = tick.window.cgroups
        if cgroups is not self._cgroups:
            self._index(cgroups)
        spent = self._growth(tick)
        memory = self._charged(tick)
        cpus = len(tick.window.last.tables.get("host.cpu", ()))
        allowed = min([float(cpus), *suppression(settings).values()])
        with self._lock:
            self._spent_ns = self._spent_ns + spent
            self._memory, self._allowed_cores = memory, allowed
            self._evictions = dict(evictions)

    def collect(self) -> Iterator[Family]:
        """All families."""
        with self._lock:
            spent, memory, allowed, evictions = self._spent_ns, self._memory, self._allowed_cores, self._evictions
        values: dict[str, Mapping[tuple[str, ...], float]] = {
            "koord_priority_cpu_usage_seconds": {
                (name,): nanoseconds / 1e9 for name, nanoseconds in zip(PRIORITIES, spent.tolist(), strict=True)
            },
            "koord_priority_memory_usage_bytes": {(name,): value for name, value in memory.items()},
            "koord_batch_cpu_allowed_cores": {(): allowed} if allowed > 0 else {},
            "koord_evictions": {key: float(count) for key, count in evictions.items()},
        }
        for name, (kind, labels, text) in FAMILIES.items():
            make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            family = make(name, text, labels=labels)
            for key, value in values[name].items():
                family.add_metric(key, value)
            yield family

    def _index(self, cgroups: tuple[CgroupInfo, ...]) -> None:
        """Note each row's class, and the rows that hold the sums of all below them: of pods and of classed cgroups.

        The kubelet's directories have the class of their layout, and hold no more than pods, each of its own class.
        """
        self._cgroups = cgroups
        numbers = {name: number for number, name in enumerate(PRIORITIES)}
        self._class_of_row = np.array([numbers[priority_of(info)] for info in cgroups], dtype=np.intp)
        classed = {
            info.path for info in cgroups if info.qos and not info.pod_uid and info.kind is not CgroupKind.KUBEPODS
        }
        self._is_outer = np.array(
            [
                info.kind is CgroupKind.POD
                if info.pod_uid
                else info.path in classed and not classed & (set(lineage(info.path)) - {info.path})
                for info in cgroups
            ],
            dtype=np.bool_,
        )

    def _growth(self, tick: Tick) -> NDArray[np.float64]:
        columns = tick.delta.table.columns
        own = columns.get(FRESH)
        if own is not None and len(own) == len(self._class_of_row):
            return _sums(self._class_of_row, own)
        whole = columns.get(IN_TURN)
        if whole is None or len(whole) != len(self._class_of_row):
            return np.zeros(len(PRIORITIES))
        return _sums(self._class_of_row[self._is_outer], whole[self._is_outer])

    def _charged(self, tick: Tick) -> Mapping[str, float]:
        column = tick.window.last.cgroup.columns.get(MEMORY)
        if column is None or len(column) != len(self._class_of_row):
            return {}
        sums = _sums(self._class_of_row[self._is_outer], column[self._is_outer])
        return {name: value for name, value in zip(PRIORITIES, sums.tolist(), strict=True) if name != "system"}


def _sums(classes: NDArray[np.intp], values: Column) -> NDArray[np.float64]:
    """Sums by class; what was not measured adds nothing."""
    known = np.nan_to_num(values.astype(np.float64))
    return np.bincount(classes, weights=known, minlength=len(PRIORITIES)).astype(np.float64)


def suppression(settings: Iterable[Setting]) -> dict[str, float]:
    """Return the CPUs that settings of `cpu_suppress` leave to best-effort work, by policy: cfsQuota, cpuset.

    Of several directories the widest counts.
    """
    found: dict[str, float] = {}
    for setting in settings:
        if setting.strategy != "cpu_suppress":
            continue
        if setting.knob is Knob.CPU_MAX:
            quota, _, period = setting.value.partition(" ")
            if quota.isdigit() and period.isdigit() and int(period):
                found["cfsQuota"] = max(found.get("cfsQuota", 0.0), int(quota) / int(period))
        elif setting.knob is Knob.CPUSET_CPUS:
            found["cpuset"] = max(found.get("cpuset", 0.0), float(len(parse_cpuset(setting.value))))
    return found
