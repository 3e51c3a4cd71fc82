"""One generated day under one policy: pods come and go, nodes report their load, and every step is measured."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.crds.node_metric import NodeMetric, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from api.kube.meta import ObjectMeta, ResourceList
from api.kube.times import rfc3339
from api.kube.workload import workload_of
from cluster.resources import Key
from scheduler.framework import Action, ObjectEvent
from scheduler.interference.pressure_matrix import PressureMatrix
from scheduler.interference.profile import Profiles
from scheduler.plugins.interference import NODE_METRICS, PROFILES
from scheduler.profile import SchedulerSettings
from scheduler.simulation.drive import Simulation
from scheduler.simulation.trace import NodeShape
from scheduler.simulation.workloads import NAMESPACE, PodLife, WorkloadShape, pod_of, profile_of, use_millicores

STEP_SECONDS = 300.0
"""Between two reports of every node."""

MEMORY_USE = 0.6
"""Share of its memory request that a pod uses."""


@dataclass(frozen=True, slots=True)
class DayCurve:
    """Result of one policy over the day, one value per step."""

    policy: str
    seed: int
    hours: NDArray[np.float64]
    load_p50: NDArray[np.float64]
    """Median over nodes of CPU wanted over CPU there."""
    load_p95: NDArray[np.float64]
    lost: NDArray[np.float64]
    """Predicted lost seconds per second, summed over all pods."""
    decisions: int
    turned_away: int

    @property
    def spread(self) -> NDArray[np.float64]:
        """p95 - p50 of node load."""
        return self.load_p95 - self.load_p50

    @property
    def lost_seconds(self) -> float:
        """Predicted lost seconds over the day."""
        return float(self.lost.sum() * STEP_SECONDS)


class Day:
    """A cluster, its workloads and one policy."""

    def __init__(
        self, settings: SchedulerSettings, nodes: Sequence[NodeShape], workloads: Sequence[WorkloadShape]
    ) -> None:
        self.simulation = Simulation(settings, nodes)
        self._nodes = nodes
        self._capacity = np.array([node.cpu_millicores for node in nodes], dtype=np.float64)
        self._index = {node.name: index for index, node in enumerate(nodes)}
        self._book = Profiles()
        self._field = PressureMatrix(len(nodes))
        self._on: dict[str, tuple[PodLife, int]] = {}
        """Running pods and the index of their node."""
        for shape in workloads:
            profile = profile_of(shape)
            self._book.put(profile)
            key = Key(NAMESPACE, profile.metadata.name)
            self.simulation.engine.on_object(ObjectEvent(PROFILES, Action.ADD, key, None, profile), 0.0)

    def run(self, births: Sequence[PodLife], seconds: float, *, policy: str, seed: int) -> DayCurve:
        """Live through the day; a pod that finds no node is turned away for good."""
        ends: list[tuple[float, str]] = []
        samples: list[tuple[float, float, float, float]] = []
        waiting, turned_away = 0, 0
        for step in range(1, int(seconds / STEP_SECONDS) + 1):
            now = step * STEP_SECONDS
            while waiting < len(births) and births[waiting].born_seconds < now:
                life = births[waiting]
                self._end_before(ends, life.born_seconds)
                if self._begin(life):
                    heapq.heappush(ends, (life.gone_seconds, life.uid))
                else:
                    turned_away += 1
                waiting += 1
            self._end_before(ends, now)
            samples.append(self._report(now))
        hours, p50, p95, lost = (np.array(column) for column in zip(*samples, strict=True))
        return DayCurve(policy, seed, hours, p50, p95, lost, self.simulation.decisions, turned_away)

    def _begin(self, life: PodLife) -> bool:
        pod = pod_of(life)
        name = self.simulation.arrive(pod, life.born_seconds)
        if not name:
            return False
        self._on[life.uid] = (life, self._index[name])
        self._field.add(self._index[name], self._book.traits(workload_of(pod), ""))
        return True

    def _end_before(self, ends: list[tuple[float, str]], now: float) -> None:
        while ends and ends[0][0] <= now:
            gone, uid = heapq.heappop(ends)
            life, index = self._on.pop(uid)
            self._field.add(index, self._book.traits(workload_of(pod_of(life)), ""), -1)
            self.simulation.depart(uid, gone)

    def _report(self, now: float) -> tuple[float, float, float, float]:
        """Every node reports; returns hour, p50 and p95 of load, and predicted loss."""
        wanted = np.zeros(len(self._nodes))
        pods: list[list[PodUsage]] = [[] for _ in self._nodes]
        for life, index in self._on.values():
            use = use_millicores(life, now)
            wanted[index] += use
            pods[index].append(_pod_usage(life, use))
        for index, node in enumerate(self._nodes):
            metric = _node_metric(node, min(wanted[index], self._capacity[index]), pods[index], now)
            event = ObjectEvent(NODE_METRICS, Action.UPDATE, Key("", node.name), None, metric)
            self.simulation.engine.on_object(event, now)
        load = wanted / self._capacity
        p50, p95 = np.percentile(load, [50, 95])
        lost = self._field.resident_loss(slice(0, len(self._nodes))).sum()
        return now / 3600.0, float(p50), float(p95), float(lost)


def _pod_usage(life: PodLife, use_millicores: float) -> PodUsage:
    amounts: ResourceList = {
        "cpu": f"{round(use_millicores)}m",
        "memory": round(MEMORY_USE * life.workload.memory_bytes),
    }
    return PodUsage(name=life.uid, namespace=NAMESPACE, pod_usage=ResourceMap(resources=amounts))


def _node_metric(node: NodeShape, use_millicores: float, pods: list[PodUsage], now: float) -> NodeMetric:
    memory = sum(int(pod.pod_usage.resources["memory"]) for pod in pods)
    usage = ResourceMap(resources={"cpu": f"{round(use_millicores)}m", "memory": memory})
    return NodeMetric(
        metadata=ObjectMeta(name=node.name),
        status=NodeMetricStatus(update_time=rfc3339(now), node_metric=NodeUsage(node_usage=usage), pods_metric=pods),
    )
