"""Arrivals and departures through the engine, one decision at a time, and what the cluster looks like after."""

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from api.kube.objects import Pod
from api.kube.resources import CPU
from cluster.resources import Key
from scheduler.devices.fragmentation import WorkloadDistribution
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.outcome import Result
from scheduler.plugins.deviceshare import DEVICES, DeviceShare
from scheduler.profile import SchedulerSettings
from scheduler.simulation.objects import device_object, node_object, pod_object
from scheduler.simulation.trace import NodeShape, PodShape

TICK_SECONDS = 1.0
"""Between two ticks of the engine."""

ARRIVAL_SECONDS = 0.02
"""Between two arrivals of a trace replayed without its times."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPUs of the cluster at one time, in percent of one GPU."""

    capacity: int
    allocated: int
    fragmented: float
    """Expected amount that the workload's own pods cannot use, F(M) summed over nodes."""


class Simulation:
    """One engine and the pods it placed. Raises SettingsError, naming `source`, for settings of plugins."""

    def __init__(self, settings: SchedulerSettings, nodes: Sequence[NodeShape], *, source: str = "settings") -> None:
        self.engine = Engine(settings, source=source)
        self.placed: dict[str, Pod] = {}
        self.decisions = 0
        self._ticked = -math.inf
        for shape in nodes:
            self.engine.on_node(Action.ADD, node_object(shape), 0.0)
            if shape.gpus:
                event = ObjectEvent(DEVICES, Action.ADD, Key("", shape.name), None, device_object(shape))
                self.engine.on_object(event, 0.0)

    def arrive(self, pod: Pod, now: float) -> str:
        """Attempt a pod at once; the node it went to, or "" when it was turned away (it does not queue)."""
        engine = self.engine
        engine.on_pod(Action.ADD, pod, now)
        self._tick(now)
        outcome = engine.schedule_one(now)
        self.decisions += 1
        engine.writes.clear()
        node = outcome.node if outcome is not None and outcome.result is not Result.UNSCHEDULABLE else ""
        while engine.bindings:
            engine.bound(engine.bindings.popleft(), now)
        if node:
            self.placed[pod.metadata.uid] = pod
        else:
            engine.on_pod(Action.DELETE, pod, now)
        return node

    def _tick(self, now: float) -> None:
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self.engine.tick(now)

    def depart(self, uid: str, now: float) -> None:
        """A placed pod ends; unknown ones are ignored."""
        pod = self.placed.pop(uid, None)
        if pod is not None:
            self.engine.on_pod(Action.DELETE, pod, now)

    def gpu_use(self, workload: WorkloadDistribution) -> GpuUse:
        """Capacity, allocation and fragmentation of the GPUs."""
        share = self.engine.plugins["DeviceShare"]
        if not isinstance(share, DeviceShare):
            raise TypeError(f"DeviceShare is {type(share).__name__}")
        state = share.gpu_state(self.engine.snapshot.all_rows)
        capacity = share.ledger.columns.gpu_capacity(self.engine.snapshot.all_rows)
        allocated = capacity - int(state.gpu_percent.sum())
        return GpuUse(capacity, allocated, float(workload.fragmentation(state).sum()))


def inflated(pods: Sequence[PodShape], gpu_percent: float, seed: int) -> Iterator[PodShape]:
    """Pods in random order until they ask for `gpu_percent` in all: each once, then drawn again at random."""
    random = Random(seed)
    order = list(pods)
    random.shuffle(order)
    asked = 0
    while asked < gpu_percent:
        shape = order.pop() if order else random.choice(pods)
        asked += shape.total_gpu_percent
        yield shape


@dataclass(frozen=True, slots=True)
class Point:
    """One sample of a run; shares of the cluster's GPU capacity."""

    arrived: float
    allocated: float
    fragmented: float
    turned_away: int


@dataclass(frozen=True, slots=True)
class Curve:
    """One run of one policy with one seed."""

    policy: str
    seed: int
    points: tuple[Point, ...]
    decisions: int

    @property
    def last(self) -> Point:
        """Last point of the run."""
        return self.points[-1]


def saturate(
    simulation: Simulation,
    arrivals: Iterable[PodShape],
    workload: WorkloadDistribution,
    *,
    policy: str,
    seed: int,
    step: float = 0.01,
) -> Curve:
    """Feed arrivals without departures and sample every `step` of GPU capacity that arrived."""
    points: list[Point] = []
    capacity = max(1, simulation.gpu_use(workload).capacity)
    asked = turned_away = number = 0
    due = 0.0
    for number, shape in enumerate(arrivals, start=1):
        asked += shape.total_gpu_percent
        turned_away += not simulation.arrive(pod_object(shape, f"pod-{number}"), number * ARRIVAL_SECONDS)
        if asked >= due * capacity:
            points.append(_sample(simulation, workload, asked / capacity, turned_away))
            due += step
    points.append(_sample(simulation, workload, asked / capacity, turned_away))
    return Curve(policy, seed, tuple(points), number)


def _sample(simulation: Simulation, workload: WorkloadDistribution, arrived: float, turned_away: int) -> Point:
    use = simulation.gpu_use(workload)
    capacity = max(1, use.capacity)
    return Point(arrived, use.allocated / capacity, use.fragmented / capacity, turned_away)


@dataclass(frozen=True, slots=True)
class ReplayPoint:
    """The cluster at one time of a replayed trace; shares of its capacity."""

    seconds: float
    cpu: float
    gpu: float
    fragmented: float
    spread: float
    """p95 - p50 over nodes of cpu requested over cpu there."""
    turned_away: int


@dataclass(frozen=True, slots=True)
class ReplayCurve:
    """One replay of a trace with its own times."""

    policy: str
    points: tuple[ReplayPoint, ...]
    decisions: int


def replay(
    simulation: Simulation, pods: Sequence[PodShape], workload: WorkloadDistribution, *, policy: str, samples: int = 100
) -> ReplayCurve:
    """Feed a trace by its times of creation and deletion, and sample the cluster evenly over its arrivals.

    A pod that finds no node is turned away for good.
    """
    ends: list[tuple[float, str]] = []
    points: list[ReplayPoint] = []
    turned_away = 0
    ordered = sorted(pods, key=lambda shape: (shape.created_seconds, shape.name))
    for number, shape in enumerate(ordered):
        now = shape.created_seconds
        while ends and ends[0][0] <= now:
            simulation.depart(heapq.heappop(ends)[1], now)
        if not simulation.arrive(pod_object(shape, shape.name), now):
            turned_away += 1
        elif shape.deleted_seconds is not None:
            heapq.heappush(ends, (shape.deleted_seconds, shape.name))
        if number * samples // len(ordered) >= len(points):
            points.append(_moment(simulation, workload, now, turned_away))
    return ReplayCurve(policy, tuple(points), simulation.decisions)


def _moment(simulation: Simulation, workload: WorkloadDistribution, now: float, turned_away: int) -> ReplayPoint:
    snapshot = simulation.engine.snapshot
    column = snapshot.columns[CPU]
    there = snapshot.allocatable[snapshot.all_rows, column]
    taken = snapshot.requested[snapshot.all_rows, column]
    p50, p95 = np.percentile(taken / np.maximum(there, 1), [50, 95])
    use = simulation.gpu_use(workload)
    gpus = max(1, use.capacity)
    return ReplayPoint(
        now,
        float(taken.sum() / there.sum()),
        use.allocated / gpus,
        use.fragmented / gpus,
        float(p95 - p50),
        turned_away,
    )
