"""One run: the scheduler's engine, overcommit's formulas and factor, and profiles from reports, step by step."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from api.crds import WorkloadProfile
from api.crds.node_metric import NodeMetric, NodeMetricStatus, NodeUsage, PodUsage, ResourceMap
from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.objects import Container, Node, NodeStatus, Pod, PodSpec, ResourceRequirements
from api.kube.times import rfc3339
from api.protocol import BATCH_CPU, LABEL_QOS_CLASS, SCHEDULER_NAME
from bench.closed_loop.rules import Rules
from bench.closed_loop.world import (
    BATCH_CORES,
    BATCH_HOURS,
    BATCHES,
    CORES,
    DAY_SECONDS,
    RECALL,
    RESIDUAL,
    SERVICES,
    WORK_COST,
    Floats,
    World,
)
from cluster.resources import Key
from controllers.capacity import formulas, interference
from controllers.capacity.interference import Factor, InterferenceSettings, Loss
from controllers.capacity.table import table_of
from controllers.capacity.usage import NodeRow
from controllers.profiles.merge import GROUPS, Evidence, traits
from controllers.profiles.objects import Figures, WorkloadTraits, profiles_of
from controllers.profiles.pair_sums import PairSums, Reported
from controllers.slo.colocation import ColocationStrategy
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.interference import NODE_METRICS, PROFILES
from scheduler.simulation.drive import Simulation
from scheduler.simulation.trace import NodeShape

STEP_SECONDS = 3600.0
BATCH_PRIORITY = 5500
FAILURES = BATCHES
"""Placements that may fail in a row before a step gives up."""
LASTING = 2
"""Steps of harm beyond what protection may leave after which the worst culprit of a node is moved."""
BEGIN = 1_800_000_000.0 // DAY_SECONDS * DAY_SECONDS
MEMORY = 128 << 30


@dataclass(slots=True)
class Outcome:
    """Sums of a run."""

    rules: str
    scale: float
    use: list[float] = field(default_factory=list)
    """Of all CPUs, by step."""
    lost: list[float] = field(default_factory=list)
    """Lost seconds a second of all services, by step."""
    lost_at: dict[float, float] = field(default_factory=dict)
    """The same in sum, had harm been of another scale: rules that know nothing of harm would have done nothing else."""
    busy: list[float] = field(default_factory=list)
    work_core_hours: float = 0.0
    evictions: int = 0

    @property
    def utilisation(self) -> float:
        """Mean use of all CPUs."""
        return float(np.mean(self.use))

    @property
    def lost_part(self) -> float:
        """Lost seconds for each busy second of services."""
        return sum(self.lost) / max(sum(self.busy), 1e-9)

    def at(self, scale: float) -> "Outcome":
        """Return the run under another scale of harm, of those that were summed."""
        return replace(self, scale=scale, lost=[self.lost_at[scale]])


@dataclass(slots=True)
class _Job:
    uid: str
    kind: int
    node: int
    left: float
    """Core-seconds."""


class Run:
    """A cluster under some rules."""

    def __init__(self, rules: Rules, world: World, nodes: int, seed: int, *scales: float) -> None:
        """`scales` are those of harm; rules that know of harm live under the first one."""
        self.rules, self.world, self.nodes = rules, world, nodes
        self.outcome = Outcome(rules.name, scales[0], lost_at=dict.fromkeys(scales, 0.0))
        self._scale, self._draw = scales[0], np.random.default_rng((seed, 2))
        shapes = [NodeShape(f"n{number}", CORES * 1000, MEMORY) for number in range(nodes)]
        self._simulation = Simulation(rules.scheduler(seed), shapes)
        self._index = {shape.name: number for number, shape in enumerate(shapes)}
        self._sold = np.zeros(nodes)
        self._factors = [Factor() for _ in range(nodes)]
        self._harmed = np.zeros(nodes, np.int64)
        self._jobs: dict[str, _Job] = {}
        self._number = 0
        self._sums = PairSums()
        strategy = ColocationStrategy(enable=True, cpu_reclaim_threshold_percent=rules.reclaim_percent)
        self._strategies = formulas.strategy_columns([strategy] * nodes)
        self._settings = InterferenceSettings(enabled=True)
        self._places = np.array([self._placed_service(pod) for pod in range(len(world.request))])

    def run(self, days: float, told: Callable[[], None] = lambda: None) -> Outcome:
        """Live through some days; `told` is called after each."""
        steps = int(days * DAY_SECONDS / STEP_SECONDS)
        for step in range(steps):
            now = BEGIN + step * STEP_SECONDS
            use = self.world.use(now - BEGIN, self._draw)
            on_nodes = np.bincount(self._places[self._there], use[self._there], self.nodes)
            if self.rules.reclaim_percent:
                self._sell(on_nodes, now)
                self._arrive(now)
            self._live(use, on_nodes, now)
            if (step + 1) % int(DAY_SECONDS / STEP_SECONDS) == 0:
                if self.rules.knows_harm:
                    self._publish(now)
                told()
        return self.outcome

    @property
    def _there(self) -> np.ndarray:
        return self._places >= 0

    def _placed_service(self, pod: int) -> int:
        kind, cores = f"service-{self.world.workload[pod]}", self.world.request[pod]
        amounts = {"cpu": f"{cores * 1000:.0f}m", "memory": 2 << 30}
        name = self._simulation.arrive(_pod(f"s{pod}", kind, "LS", amounts, 9500), BEGIN)
        return self._index[name] if name else -1

    def _sell(self, used: Floats, now: float) -> None:
        """Publish batch CPUs as overcommit does, where they moved by more than its threshold."""
        capacity = (CORES * 1000, MEMORY)
        rows = {
            f"n{node:06d}": NodeRow(capacity, (0, 0), high_used=(int(1000 * used[node]), 0), updated_seconds=now)
            for node in range(self.nodes)
        }
        free = formulas.batch(table_of(rows), self._strategies).normalized[:, 0]
        factors = np.array([each.cpu for each in self._factors])
        wanted = free * np.minimum(factors, 1.0)
        for node in np.flatnonzero(np.abs(wanted - self._sold) > 0.1 * np.maximum(self._sold, 1.0)).tolist():
            self._sold[node] = wanted[node]
            self._simulation.engine.on_node(Action.UPDATE, _node(node, int(wanted[node])), now)

    def _arrive(self, now: float) -> None:
        """Place batch pods, of which there is no end, until none of any kind finds a node."""
        failed = 0
        while failed < FAILURES:
            kind, self._number = self._number % BATCHES, self._number + 1
            uid = f"b{self._number}"
            pod = _pod(uid, f"batch-{kind}", "BE", {BATCH_CPU: BATCH_CORES * 1000}, BATCH_PRIORITY)
            name = self._simulation.arrive(pod, now)
            if not name:
                failed += 1
                continue
            failed = 0
            work = BATCH_CORES * 3600 * self._draw.exponential(BATCH_HOURS)
            self._jobs[uid] = _Job(uid, kind, self._index[name], work)

    def _live(self, use: Floats, on_nodes: Floats, now: float) -> None:
        jobs = list(self._jobs.values())
        place = np.array([job.node for job in jobs], np.int64)
        kinds = np.array([job.kind for job in jobs], np.int64)
        room = np.clip(np.minimum(self.rules.suppress_percent / 100, 1.0) * CORES - on_nodes, 0.0, None)
        wanted = np.bincount(place, minlength=self.nodes) * float(BATCH_CORES)
        part = np.minimum(room / np.maximum(wanted, 1e-9), 1.0)
        got = BATCH_CORES * part[place]
        harm = np.bincount(place, self.world.strength[kinds] * got / CORES, self.nodes)
        there = self._there
        mine = self._places[there]
        sensitivity = self._scale * self.world.sensitivity[self.world.workload[there]]
        busy = use[there]
        rate = np.minimum(sensitivity * harm[mine], 0.9)
        if self.rules.knows_harm:
            ended = np.maximum(rate - RESIDUAL, 0.0) * RECALL
            # Restraint costs the culprits of a node what its worst victim needs.
            most = np.zeros(self.nodes)
            np.maximum.at(most, mine, ended)
            got = got * np.clip(1 - WORK_COST * most, 0.1, 1.0)[place]
            self._observe(mine, rate, there, place, kinds, got, busy)
            rate = rate - ended
            self._step_factors(mine, rate, now)
            self._move(np.bincount(mine, rate * busy, self.nodes) / np.maximum(on_nodes, 1e-9), place, kinds, jobs, now)
        outcome = self.outcome
        outcome.use.append(float((on_nodes.sum() + got.sum()) / (self.nodes * CORES)))
        outcome.lost.append(float((rate * busy).sum()))
        outcome.busy.append(float(busy.sum()))
        for scale in outcome.lost_at:
            whole = np.minimum(scale / self._scale * sensitivity * harm[mine], 0.9)
            outcome.lost_at[scale] += float((whole * busy).sum())
        outcome.work_core_hours += float(got.sum()) * STEP_SECONDS / 3600
        pods: list[list[PodUsage]] = [[] for _ in range(self.nodes)]
        for pod, node, cores in zip(np.flatnonzero(there).tolist(), mine.tolist(), busy.tolist(), strict=True):
            pods[node].append(_pod_usage(f"s{pod}", cores))
        for job, cores in zip(jobs, got.tolist(), strict=True):
            pods[job.node].append(_pod_usage(job.uid, cores))
        self._report(on_nodes + np.bincount(place, got, self.nodes), pods, now)
        for job, cores in zip(jobs, got.tolist(), strict=True):
            job.left -= cores * STEP_SECONDS
            if job.left <= 0 and job.uid in self._jobs:
                self._end(job, now)

    def _end(self, job: _Job, now: float) -> None:
        del self._jobs[job.uid]
        self._simulation.depart(job.uid, now)

    def _step_factors(self, mine: np.ndarray, rate: Floats, now: float) -> None:
        lost = np.bincount(mine, np.where(rate > RESIDUAL, rate, 0.0), self.nodes)
        for node in range(self.nodes):
            loss = Loss(cpu=float(lost[node]))
            self._factors[node] = interference.step(self._factors[node], loss, self._settings, now)

    def _move(self, lost: Floats, place: np.ndarray, kinds: np.ndarray, jobs: list[_Job], now: float) -> None:
        """Move the strongest culprit of nodes on which harm lasts; it begins anew elsewhere."""
        self._harmed = np.where(lost > 2 * RESIDUAL, self._harmed + 1, 0)
        for node in np.flatnonzero(self._harmed >= LASTING).tolist():
            here = np.flatnonzero(place == node)
            if len(here):
                self._end(jobs[int(here[np.argmax(self.world.strength[kinds[here]])])], now)
                self.outcome.evictions += 1
                self._harmed[node] = 0

    def _observe(
        self,
        mine: np.ndarray,
        rate: Floats,
        there: np.ndarray,
        place: np.ndarray,
        kinds: np.ndarray,
        got: Floats,
        busy: Floats,
    ) -> None:
        """Keep what a tenth of the nodes measured in this step; losses err by 40 %."""
        services = self.world.workload[there]
        for node in self._draw.choice(self.nodes, max(self.nodes // 10, 1), replace=False).tolist():
            others = np.flatnonzero(place == node)
            if not len(others):
                continue
            pressure = got[others] / CORES
            weights = self.world.strength[kinds[others]] * pressure
            group = zlib.crc32(str(node).encode()) % GROUPS
            for pod in np.flatnonzero(mine == node).tolist():
                noise = np.abs(self._draw.normal(1.0, 0.4, len(others)))
                lost = rate[pod] * weights / max(weights.sum(), 1e-12) * noise
                told = Reported(int(services[pod]), 0, group, STEP_SECONDS, float(busy[pod] / CORES))
                self._sums.add(told, Evidence.DIRECT, SERVICES + kinds[others], pressure, lost)

    def _publish(self, now: float) -> None:
        """Give the scheduler the profiles that follow from what was measured."""
        found = traits(self._sums.of(0), SERVICES + BATCHES, 1)
        table = []
        for place in range(SERVICES + BATCHES):
            name = f"service-{place}" if place < SERVICES else f"batch-{place - SERVICES}"
            numbers = np.nan_to_num(
                [
                    *(found.sensitivity.value[place], found.sensitivity.error[place]),
                    found.strength.value[place] * found.mean_pressure[place],
                ]
            ).tolist()
            figures = Figures(numbers[0], numbers[1], numbers[2], correlated=False, trials=False)
            table.append(WorkloadTraits(f"StatefulSet/loop/{name}", {"cpu": figures}))
        for document in profiles_of(table):
            profile = msgspec.convert(document, WorkloadProfile)
            key = Key("loop", profile.metadata.name)
            self._simulation.engine.on_object(ObjectEvent(PROFILES, Action.UPDATE, key, None, profile), now)

    def _report(self, used: Floats, pods: list[list[PodUsage]], now: float) -> None:
        for node in range(self.nodes):
            usage = NodeUsage(node_usage=ResourceMap(resources={"cpu": f"{1000 * used[node]:.0f}m", "memory": "1Gi"}))
            status = NodeMetricStatus(update_time=rfc3339(now), node_metric=usage, pods_metric=pods[node])
            metric = NodeMetric(metadata=ObjectMeta(name=f"n{node}"), status=status)
            event = ObjectEvent(NODE_METRICS, Action.UPDATE, Key("", f"n{node}"), None, metric)
            self._simulation.engine.on_object(event, now)


def _pod_usage(name: str, cores: float) -> PodUsage:
    usage = ResourceMap(resources={"cpu": f"{1000 * cores:.0f}m", "memory": "64Mi"})
    return PodUsage(name=name, namespace="loop", pod_usage=usage)


def _pod(uid: str, workload: str, qos: str, amounts: dict[str, str | int], priority: int) -> Pod:
    owner = OwnerReference(api_version="apps/v1", kind="StatefulSet", name=workload, uid=workload, controller=True)
    requests: dict[str, str | int | float] = {**amounts}
    container = Container(name="main", resources=ResourceRequirements(requests=requests))
    return Pod(
        metadata=ObjectMeta(
            name=uid, namespace="loop", uid=uid, labels={LABEL_QOS_CLASS: qos}, owner_references=[owner]
        ),
        spec=PodSpec(containers=[container], scheduler_name=SCHEDULER_NAME, priority=priority),
    )


def _node(number: int, batch_millicores: int) -> Node:
    amounts: dict[str, str | int | float] = {
        "cpu": f"{CORES * 1000}m",
        "memory": MEMORY,
        "pods": 256,
        BATCH_CPU: batch_millicores,
    }
    return Node(
        metadata=ObjectMeta(name=f"n{number}", labels={"kubernetes.io/hostname": f"n{number}"}),
        status=NodeStatus(capacity=amounts, allocatable=amounts),
    )
