"""Projection: what workloads used by container, and their peaks by the hour, from the nodes' reports; once asked for.

OOM kills stand in the pods' own status: the last one of each container. Of each workload the sum over its pods makes
one series, whose hourly peaks are forecast.
"""

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from api.crds import NodeMetric
from api.crds.node_metric import PodUsage
from api.kube.times import epoch_seconds
from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.kinds import NODE_METRIC, POD, Pod
from controllers.recommend.outlook import MIN_HOURS, ObservedUsage, Outlook
from controllers.recommend.rows import WorkloadRows
from controllers.recommend.samples import Sample, kills_of, samples_of, told_of
from controllers.runtime.view import Projection
from controllers.runtime.writes import kind_name

HOUR_SECONDS = 3600.0
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


class WorkloadUsage(Projection[ObservedUsage]):
    """Usage of workloads; state lives in this process."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (POD, NODE_METRIC)

    def __init__(self) -> None:
        self._wanted = False
        self._found = ObservedUsage()
        self._rows = WorkloadRows(self._found)
        self._placed: dict[Key, _Placed] = {}
        self._kills: dict[Key, dict[str, _Kill]] = {}
        """By pod and container, of pods that exist."""
        self._on_node: dict[str, set[Key]] = {}
        self._last: dict[str, float] = {}
        """Time of each node's newest report."""
        self._early: dict[str, NodeMetric] | None = {}
        """Reports that came before the list of pods; None once that is in."""

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
        samples: list[Sample] = []
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
        samples: list[Sample] = []
        for node, metric in (early or {}).items():
            self._report(node, metric, samples)
        self._add(samples)

    def _report(self, node: str, metric: NodeMetric, samples: list[Sample]) -> None:
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

    def _pod(self, node: str, key: Key, each: PodUsage, time: float, samples: list[Sample]) -> bool:
        spec = self._found.specs.get(key)
        told = told_of(each, key) if spec is not None and spec.spec.node_name == node else None
        if spec is None or told is None:
            return False  # a node tells of its own pods alone
        row = self._rows.of(told.workload)
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
        new = max(told.cores, 0.0) if math.isfinite(told.cores) else placed.cores
        found.total_cores[row] += new - placed.cores
        found.heard_seconds[row] = max(found.heard_seconds[row], time)
        placed.cores, placed.node, placed.time = new, node, time
        self._throttled(row, told.throttled)
        samples += samples_of(told, spec, row, key, time)
        return True

    def _throttled(self, row: int, stated: float) -> None:
        if math.isnan(stated):
            return
        before = self._found.throttled[row]
        gain = 1.0 if math.isnan(before) else THROTTLED_GAIN
        self._found.throttled[row] = (0.0 if math.isnan(before) else before * (1 - gain)) + gain * stated

    def _add(self, samples: list[Sample]) -> None:
        """Add the samples of several reports at once, but for those of pods that a later report took away."""
        samples = [each for each in samples if self._is_placed(each)]
        if not samples:
            return
        found = self._found
        rows = np.unique(np.array([each.row for each in samples], np.intp))
        self._rows.peaks[rows] = np.fmax(self._rows.peaks[rows], found.total_cores[rows])
        wanted = {(each.key, each.container): each for each in samples}
        new: list[Sample] = []
        aggregates: list[int] = []
        for each in wanted.values():
            if each.container in self._placed[each.key].streams:
                continue
            aggregate = self._rows.aggregate(each.row, each.container)
            if aggregate is not None:
                new.append(each)
                aggregates.append(aggregate)
        for each, stream in zip(new, self._rows.open(np.array(aggregates, np.intp)).tolist(), strict=True):
            self._placed[each.key].streams[each.container] = stream
        samples = [each for each in samples if each.container in self._placed[each.key].streams]
        if not samples:
            return
        streams = np.array([self._placed[each.key].streams[each.container] for each in samples], np.intp)
        times = np.array([each.time for each in samples])
        cores, throttled, waited = np.array([(each.cores, each.throttled, each.waited) for each in samples]).T
        found.usage.add_cpu(streams, times, cores)
        found.usage.add_memory(streams, times, np.array([each.memory_bytes for each in samples]))
        aggregates_of = found.usage.aggregate_of[streams]
        found.demand.add(aggregates_of, cores, throttled, times)
        found.waits.add(aggregates_of, cores, waited, times)
        self._count_kills({each.key for each in samples})

    def _hear_of_kills(self, key: Key, pod: Pod) -> None:
        for kill in kills_of(pod):
            if kill.time > self.now + SKEW_SECONDS:
                continue
            kills = self._kills.setdefault(key, {})
            if kill.container not in kills or kill.time > kills[kill.container].time:
                kills[kill.container] = _Kill(kill.time, kill.requested_bytes)

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

    def _is_placed(self, sample: Sample) -> bool:
        placed = self._placed.get(sample.key)
        return placed is not None and placed.row == sample.row

    def _turn(self, hour: int, time: float) -> None:
        """Learn the hour that ended, when a report is of a later one."""
        found = self._found
        if hour <= found.hour:
            return
        ended = found.hour
        if ended < 0 or not len(self._rows.peaks):
            found.outlook = found.outlook._replace(hour=hour)
            return
        rows = np.arange(len(self._rows.peaks))
        found.forecaster.step(rows, self._rows.peaks, ended)
        found.hours += np.isfinite(self._rows.peaks)
        self._rows.peaks[:] = np.nan
        self._forget(time)
        # Differences add up rounding errors, and what silent nodes said is old.
        totals = np.zeros(len(self._rows.peaks))
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
            self._rows.forget(workload)

    def _remove(self, key: Key) -> None:
        placed = self._placed.pop(key, None)
        if placed is None:
            return
        found = self._found
        found.total_cores[placed.row] = max(found.total_cores[placed.row] - placed.cores, 0.0)
        found.pods.get(placed.row, set()).discard(key)
        self._rows.close(placed.streams.values())
