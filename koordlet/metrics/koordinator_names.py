"""Koordinator's names for what the agent measures, beside its own: for dashboards and rules that exist already.

Series that would need what this agent does not have are left out rather than estimated; `docs/migration.md` lists both.
Counters have no suffix there, so they are served without a type.
"""

import math
import time
from collections.abc import Iterator, Mapping
from threading import Lock

from prometheus_client.core import GaugeMetricFamily, UntypedMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector as PrometheusCollector

from api.frame import CgroupInfo, CgroupKind
from api.intents import Knob, Setting
from api.qos import QoSClass
from koordlet.control.control_loop import ControlLoop
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.events import EVICT
from koordlet.kube.usage_meter import UsageMeter
from koordlet.kube.usage_series import Quantity
from koordlet.metrics.priorities import suppression
from koordlet.tick import Tick

Labels = tuple[str, ...]
Values = dict[str, dict[Labels, float]]

_POD = ("pod_uid", "pod_name", "pod_namespace")
_CONTAINER = (*_POD, "container_id", "container_name")
_PSI = ("psi_resource_type", "psi_precision", "psi_degree", "cpu_full_supported")
_PRESSURE = {
    f"pressure.{resource}_{degree}_us": (named, degree)
    for resource, named in (("cpu", "cpu"), ("memory", "mem"), ("io", "io"))
    for degree in ("some", "full")
}
"""Columns to resource and degree."""

FAMILIES: Mapping[str, tuple[Labels, str]] = {
    "koordlet_start_time": ((), "Start of the agent, seconds since the epoch"),
    "koordlet_node_used_cpu_cores": ((), "Busy CPUs of the node"),
    "koordlet_node_used_memory_bytes": ((), "Memory of the node that is not available"),
    "koordlet_node_metric_node_usage": (("resource", "unit"), "Usage of the node"),
    "koordlet_node_metric_system_usage": (("resource", "unit"), "Usage of the node outside its pods"),
    "koordlet_be_suppress_cpu_cores": (("type",), "CPUs that best-effort pods may use"),
    "koordlet_be_suppress_ls_used_cpu_cores": ((), "CPUs that pods of other classes than BE use"),
    "koordlet_be_suppress_be_used_cpu_cores": ((), "CPUs that pods of the class BE use"),
    "koordlet_container_cpi": ((*_CONTAINER, "cpi_field"), "Cycles and instructions of the last tick"),
    "koordlet_container_psi": ((*_CONTAINER, *_PSI), "Stalled time of a container, percent"),
    "koordlet_pod_psi": ((*_POD, *_PSI), "Stalled time of a pod, percent"),
    "koordlet_container_scaled_cfs_quota_us": (_CONTAINER, "Quota that CPU burst has set"),
    "koordlet_container_scaled_cfs_burst_us": (_CONTAINER, "Burst that CPU burst has set"),
    "koordlet_pod_eviction": (("reason",), "Evictions that were accepted"),
}
"""Labels besides `node`, and meaning."""
_COUNTERS = frozenset({"koordlet_pod_eviction"})


class KoordinatorMetrics(PrometheusCollector):
    """Series under Koordinator's names: `update` takes each tick; `collect` may run in another thread."""

    def __init__(self, node: str, turn_seconds: float, max_cgroups: int) -> None:
        """`turn_seconds` is the time in which each file that is read in turn was read once."""
        self._node = node
        self._max_cgroups = max_cgroups
        self._meter = UsageMeter(turn_seconds)
        self._started = time.time()
        self._lock = Lock()
        self._values: Values = {}
        self._psi: dict[tuple[int, str], float] = {}
        """The newest stalled time by cgroup and column."""

    def update(self, tick: Tick, control: ControlLoop) -> None:
        """Take a tick and what the control loop has in effect after it."""
        infos = [info for info in tick.window.cgroups if info.pod_uid][: self._max_cgroups]
        settings = list(control.enforcer.active_settings().values())
        values: Values = {"koordlet_start_time": {(): self._started}}
        values |= self._usage(tick)
        values["koordlet_be_suppress_cpu_cores"] = {(policy,): cores for policy, cores in suppression(settings).items()}
        values |= _burst(settings, {info.path: info for info in infos})
        values["koordlet_container_cpi"] = _cycles(tick, infos)
        values |= self._pressure(tick, infos)
        values["koordlet_pod_eviction"] = {} if control.enforcer.is_dry_run else evictions(control.enforcer.counts)
        with self._lock:
            self._values = values

    def collect(self) -> Iterator[Family]:
        """All families that have a value."""
        with self._lock:
            values = self._values
        for name, (labels, text) in FAMILIES.items():
            kind = UntypedMetricFamily if name in _COUNTERS else GaugeMetricFamily
            family = kind(name, text, labels=("node", *labels))
            for key, value in values.get(name, {}).items():
                if math.isfinite(value):
                    family.add_metric((self._node, *key), value)
            if family.samples:
                yield family

    def _usage(self, tick: Tick) -> Values:
        usage = self._meter.measure(tick, {})
        classes = {info.pod_uid: info.qos for info in tick.window.cgroups if info.kind is CgroupKind.POD}
        used = {True: 0.0, False: 0.0}
        for uid, sample in usage.pods.items():
            if math.isfinite(sample[Quantity.CPU]):
                used[classes.get(uid) == QoSClass.BE] += sample[Quantity.CPU]
        found: Values = {
            "koordlet_node_used_cpu_cores": {(): usage.node[Quantity.CPU]},
            "koordlet_node_used_memory_bytes": {(): usage.node[Quantity.MEMORY]},
            "koordlet_be_suppress_ls_used_cpu_cores": {(): used[False]},
            "koordlet_be_suppress_be_used_cpu_cores": {(): used[True]},
        }
        for name, sample in (("node", usage.node), ("system", usage.system)):
            found[f"koordlet_node_metric_{name}_usage"] = {
                ("cpu", "core"): sample[Quantity.CPU],
                ("memory", "byte"): sample[Quantity.MEMORY],
            }
        return found

    def _pressure(self, tick: Tick, infos: list[CgroupInfo]) -> Values:
        """Stalled time between two readings of a file; files are read in turn, and a value stands meanwhile."""
        rows = {info.id: row for row, info in enumerate(tick.window.cgroups)}
        found: Values = {"koordlet_container_psi": {}, "koordlet_pod_psi": {}}
        known: dict[tuple[int, str], float] = {}
        for column, (resource, degree) in _PRESSURE.items():
            if column not in tick.delta.table.columns:
                continue
            growth_us, seconds = tick.delta.table.columns[column], tick.window.reading_seconds(column)
            for info in infos:
                row = rows[info.id]
                value = self._psi.get((info.id, column), math.nan)
                if seconds[row] > 0:
                    value = float(growth_us[row]) / float(seconds[row]) / 1e4  # to percent
                known[info.id, column] = value
                labels = (resource, "avg10", degree, "true")
                if info.kind is CgroupKind.CONTAINER:
                    found["koordlet_container_psi"][*_container(info), *labels] = value
                elif info.kind is CgroupKind.POD:
                    found["koordlet_pod_psi"][*_pod(info), *labels] = value
        self._psi = known
        return found


def _cycles(tick: Tick, infos: list[CgroupInfo]) -> dict[Labels, float]:
    columns = tick.delta.table.columns
    if "pmu.cycles" not in columns or "pmu.instructions" not in columns:
        return {}
    rows = {info.id: row for row, info in enumerate(tick.window.cgroups)}
    return {
        (*_container(info), field): float(columns[f"pmu.{field}"][rows[info.id]])
        for info in infos
        if info.kind is CgroupKind.CONTAINER
        for field in ("cycles", "instructions")
    }


def _burst(settings: list[Setting], infos: Mapping[str, CgroupInfo]) -> Values:
    names = {
        Knob.CPU_MAX: "koordlet_container_scaled_cfs_quota_us",
        Knob.CPU_BURST: "koordlet_container_scaled_cfs_burst_us",
    }
    found: Values = {name: {} for name in names.values()}
    for setting in settings:
        info = infos.get(setting.target)
        if setting.strategy != "cpu_burst" or setting.knob not in names or info is None:
            continue
        amount = setting.value.partition(" ")[0]
        if info.kind is CgroupKind.CONTAINER:
            found[names[setting.knob]][_container(info)] = float(amount) if amount.isdigit() else -1.0
    return found


def evictions(counts: Mapping[tuple[str, str, str], int]) -> dict[Labels, float]:
    """Return accepted evictions by the strategy that asked."""
    return {
        (strategy,): float(count)
        for (strategy, knob, outcome), count in counts.items()
        if knob == EVICT and outcome == Outcome.EVICTED.value
    }


def _pod(info: CgroupInfo) -> Labels:
    return info.pod_uid, info.pod, info.namespace


def _container(info: CgroupInfo) -> Labels:
    return (*_pod(info), info.container_id, info.container)
