"""Projection: what workloads used by container, and their peaks by the hour, from the nodes' reports; once asked for.

A report states the use of each pod. It is shared among the pod's containers as they ask for it, which is exact for
pods of one container. OOM kills stand in the pods' own status: the last one of each container. Of each workload the
sum over its pods makes one series, whose hourly peaks are forecast.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from api.crds import NodeMetric
from api.crds.node_metric import PodUsage
from api.kube.interference import EXTENSION_THROTTLED, EXTENSION_WORKLOAD
from api.kube.resources import CPU, MEMORY, QuantityError, parse_quantity
from api.kube.times import epoch_seconds
from api.kube.workload import workload_named
from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.forecast.seasonal import SeasonalForecaster
from controllers.kinds import NODE_METRIC, POD, Pod, PodContainer
from controllers.recommend.usage import CPU_BUCKETS, HALF_LIFE_SECONDS, Usage
from controllers.runtime.view import Projection
from controllers.runtime.writes import kind_name
from detector.histograms import DecayingHistograms, Rows, Values

_log = logging.getLogger(__name__)

HOUR_SECONDS = 3600.0
QUANTILE = 0.95
MIN_HOURS = 48
"""Hours of reports before a workload has a forecast."""
MOST_WORKLOADS = 20_000
"""Workloads that are followed; each takes about 12 KB, and 3 KB more for each container."""
MOST_CONTAINERS = 50
"""Containers by name that are followed of one workload."""
KEPT_SECONDS = 14 * 86_400.0
"""A workload that no report named for this long is forgotten."""
JOB_KEPT_SECONDS = 3 * 3600.0
"""The same of a Job without pods: none of its name comes again."""
SKEW_SECONDS = 300.0
"""A report from further ahead of the manager's time than this is not taken in."""
REPORT_SECONDS = 60.0
"""Time between two reports of a node that states none."""
SILENT_SECONDS = 1800.0
"""What a node said longer ago than this counts no more in the sum of a workload."""
THROTTLED_GAIN = 0.01
"""Weight of the newest report in the mean of what pods lose to their own quota."""
OOM_KILLED = "OOMKilled"


@dataclass(slots=True)
class _Placed:
    """A pod that is reported."""

    row: int
    node: str
    cores: float
    time: float
    streams: dict[str, int] = field(default_factory=dict)
    """Row in the usage by container."""


@dataclass(slots=True)
class _Kill:
    """The last OOM kill of a container."""

    time: float
    requested_bytes: float
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class Ahead:
    """Sum of a workload's CPU in cores: now, and the forecast peaks of this hour and the next; NaN without one."""

    now_cores: float
    this_hour_cores: float = math.nan
    next_hour_cores: float = math.nan
    hour: int = -1
    """Hour under way, since the epoch."""


class Outlook(NamedTuple):
    """What changes with the hour; replaced as a whole, so that other threads never read parts of two hours."""

    hour: int
    """Under way, since the epoch; -1 before the first report."""
    total_cores: Values
    """Sum over the pods of each workload, of the last reports."""
    peaks: Mapping[int, tuple[float, float]]
    """Forecast peaks of this hour and the next by workload's row."""


@dataclass(frozen=True, slots=True)
class _Sample:
    row: int
    container: str
    key: Key
    time: float
    cores: float
    memory_bytes: float
    throttled: float
    """Seconds a second; NaN where the report does not tell."""


class ObservedUsage:
    """What is known of workloads, by their `Kind/namespace/name`. It goes on to change with each report."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.demand = DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS)
        """Use plus time lost to the own quota in cores, by row of the usage, of reports that tell of both."""
        self.rows: dict[str, int] = {}
        self.forecaster = SeasonalForecaster(0, QUANTILE)
        self.hours: Values = np.zeros(0)
        """Hours learned of each workload."""
        self.outlook = Outlook(-1, np.zeros(0), {})
        self.whole_seconds = math.inf
        """Time from which the sums hold a report of each node: one interval after the first."""
        self.heard_seconds: Values = np.zeros(0)
        self.throttled: Values = np.zeros(0)
        """Mean of the seconds a second that one pod loses to its own quota; NaN where no report told of it."""
        self.refused = 0
        """Reports of pods for whose workload there was no room."""
        self.aggregates: dict[int, dict[str, int]] = {}
        """Row in the usage by container, by workload's row."""
        self.pods: dict[int, set[Key]] = {}
        """Pods by workload's row."""
        self.specs: dict[Key, Pod] = {}

    @property
    def hour(self) -> int:
        """Hour under way, since the epoch."""
        return self.outlook.hour

    @property
    def total_cores(self) -> Values:
        """Sum over the pods of each workload, of the last reports."""
        return self.outlook.total_cores

    def ahead(self, workload: str) -> Ahead | None:
        """Return the sums of a workload; None for one that is not known. Safe from any thread."""
        hour, totals, peaks = self.outlook
        row = self.rows.get(workload)
        if row is None or row >= len(totals):
            return None
        this, following = peaks.get(row, (math.nan, math.nan))
        return Ahead(float(totals[row]), this, following, hour)

    def replicas(self, workload: str) -> list[Pod]:
        """Return the pods of a workload that were reported and exist."""
        row = self.rows.get(workload)
        found = sorted(self.pods.get(row, ())) if row is not None else []
        return [self.specs[key] for key in found if key in self.specs]


class WorkloadUsage(Projection[ObservedUsage]):
    """Usage of workloads; state lives in this process."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (POD, NODE_METRIC)

    def __init__(self) -> None:
        self._wanted = False
        self._found = ObservedUsage()
        self._placed: dict[Key, _Placed] = {}
        self._kills: dict[Key, dict[str, _Kill]] = {}
        """By pod and container, of pods that exist."""
        self._on_node: dict[str, set[Key]] = {}
        self._last: dict[str, float] = {}
        """Time of each node's newest report."""
        self._early: dict[str, NodeMetric] | None = {}
        """Reports that came before the list of pods; None once that is in."""
        self._peaks: Values = np.zeros(0)
        """Of the hour under way; NaN before the first report of it."""
        self._free_streams: list[int] = []
        self._free_aggregates: list[int] = []
        self._free_rows: list[int] = []
        self._refused_hour = -1
        """Hour in which the log last told of workloads without room."""
        self._taken = 0
        """Aggregates that were ever used."""

    def value(self) -> ObservedUsage:
        """Return what is known; from here on reports are taken in."""
        self._wanted = True
        return self._found

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in pods and reports."""
        if kind_name(resource) == kind_name(POD):
            for change in changes:
                if change.new is None:
                    self._found.specs.pop(change.key, None)
                    self._kills.pop(change.key, None)
                    self._remove(change.key)
                else:
                    self._found.specs[change.key] = change.new
                    self._hear_of_kills(change.key, change.new)
            if changes:
                self._take_early()
            self._count_kills({change.key for change in changes})
            return
        if not self._wanted:
            return
        if self._early is not None:
            for change in changes:
                if change.new is None:
                    self._early.pop(change.key.name, None)
                else:
                    self._early[change.key.name] = change.new
            return
        samples: list[_Sample] = []
        for change in changes:
            if change.new is None:
                self._last.pop(change.key.name, None)
                self._leave(change.key.name, self._on_node.pop(change.key.name, set()))
            else:
                self._report(change.key.name, change.new, samples)
        self._add(samples)

    def _take_early(self) -> None:
        """Take in what came before the pods: its nodes may say nothing new for a while."""
        early, self._early = self._early, None
        samples: list[_Sample] = []
        for node, metric in (early or {}).items():
            self._report(node, metric, samples)
        self._add(samples)

    def _report(self, node: str, metric: NodeMetric, samples: list[_Sample]) -> None:
        time, before = epoch_seconds(metric.status.update_time), self._last.get(node)
        if time is None or time > self.now + SKEW_SECONDS:
            return
        self._last[node] = time
        if before is not None and time <= before:
            return
        if math.isinf(self._found.whole_seconds):
            policy = metric.spec.metric_collect_policy
            interval = policy.report_interval_seconds if policy is not None else None
            begin = self.now if math.isfinite(self.now) else time
            self._found.whole_seconds = begin + min(max(interval or REPORT_SECONDS, 0), SILENT_SECONDS)
        time = min(time, self.now)
        self._turn(int(time // HOUR_SECONDS), time)
        here = set()
        for each in metric.status.pods_metric:
            key = Key(each.namespace, each.name)
            if self._pod(node, key, each, time, samples):
                here.add(key)
        self._leave(node, self._on_node.get(node, set()) - here)
        self._on_node[node] = here

    def _leave(self, node: str, keys: set[Key]) -> None:
        """Forget pods that a node reports no more, but for those that another one reports."""
        for key in keys:
            placed = self._placed.get(key)
            if placed is not None and placed.node == node:
                self._remove(key)

    def _pod(self, node: str, key: Key, each: PodUsage, time: float, samples: list[_Sample]) -> bool:
        stated = each.extensions or {}
        workload, spec = stated.get(EXTENSION_WORKLOAD), self._found.specs.get(key)
        if spec is None or spec.spec.node_name != node or not isinstance(workload, str):
            return False  # a node tells of its own pods alone
        named = workload_named(workload)
        if named is None or named.namespace != key.namespace:
            return False
        used = each.pod_usage.resources
        try:
            cores = parse_quantity(used[CPU], 1000) / 1000 if CPU in used else math.nan
            memory = float(parse_quantity(used[MEMORY])) if MEMORY in used else math.nan
        except QuantityError:
            return False  # the node's account wrote it: it tells nothing
        row = self._row(workload)
        if row is None:
            return False
        found = self._found
        placed = self._placed.get(key)
        if placed is not None and placed.row != row:
            self._remove(key)
            placed = None
        if placed is None:
            placed = self._placed[key] = _Placed(row, node, 0.0, time)
            found.pods.setdefault(row, set()).add(key)
        new = max(cores, 0.0) if math.isfinite(cores) else placed.cores
        found.total_cores[row] += new - placed.cores
        found.heard_seconds[row] = max(found.heard_seconds[row], time)
        placed.cores, placed.node, placed.time = new, node, time
        throttled = _seconds(stated.get(EXTENSION_THROTTLED))
        self._throttled(row, throttled)
        for container, cpu, memory_share in shares(containers_of(spec)):
            samples.append(_Sample(row, container, key, time, cores * cpu, memory * memory_share, throttled * cpu))
        return True

    def _throttled(self, row: int, stated: float) -> None:
        if math.isnan(stated):
            return
        before = self._found.throttled[row]
        gain = 1.0 if math.isnan(before) else THROTTLED_GAIN
        self._found.throttled[row] = (0.0 if math.isnan(before) else before * (1 - gain)) + gain * stated

    def _add(self, samples: list[_Sample]) -> None:
        """Add the samples of several reports at once, but for those of pods that a later report took away."""
        samples = [each for each in samples if self._is_placed(each)]
        if not samples:
            return
        found = self._found
        rows = np.unique(np.array([each.row for each in samples], np.intp))
        self._peaks[rows] = np.fmax(self._peaks[rows], found.total_cores[rows])
        wanted = {(each.key, each.container): each for each in samples}
        new: list[_Sample] = []
        aggregates: list[int] = []
        for each in wanted.values():
            if each.container in self._placed[each.key].streams:
                continue
            aggregate = self._aggregate(each.row, each.container)
            if aggregate is not None:
                new.append(each)
                aggregates.append(aggregate)
        for each, stream in zip(new, self._open(np.array(aggregates, np.intp)).tolist(), strict=True):
            self._placed[each.key].streams[each.container] = stream
        samples = [each for each in samples if each.container in self._placed[each.key].streams]
        if not samples:
            return
        streams = np.array([self._placed[each.key].streams[each.container] for each in samples], np.intp)
        times = np.array([each.time for each in samples])
        found.usage.add_cpu(streams, times, np.array([each.cores for each in samples]))
        found.usage.add_memory(streams, times, np.array([each.memory_bytes for each in samples]))
        rows = found.usage.aggregate_of[streams]
        found.demand.resize(len(found.usage))
        found.demand.add_many(rows, np.array([each.cores + each.throttled for each in samples]), times)
        self._count_kills({each.key for each in samples})

    def _hear_of_kills(self, key: Key, pod: Pod) -> None:
        ends = [
            (each.name, end)
            for each in (*pod.status.container_statuses, *pod.status.init_container_statuses)
            for end in (each.last_state.terminated, each.state.terminated)
            if end is not None and end.reason == OOM_KILLED
        ]
        if not ends:
            return
        requested = {each.name: request_of(each, MEMORY) for each in containers_of(pod)}
        kills = self._kills.setdefault(key, {})
        for name, end in ends:
            time = epoch_seconds(end.finished_at)
            if name not in requested or time is None or time > self.now + SKEW_SECONDS:
                continue
            if name not in kills or time > kills[name].time:
                kills[name] = _Kill(time, requested[name])

    def _count_kills(self, keys: AbstractSet[Key]) -> None:
        """Add the kills of some pods, as far as these are reported and not counted yet."""
        kills = [
            (kill, placed.streams[name])
            for key in sorted(keys & self._kills.keys())
            if (placed := self._placed.get(key)) is not None
            for name, kill in self._kills[key].items()
            if not kill.is_counted and name in placed.streams
        ]
        if not kills:
            return
        self._found.usage.add_oom(
            np.array([stream for _, stream in kills], np.intp),
            np.array([min(kill.time, self.now) for kill, _ in kills]),
            np.array([kill.requested_bytes for kill, _ in kills]),
        )
        for kill, _ in kills:
            kill.is_counted = True

    def _is_placed(self, sample: _Sample) -> bool:
        placed = self._placed.get(sample.key)
        return placed is not None and placed.row == sample.row

    def _turn(self, hour: int, time: float) -> None:
        """Learn the hour that ended, when a report is of a later one."""
        found = self._found
        if hour <= found.hour:
            return
        ended = found.hour
        if ended < 0 or not len(self._peaks):
            found.outlook = found.outlook._replace(hour=hour)
            return
        rows = np.arange(len(self._peaks))
        found.forecaster.step(rows, self._peaks, ended)
        found.hours += np.isfinite(self._peaks)
        self._peaks[:] = np.nan
        self._forget(time)
        # Differences add up rounding errors, and what silent nodes said is old.
        totals = np.zeros(len(self._peaks))
        for placed in self._placed.values():
            if time - placed.time > SILENT_SECONDS:
                placed.cores = 0.0
            totals[placed.row] += placed.cores
        known = np.array(sorted(row for row in found.rows.values() if found.hours[row] >= MIN_HOURS), np.intp)
        now, later = (found.forecaster.forecast(known, hour + each, 1 + each).bound for each in (0, 1))
        peaks = {
            row: (float(one), float(two))
            for row, one, two in zip(known.tolist(), now, later, strict=True)
            if math.isfinite(one) and math.isfinite(two)
        }
        found.outlook = Outlook(hour, totals, peaks)

    def _forget(self, time: float) -> None:
        found = self._found
        for workload, row in list(found.rows.items()):
            ended = workload.startswith("Job/") and not found.pods.get(row)
            if time - found.heard_seconds[row] <= (JOB_KEPT_SECONDS if ended else KEPT_SECONDS):
                continue
            for key in list(found.pods.get(row, ())):
                self._remove(key)
            for aggregate in found.aggregates.pop(row, {}).values():
                found.usage.clear(aggregate)
                found.demand.clear(aggregate)
                self._free_aggregates.append(aggregate)
            found.forecaster.clear(np.array([row], np.intp))
            found.hours[row], found.total_cores[row], found.throttled[row] = 0.0, 0.0, math.nan
            del found.rows[workload]
            self._free_rows.append(row)

    def _remove(self, key: Key) -> None:
        placed = self._placed.pop(key, None)
        if placed is None:
            return
        found = self._found
        found.total_cores[placed.row] = max(found.total_cores[placed.row] - placed.cores, 0.0)
        found.pods.get(placed.row, set()).discard(key)
        self._free_streams += placed.streams.values()

    def _row(self, workload: str) -> int | None:
        found = self._found
        row = found.rows.get(workload)
        if row is not None:
            return row
        if len(found.rows) >= MOST_WORKLOADS:
            found.refused += 1
            if found.hour > self._refused_hour:
                self._refused_hour = found.hour
                _log.warning("no room for %s: %d workloads are followed", workload, MOST_WORKLOADS)
            return None
        row = self._free_rows.pop() if self._free_rows else len(found.rows)
        if row >= len(self._peaks):
            self._grow(max(2 * len(self._peaks), 64))
        found.rows[workload] = row
        return row

    def _grow(self, size: int) -> None:
        found = self._found
        missing = size - len(self._peaks)
        found.forecaster.resize(size)
        self._peaks = np.append(self._peaks, np.full(missing, np.nan))
        found.throttled = np.append(found.throttled, np.full(missing, np.nan))
        found.outlook = found.outlook._replace(total_cores=np.append(found.total_cores, np.zeros(missing)))
        for name in ("hours", "heard_seconds"):
            setattr(found, name, np.append(getattr(found, name), np.zeros(missing)))

    def _aggregate(self, row: int, container: str) -> int | None:
        of_row = self._found.aggregates.setdefault(row, {})
        if container not in of_row and len(of_row) >= MOST_CONTAINERS:
            return None
        if container not in of_row and self._free_aggregates:
            of_row[container] = self._free_aggregates.pop()
        elif container not in of_row:
            of_row[container] = self._taken
            self._taken += 1
        return of_row[container]

    def _open(self, aggregates: Rows) -> Rows:
        """Return a stream of each aggregate, those of pods that are gone first."""
        used = min(len(self._free_streams), len(aggregates))
        again = np.array([self._free_streams.pop() for _ in range(used)], np.intp)
        self._found.usage.reopen(again, aggregates[:used])
        return np.concatenate([again, self._found.usage.open(aggregates[used:])])


def containers_of(pod: Pod) -> list[PodContainer]:
    """Return the containers that run all the time: sidecars too."""
    return [*pod.spec.containers, *(each for each in pod.spec.init_containers if each.restart_policy == "Always")]


def shares(containers: Sequence[PodContainer]) -> list[tuple[str, float, float]]:
    """Return names and shares of the pod's CPU and memory: as requested, equal ones where nothing is."""
    if len(containers) == 1:
        return [(containers[0].name, 1.0, 1.0)]
    made = []
    amounts = [(request_of(each, CPU), request_of(each, MEMORY)) for each in containers]
    sums = [sum(column) for column in zip(*amounts, strict=True)] if amounts else []
    for container, own in zip(containers, amounts, strict=True):
        cpu, memory = (
            part / whole if whole > 0 else 1.0 / len(containers) for part, whole in zip(own, sums, strict=True)
        )
        made.append((container.name, cpu, memory))
    return made


def _seconds(stated: object) -> float:
    """Return seconds a second that a report states; NaN for anything else."""
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not math.isfinite(stated):
        return math.nan
    return min(max(float(stated), 0.0), 1e4)


def request_of(container: PodContainer, resource: str) -> float:
    """Return what a container asks for in millicores or bytes: its request, else its limit, else 0."""
    resources = container.resources
    text = resources.requests.get(resource, resources.limits.get(resource, 0))
    try:
        return float(max(parse_quantity(text, 1000 if resource == CPU else 1), 0))
    except QuantityError:
        return 0.0
