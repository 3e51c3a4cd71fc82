"""Projection: what pools of nodes are predicted to use in each hour of the day, and which workloads belong to them.

Pools are those that extension `resourcePools` of the ConfigMap lists. A pod is in the first pool whose labels it has,
or whose grade its workload has, else in that of its band, as on the node; classes that own their CPUs are in none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec
import numpy as np

from api.crds import NodeMetric, WorkloadProfile
from api.kube.interference import EXTENSION_WORKLOAD
from api.kube.resources import CPU, QuantityError, parse_quantity
from api.kube.times import epoch_seconds
from api.qos import PriorityBand, QoSClass
from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.capacity.pods import band_with_default, qos_with_default
from controllers.forecast.day_peaks import MIN_HOURS, DayPeaks
from controllers.kinds import CONFIG_MAP, NODE, NODE_METRIC, POD, WORKLOAD_PROFILE, Node, Pod
from controllers.runtime.view import Projection
from controllers.runtime.writes import kind_name
from controllers.slo.layers import Layers
from controllers.slo.pools import POOLS
from controllers.slo.table import SloConfigs

HOUR_SECONDS = 3600.0
MOST_WORKLOADS = 200
"""Workloads of one pool on one node."""
_EXCLUSIVE = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.SYSTEM})
_BANDS = frozenset(PriorityBand)


class PoolMembers(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the manager reads of one pool; the rest is the node's."""

    name: str
    priority_classes: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    least_sensitivity: float | None = None
    """Grade: workloads whose profile says that they lose at least this, in seconds per second under full pressure."""

    def has_labels(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod has all labels of the pool, if it has any."""
        return bool(self.labels) and all(labels.get(key) == value for key, value in self.labels.items())


class _Stated(msgspec.Struct, frozen=True):
    pools: tuple[PoolMembers, ...] = ()


def stated_pools(strategy: Mapping[str, Any]) -> tuple[PoolMembers, ...]:
    """Return the pools of a strategy; none where they cannot be read, which the node says."""
    try:
        return msgspec.convert(strategy, _Stated).pools
    except msgspec.ValidationError:
        return ()


@dataclass(frozen=True, slots=True)
class PoolOutlook:
    """What is known of the pools of one node, by name of the pool."""

    peaks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Millicores in each hour of the day (UTC), 24 of them; a young pool is missing."""
    hours: Mapping[str, int] = field(default_factory=dict)
    """Hours that were learned."""
    workloads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`Kind/namespace/name` of pools with a grade."""


@dataclass(slots=True)
class _Known:
    """State of one node."""

    labels: Mapping[str, str] = field(default_factory=dict)
    pools: tuple[PoolMembers, ...] = ()
    hour: int | None = None
    """Hour under way, since the epoch."""
    used: dict[str, float] = field(default_factory=dict)
    """Largest use in it by pool, millicores."""
    workloads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    peaks: dict[str, tuple[int, ...]] = field(default_factory=dict)


class PoolPeaks(Projection[Mapping[str, PoolOutlook]]):
    """Outlooks by node.

    What was learned lives in this process; the runtime keeps every process up to date, whether it leads or not.
    """

    watches: ClassVar[tuple[Resource[Any], ...]] = (CONFIG_MAP, NODE, POD, WORKLOAD_PROFILE, NODE_METRIC)

    def __init__(self) -> None:
        self._configs = SloConfigs()
        self._layers: list[Layers] = []
        self._nodes: dict[str, _Known] = {}
        self._pods: dict[Key, tuple[Mapping[str, str], QoSClass, PriorityBand]] = {}
        self._grades: dict[str, dict[Key, float]] = {}
        """Greatest sensitivity by profile, by workload."""
        self._profiles: dict[Key, str] = {}
        self._learner = DayPeaks(0)
        self._place: dict[str, dict[str, int]] = {}
        """Row by pool, by node."""
        self._free: list[int] = []
        self._rows = 0
        """Rows given out so far."""
        self._value: dict[str, PoolOutlook] = {}

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in changes; an hour is learned with the first report of a later one."""
        name = kind_name(resource)
        if name == kind_name(CONFIG_MAP):
            self._configs.apply(resource, changes)
            self._layers = [
                config.extensions[POOLS]
                for config in self._configs.value().values()
                if config.extensions and POOLS in config.extensions
            ]
            for node, known in list(self._nodes.items()):
                self._choose(node, known)
            return
        for change in changes:
            if name == kind_name(NODE):
                self._node(change.key.name, change.new)
            elif name == kind_name(POD):
                self._pod(change.key, change.new)
            elif name == kind_name(WORKLOAD_PROFILE):
                self._profile(change.key, change.new)
            elif change.new is not None:
                self._report(change.key.name, change.new)

    def value(self) -> Mapping[str, PoolOutlook]:
        """Return the outlooks; a node whose pools are not listed is missing."""
        return dict(self._value)

    def _node(self, name: str, node: Node | None) -> None:
        if node is None:
            self._nodes.pop(name, None)
            self._value.pop(name, None)
            self._release(name, frozenset())
            return
        known = self._nodes.setdefault(name, _Known())
        if known.labels != node.metadata.labels or not known.pools:
            known.labels = node.metadata.labels
            self._choose(name, known)

    def _choose(self, name: str, known: _Known) -> None:
        """Give a node the pools that its labels choose, and forget those that it has no more."""
        pools: dict[str, PoolMembers] = {}
        for layers in self._layers:
            for pool in stated_pools(layers.strategy(layers.entry_for(known.labels))):
                pools.setdefault(pool.name, pool)
        if tuple(pools.values()) == known.pools:
            return
        before = {pool.name: pool for pool in known.pools}
        known.pools = tuple(pools.values())
        known.hour, known.used = None, {}
        self._release(name, frozenset(each for each, pool in pools.items() if before.get(each) == pool))
        places = self._place.get(name, {})
        known.peaks = {each: peaks for each, peaks in known.peaks.items() if each in places}
        self._tell(name, known)

    def _release(self, node: str, kept: frozenset[str]) -> None:
        places = self._place.get(node, {})
        for pool in [pool for pool in places if pool not in kept]:
            place = places.pop(pool)
            self._learner.clear(np.array([place]))
            self._free.append(place)
        if not places:
            self._place.pop(node, None)

    def _pod(self, key: Key, pod: Pod | None) -> None:
        if pod is None or pod.status.phase not in ("Running", "Pending"):
            self._pods.pop(key, None)
            return
        qos = qos_with_default(pod)
        self._pods[key] = pod.metadata.labels, qos, band_with_default(pod, qos)

    def _profile(self, key: Key, profile: WorkloadProfile | None) -> None:
        before = self._profiles.pop(key, None)
        if before is not None:
            self._grades[before].pop(key, None)
            if not self._grades[before]:
                del self._grades[before]
        if profile is None:
            return
        spec = profile.spec.workload
        workload = f"{spec.kind}/{key.namespace}/{spec.name}"
        lost = [
            each.lost_seconds_per_pressure for resource in profile.status.resources for each in resource.sensitivity
        ]
        self._profiles[key] = workload
        self._grades.setdefault(workload, {})[key] = max(lost, default=0.0)

    def _report(self, name: str, metric: NodeMetric) -> None:
        known = self._nodes.get(name)
        time = epoch_seconds(metric.status.update_time)
        if known is None or not known.pools or time is None:
            return
        used, graded = self._use(known.pools, metric)
        hour = int(time // HOUR_SECONDS)
        if known.hour is not None and hour > known.hour:
            self._learn(name, known, hour)
        if known.hour == hour:
            for pool, amount in used.items():
                known.used[pool] = max(known.used.get(pool, 0.0), amount)
        else:
            # Later, or the node's clock was ahead when it named the hour under way, of which nothing is learned then.
            known.hour, known.used = hour, used
        workloads = {pool: tuple(sorted(each)[:MOST_WORKLOADS]) for pool, each in graded.items()}
        if workloads != known.workloads:
            known.workloads = workloads
            self._tell(name, known)

    def _use(self, pools: Sequence[PoolMembers], metric: NodeMetric) -> tuple[dict[str, float], dict[str, set[str]]]:
        """Return millicores of each pool, and the workloads of those with a grade."""
        used = dict.fromkeys((pool.name for pool in pools), 0.0)
        graded: dict[str, set[str]] = {pool.name: set() for pool in pools if pool.least_sensitivity is not None}
        for report in metric.status.pods_metric:
            labels, qos, band = self._pods.get(Key(report.namespace, report.name), _facts(report.qos, report.priority))
            if qos in _EXCLUSIVE:
                continue
            workload = (report.extensions or {}).get(EXTENSION_WORKLOAD)
            grade = max(self._grades.get(workload, {}).values(), default=0.0) if isinstance(workload, str) else 0.0
            pool = self._pool_of(pools, labels, band, grade)
            if pool is None:
                continue
            if pool.name in graded and isinstance(workload, str) and grade >= (pool.least_sensitivity or 0.0):
                graded[pool.name].add(workload)
            try:
                used[pool.name] += float(parse_quantity(report.pod_usage.resources.get(CPU, 0), 1000))
            except QuantityError:
                continue  # the node's account wrote it
        return used, graded

    @staticmethod
    def _pool_of(
        pools: Sequence[PoolMembers], labels: Mapping[str, str], band: PriorityBand, grade: float
    ) -> PoolMembers | None:
        for pool in pools:
            least = pool.least_sensitivity
            if pool.has_labels(labels) or (least is not None and grade >= max(least, 1e-9)):
                return pool
        return next((pool for pool in pools if band.value in pool.priority_classes), None)

    def _learn(self, name: str, known: _Known, hour: int) -> None:
        """Take in the hour that ended, and predict the day that begins with the one under way."""
        assert known.hour is not None
        rows = np.array([self._row(name, pool.name) for pool in known.pools])
        self._learner.step(rows, np.array([known.used.get(pool.name, 0.0) for pool in known.pools]), known.hour)
        for pool, peaks in zip(known.pools, self._learner.day(rows, hour), strict=True):
            if np.isfinite(peaks).all():
                known.peaks[pool.name] = tuple(int(peak) for peak in peaks)
        self._tell(name, known)

    def _row(self, node: str, pool: str) -> int:
        places = self._place.setdefault(node, {})
        place = places.get(pool)
        if place is None:
            if not self._free:
                self._free.append(self._rows)
                self._rows += 1
            place = places[pool] = self._free.pop()
            if place >= len(self._learner):
                self._learner.resize(max(2 * place, 64))
        return place

    def _tell(self, name: str, known: _Known) -> None:
        if not known.pools:
            self._value.pop(name, None)
            return
        places = self._place.get(name, {})
        rows = {pool.name: places[pool.name] for pool in known.pools if pool.name in places}
        hours = {pool: int(self._learner.hours(np.array([row]))[0]) for pool, row in rows.items()}
        self._value[name] = PoolOutlook(dict(known.peaks), hours, dict(known.workloads))


def _facts(qos: str, priority: str) -> tuple[Mapping[str, str], QoSClass, PriorityBand]:
    """Return the facts of a pod that the API server does not have (yet), by what its node says."""
    known = QoSClass(qos) if qos in frozenset(QoSClass) else QoSClass.NONE
    return {}, known, PriorityBand(priority) if priority in _BANDS else PriorityBand.NONE


def is_young(outlook: PoolOutlook, pool: str) -> bool:
    """Return whether too little is learned of a pool to predict it."""
    return outlook.hours.get(pool, 0) < MIN_HOURS
