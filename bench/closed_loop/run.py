"""One run: the scheduler's engine, overcommit's formulas and factor, the descheduler, and profiles, step by step."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import WorkloadProfile
from api.crds.node_metric import NodeMetric
from api.kube.times import rfc3339
from bench.closed_loop.descheduling import Descheduling
from bench.closed_loop.objects import a_metric, a_node, a_pod, a_report, a_workload, path_of
from bench.closed_loop.rules import Rules
from bench.closed_loop.world import (
    BATCH_CORES,
    BATCH_HOURS,
    BATCHES,
    CORES,
    DAY_SECONDS,
    ENDED,
    ENDED_WEIGHED,
    MEMORY,
    RESIDUAL,
    SERVICES,
    WEIGHED,
    WORK_COST,
    Floats,
    Ints,
    World,
)
from cluster.resources import Key
from controllers.capacity import formulas, interference
from controllers.capacity.interference import Factor, InterferenceSettings, loss_of
from controllers.capacity.table import table_of
from controllers.capacity.usage import NodeRow
from controllers.profiles.merge import GROUPS, Evidence, traits
from controllers.profiles.objects import Figures, WorkloadTraits, profiles_of
from controllers.profiles.pair_sums import PairSums, Reported
from controllers.slo.colocation import ColocationStrategy
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.interference import NODE_METRICS, PROFILES
from scheduler.simulated_placement import simulate
from scheduler.simulation.drive import Simulation
from scheduler.simulation.trace import NodeShape

STEP_SECONDS = 3600.0
FAILURES = BATCHES
"""Placements that may fail in a row before a step gives up."""
REPORT_SECONDS = STEP_SECONDS - 300.0
"""In a step, when reports come of what it was like, and the descheduler's cycle; the next come `LASTING_SECONDS` on."""
LASTING_SECONDS = 121.0
"""Just longer than InterferenceAware waits for the node's own means."""
VALID_SECONDS = 180.0
"""For which a verdict holds after its report: those of a step's end are in force when the next one's pods come."""
VERDICT = 0.05
"""Lost seconds a second from which the agent states a verdict (`detector/rules.py`)."""
FACTOR_STEPS = 12
"""Steps of overcommit's factor in one of the simulation: it goes up once in five minutes."""
BEGIN = 1_800_000_000.0 // DAY_SECONDS * DAY_SECONDS


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
    """Of batch work, less what was begun anew elsewhere."""
    moved_batch: int = 0
    moved_services: int = 0

    @property
    def utilisation(self) -> float:
        """Mean use of all CPUs."""
        return float(np.mean(self.use))

    @property
    def lost_part(self) -> float:
        """Lost seconds for each busy second of services."""
        return sum(self.lost) / max(sum(self.busy), 1e-9)

    def at(self, scale: float, harm: float = 1.0, suffix: str = "") -> "Outcome":
        """Return the run under another scale of harm, of those that were summed, of which a part `harm` is left."""
        return replace(self, rules=self.rules + suffix, scale=scale, lost=[self.lost_at[scale * harm]])


@dataclass(slots=True)
class _Job:
    uid: str
    kind: int
    node: int
    work: float
    """Core-seconds."""
    done: float = 0.0


class Run:
    """A cluster under some rules."""

    def __init__(self, rules: Rules, world: World, nodes: int, seed: int, *scales: float) -> None:
        """`scales` are those of harm; rules that know of harm live under the first one."""
        self.rules, self.world, self.nodes = rules, world, nodes
        self.outcome = Outcome(rules.name, scales[0], lost_at=dict.fromkeys(scales, 0.0))
        self._scale, self._draw = scales[0], np.random.default_rng((seed, 2))
        self._load = np.random.default_rng((seed, 3))
        """Of its own, so that services use the same under all rules."""
        shapes = [NodeShape(f"n{number}", CORES * 1000, MEMORY) for number in range(nodes)]
        self._simulation = Simulation(rules.scheduler(seed), shapes)
        self._index = {shape.name: number for number, shape in enumerate(shapes)}
        self._sold = np.zeros(nodes)
        self._factors = [Factor() for _ in range(nodes)]
        self._descheduling = Descheduling(
            knows_harm=rules.knows_harm, ask=lambda question, at: simulate(self._simulation.engine, question, at)
        )
        self._jobs: dict[str, _Job] = {}
        self._number = 0
        self._sums = PairSums()
        strategy = ColocationStrategy(enable=True, cpu_reclaim_threshold_percent=rules.reclaim_percent)
        self._strategies = formulas.strategy_columns([strategy] * nodes)
        self._settings = InterferenceSettings(enabled=True)
        for node in range(nodes):
            self._descheduling.node(a_node(node, 0))
        for kind, count in enumerate(np.bincount(world.workload).tolist()):
            self._descheduling.workload(a_workload(f"service-{kind}", count))
        self._places: Ints = np.full(len(world.request), -1)
        for pod in range(len(world.request)):
            self._place_service(pod, BEGIN)

    def run(self, days: float, told: Callable[[], None] = lambda: None) -> Outcome:
        """Live through some days; `told` is called after each."""
        steps = int(days * DAY_SECONDS / STEP_SECONDS)
        for step in range(steps):
            now = BEGIN + step * STEP_SECONDS
            for pod in np.flatnonzero(~self._there).tolist():
                self._place_service(pod, now)
            use = self.world.use(now - BEGIN, self._load)
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
    def _there(self) -> NDArray[np.bool_]:
        return self._places >= 0

    def _place_service(self, pod: int, now: float, node: str = "") -> None:
        kind, cores = f"service-{self.world.workload[pod]}", self.world.request[pod]
        it = a_pod(f"s{pod}", kind, cores=float(cores), node=node)
        name = self._simulation.arrive(it, now)
        self._places[pod] = self._index[name] if name else -1
        if name:
            self._descheduling.placed(it, name)

    def _place_job(self, kind: int, now: float, node: str = "") -> bool:
        self._number += 1
        uid = f"b{self._number}"
        pod = a_pod(uid, f"batch-{kind}", batch_cores=BATCH_CORES, node=node)
        name = self._simulation.arrive(pod, now)
        if name:
            self._descheduling.placed(pod, name)
            work = BATCH_CORES * 3600 * self._draw.exponential(BATCH_HOURS)
            self._jobs[uid] = _Job(uid, kind, self._index[name], work)
        return bool(name)

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
            it = a_node(node, int(wanted[node]))
            self._simulation.engine.on_node(Action.UPDATE, it, now)
            self._descheduling.node(it)

    def _arrive(self, now: float) -> None:
        """Place batch pods, of which there is no end, until none of any kind finds a node."""
        failed = 0
        while failed < FAILURES:
            failed = 0 if self._place_job(self._number % BATCHES, now) else failed + 1

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
        if self.rules.yields:
            sensitivity = WEIGHED * sensitivity
        busy = use[there]
        rate = np.minimum(sensitivity * harm[mine], 0.9)
        if self.rules.knows_harm:
            ended = np.maximum(rate - RESIDUAL, 0.0) * (ENDED_WEIGHED if self.rules.yields else ENDED)
            # Restraint costs the culprits of a node what its worst victim needs.
            most = np.zeros(self.nodes)
            np.maximum.at(most, mine, ended)
            got = got * np.clip(1 - WORK_COST * most, 0.1, 1.0)[place]
            self._observe(mine, rate, there, place, kinds, got, busy)
            rate = rate - ended
        outcome = self.outcome
        outcome.use.append(float((on_nodes.sum() + got.sum()) / (self.nodes * CORES)))
        outcome.lost.append(float((rate * busy).sum()))
        outcome.busy.append(float(busy.sum()))
        for scale in outcome.lost_at:
            whole = np.minimum(scale / self._scale * sensitivity * harm[mine], 0.9)
            outcome.lost_at[scale] += float((whole * busy).sum())
        outcome.work_core_hours += float(got.sum()) * STEP_SECONDS / 3600
        for job, cores in zip(jobs, got.tolist(), strict=True):
            job.done += cores * STEP_SECONDS
            if job.done >= job.work:
                self._end(job, now)
        alive = np.array([job.uid in self._jobs for job in jobs], np.bool_)
        told = [job for job in jobs if job.uid in self._jobs]
        lost = rate * busy if self.rules.knows_harm else np.zeros(len(busy))
        self._report_and_move(mine, busy, lost, told, kinds[alive], got[alive], now + REPORT_SECONDS)

    def _end(self, job: _Job, now: float) -> None:
        del self._jobs[job.uid]
        pod = self._simulation.placed[job.uid]
        self._simulation.depart(job.uid, now)
        self._descheduling.gone(pod)

    def _report_and_move(
        self, mine: Ints, busy: Floats, lost: Floats, jobs: list[_Job], kinds: Ints, got: Floats, at: float
    ) -> None:
        """Report what the step was like to scheduler, overcommit and descheduler, and carry out the moves."""
        place = np.array([job.node for job in jobs], np.int64)
        strengths = np.zeros((self.nodes, BATCHES))
        np.add.at(strengths, (place, kinds), self.world.strength[kinds] * got)
        until = rfc3339(at + VALID_SECONDS)
        accused = [_culprits(each) for each in strengths]
        pods: list[list[tuple[str, float, float]]] = [[] for _ in range(self.nodes)]
        victims = np.flatnonzero(self._there).tolist()
        for pod, node, cores, loss in zip(victims, mine.tolist(), busy.tolist(), lost.tolist(), strict=True):
            pods[node].append((f"s{pod}", cores, loss if loss >= VERDICT else 0.0))
        for job, cores in zip(jobs, got.tolist(), strict=True):
            pods[job.node].append((job.uid, cores, 0.0))
        used = np.bincount(mine, busy, self.nodes) + np.bincount(place, got, self.nodes)
        stamp = rfc3339(at)
        metrics = [
            a_metric(node, stamp, float(used[node]), [a_report(*pod, *accused[node], until) for pod in pods[node]])
            for node in range(self.nodes)
        ]
        self._tell(metrics, at)
        if self.rules.knows_harm:
            self._step_factors(metrics, at)
        self._move(self._descheduling.moves(at, cycle=True), at)
        harmed = np.flatnonzero(np.bincount(mine, lost >= VERDICT, self.nodes)).tolist()
        if harmed:
            later = at + LASTING_SECONDS
            until = rfc3339(later + VALID_SECONDS)
            renewed = [
                a_metric(
                    node,
                    rfc3339(later),
                    float(used[node]),
                    [a_report(*pod, *accused[node], until) for pod in pods[node]],
                )
                for node in harmed
            ]
            self._tell(renewed, later)
            self._move(self._descheduling.moves(later, cycle=False), later)

    def _tell(self, metrics: list[NodeMetric], now: float) -> None:
        for metric in metrics:
            event = ObjectEvent(NODE_METRICS, Action.UPDATE, Key("", metric.metadata.name), None, metric)
            self._simulation.engine.on_object(event, now)
        self._descheduling.reported(metrics)

    def _step_factors(self, metrics: list[NodeMetric], at: float) -> None:
        """Let the factors follow the reports through the step that was like this."""
        for node, metric in enumerate(metrics):
            loss, state = loss_of(metric, at), self._factors[node]
            for turn in range(FACTOR_STEPS):
                now = at - REPORT_SECONDS + turn * STEP_SECONDS / FACTOR_STEPS
                state = interference.step(state, loss, self._settings, now)
            self._factors[node] = state

    def _move(self, moves: list[tuple[str, str]], now: float) -> None:
        """Move pods to the nodes that the scheduler has for them; batch work begins anew there."""
        for uid, node in moves:
            job = self._jobs.get(uid)
            if job is None:
                pod = self._simulation.placed[uid]
                self._simulation.depart(uid, now)
                self._descheduling.gone(pod)
                self._place_service(int(uid[1:]), now, node)
                self.outcome.moved_services += 1
                continue
            self.outcome.work_core_hours -= job.done / 3600
            self.outcome.moved_batch += 1
            self._end(job, now)
            self._place_job(job.kind, now, node)

    def _observe(
        self,
        mine: Ints,
        rate: Floats,
        there: NDArray[np.bool_],
        place: Ints,
        kinds: Ints,
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
            table.append(WorkloadTraits(path_of(name), {"cpu": figures}))
        for document in profiles_of(table):
            profile = msgspec.convert(document, WorkloadProfile)
            key = Key("loop", profile.metadata.name)
            self._simulation.engine.on_object(ObjectEvent(PROFILES, Action.UPDATE, key, None, profile), now)


def _culprits(strengths: Floats) -> tuple[list[str], list[float]]:
    """Return the workloads that a node's agent blames, the worst first, with their shares of the loss."""
    whole = float(strengths.sum())
    order = [kind for kind in np.argsort(-strengths).tolist() if strengths[kind] > 0.1 * whole]
    return [path_of(f"batch-{kind}") for kind in order], [float(strengths[kind] / whole) for kind in order]
