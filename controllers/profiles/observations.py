"""Projection: what the nodes' reports say of victims, neighbours and usual values, as sums. Bounded; once asked for.

A report stands for the time since the node's report before. Of the CPU a report states what each pod waited for others:
a row of the pressure of all neighbours and that wait, in each report, whether there was a verdict or not. A verdict
tells more, the neighbours' parts: a row for each (`controllers/profiles/merge.py`).

Of other resources, and from agents that state no waits, only verdicts tell. There a pod of a workload that ever had
one is a victim also while it has none: taken from one report in ten, by chance, which stands for all the time that its
workload lost nothing since the last one taken. Sums lose half their weight in a week, so what a workload was like
before its last release fades.
"""

import logging
import math
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import NodeMetric
from api.crds.node_metric import PodUsage
from api.kube.interference import (
    EXTENSION_INTERFERENCE,
    EXTENSION_USUAL,
    EXTENSION_WAITED,
    EXTENSION_WORKLOAD,
    RESOURCES,
    WireExtension,
    WireUsualValues,
    WireVerdict,
)
from api.kube.resources import CPU, QuantityError, parse_quantity
from api.kube.times import epoch_seconds
from api.kube.workload import workload_named
from cluster.resources import Resource
from cluster.store import StoreDelta
from controllers.kinds import NODE, NODE_METRIC, Node
from controllers.profiles.merge import ALL, GROUPS, Evidence
from controllers.profiles.pair_sums import PairSums, Reported
from controllers.profiles.usual_values import FleetValues
from controllers.runtime.view import Projection
from controllers.runtime.writes import kind_name
from detector.histograms import Values

_log = logging.getLogger(__name__)

LONGEST_SECONDS = 300.0
"""A report stands for no more than this: what a node did while it was silent is not known."""
MOST_WORKLOADS = 60_000
KEPT_SECONDS = 15 * 86_400.0
"""A workload that no report named for this long is forgotten, and its number given to another; its profile goes before
(`keep_seconds`), and what was told of it weighs less than a quarter."""
QUIET_EVERY = 10
"""Of this many reports, one tells of a victim that lost nothing."""
MOST_CAUGHT_UP = 4
"""A report that is taken stands for so many of these at most: one pod's neighbours are not to tell of a month."""
MOST_ROWS = 50_000
"""Of one report; which victims are left out then differs from report to report."""
MOST_WAITED = 1e4
"""Seconds a second that a pod may state."""
HALF_LIFE_SECONDS = 7 * 86400.0
AGED_EVERY_SECONDS = 3600.0
SKEW_SECONDS = 300.0
"""A report from further ahead of the manager's time than this is not taken in."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known at one moment; the sums are of the moment at which they are asked for."""

    workloads: Sequence[str]
    """Names by number."""
    sums: PairSums
    usual: FleetValues
    heard_seconds: Mapping[str, float]
    """Time of the last report that names a workload."""
    reports: int
    refused: int
    """Pods of workloads for which there was no room."""


_CPU = RESOURCES.index("cpu")


class _Running(NamedTuple):
    """A pod of a known workload in a report."""

    number: int
    """Of the workload."""
    share: float
    """Of the node's CPUs."""
    waited: float
    """Seconds a second; NaN where that is not told."""
    verdicts: list[WireVerdict]


class Observations(Projection[Observed]):
    """Sums over all nodes, in this process; profiles published before are what a restart begins with."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, NODE_METRIC)

    def __init__(self) -> None:
        self._wanted = False
        self._warned: set[str] = set()
        """What was left out and said to be."""
        self._cores: dict[str, float] = {}
        self._last: dict[str, float] = {}
        """Time of each node's newest report."""
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        """By number; empty where the workload was forgotten."""
        self._free: list[int] = []
        """Numbers of these."""
        self._heard_seconds: dict[str, float] = {}
        self._unlearned: OrderedDict[str, None] = OrderedDict()
        """Names of these that have no number; the one that was not heard for longest comes first."""
        self._suffers: dict[tuple[int, int], bool] = {}
        """Workload and resource of all that ever lost; whether the last loss was known by correlation only."""
        self._quiet: NDArray[np.float32] = np.zeros((0, len(RESOURCES)), np.float32)
        """Time by workload and resource without a loss that no report taken stands for yet."""
        self._sums = PairSums()
        self._usual = FleetValues()
        self._reports = 0
        self._refused = 0
        self._since_aged_seconds = 0.0
        """Mean over the nodes of the time that their reports stood for since the sums were aged."""

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in nodes and reports."""
        if kind_name(resource) == kind_name(NODE):
            for change in changes:
                self._node(change.key.name, change.new)
            return
        if not self._wanted:
            return
        for change in changes:
            if change.new is None:
                self._last.pop(change.key.name, None)
            else:
                self._report(change.key.name, change.new)

    def value(self) -> Observed:
        """Return what is known; from here on reports are taken in."""
        self._wanted = True
        refused = {"workloads": self._refused, "pairs": self._sums.dropped, "usual values": self._usual.refused}
        for what, count in refused.items():
            if count and what not in self._warned:
                self._warned.add(what)
                _log.warning("%d %s that nodes report were left out, for want of room or sense", count, what)
        return Observed(self._names, self._sums, self._usual, self._heard_seconds, self._reports, self._refused)

    def _node(self, name: str, node: Node | None) -> None:
        if node is None:
            self._cores.pop(name, None)
            self._usual.shifts.forget(name)
            return
        try:
            self._cores[name] = float(parse_quantity(node.status.capacity.get(CPU, 0), 1000)) / 1000
        except QuantityError:
            self._cores.pop(name, None)

    def _report(self, name: str, metric: NodeMetric) -> None:
        time, before = epoch_seconds(metric.status.update_time), self._last.get(name)
        # One clock that is ahead would age what all other nodes told.
        if time is None or time > self.now + SKEW_SECONDS:
            return
        self._last[name] = time
        cores = self._cores.get(name, 0.0)
        # The first report has no begin; one that is not newer than the last one tells of a clock, not of a time.
        if before is None or time <= before or cores <= 0:
            return
        self._reports += 1
        seconds = min(time - before, LONGEST_SECONDS)
        time = min(time, self.now)
        self._age(seconds, time)
        for pod in metric.status.pods_metric:
            self._hear((pod.extensions or {}).get(EXTENSION_WORKLOAD), time)
        self._pairs(metric, name, seconds, cores)
        self._usual_values(metric, name, time)

    def _hear(self, name: Any, time: float) -> None:
        heard = self._heard_seconds
        if not isinstance(name, str) or (name not in heard and workload_named(name) is None):
            return
        if name not in heard and len(heard) >= MOST_WORKLOADS:
            # What is learned of a workload goes with its name: of those only silence takes it.
            if not self._unlearned:
                return
            oldest, _ = self._unlearned.popitem(last=False)
            del heard[oldest]
        heard[name] = max(time, heard.get(name, time))
        if name not in self._numbers:
            self._unlearned[name] = None
            self._unlearned.move_to_end(name)

    def _age(self, seconds: float, time: float) -> None:
        # By what all nodes reported: a single node's clock moves it by its share of the fleet.
        self._since_aged_seconds += seconds / len(self._last)
        if self._since_aged_seconds >= AGED_EVERY_SECONDS:
            factor = 0.5 ** (self._since_aged_seconds / HALF_LIFE_SECONDS)
            self._sums.age(factor)
            self._quiet *= np.float32(factor)
            self._since_aged_seconds = 0.0
            self._forget(time - KEPT_SECONDS)

    def _forget(self, before_seconds: float) -> None:
        """Forget the workloads that were not heard of since, such as jobs of names that never come again."""
        self._heard_seconds = {name: at for name, at in self._heard_seconds.items() if at >= before_seconds}
        self._unlearned = OrderedDict.fromkeys(name for name in self._unlearned if name in self._heard_seconds)
        gone = [number for name, number in self._numbers.items() if name not in self._heard_seconds]
        if not gone:
            return
        for number in gone:
            del self._numbers[self._names[number]]
            self._names[number] = ""
        self._free += gone
        numbers = np.array(gone, np.int64)
        self._sums.forget(numbers)
        self._quiet[numbers[numbers < len(self._quiet)]] = 0.0
        dropped = frozenset(gone)
        self._suffers = {key: each for key, each in self._suffers.items() if key[0] not in dropped}

    def _pairs(self, metric: NodeMetric, name: str, seconds: float, cores: float) -> None:
        running = [found for pod in metric.status.pods_metric if (found := self._pod(pod, cores)) is not None]
        if len(running) < 2:
            return
        numbers = np.array([each.number for each in running], np.int64)
        pressure = np.array([each.share for each in running])
        places: dict[int, list[int]] = {}
        for place, each in enumerate(running):
            places.setdefault(each.number, []).append(place)
        group = zlib.crc32(name.encode()) % GROUPS
        self._waits(running, numbers, pressure, Reported(0, _CPU, group, seconds, 0.0))
        self._count_quiet(running, numbers, seconds)
        # Not each tenth in turn: what neighbours do every ten minutes would be seen always or never.
        chance = zlib.crc32(f"{name} {metric.status.update_time}".encode())
        rows = 0
        for turn in range(len(running)):
            place = (turn + chance) % len(running)
            pod = running[place]
            stated = _stated(pod)
            for which, told_of in stated.items():
                self._suffers[pod.number, which] = told_of.correlated or not told_of.shares
            for which in range(len(RESOURCES)):
                verdict, known = stated.get(which), which == _CPU and not math.isnan(pod.waited)
                if verdict is None and (
                    known or (pod.number, which) not in self._suffers or (pod.number + chance) % QUIET_EVERY
                ):
                    continue
                correlated = self._suffers[pod.number, which]
                if known and correlated:
                    continue  # what was waited for all of them is told
                rows += len(running) - 1
                if rows > MOST_ROWS:
                    return
                stands_for = seconds if verdict is not None else self._catch_up(pod.number, which, seconds)
                others = np.arange(len(running)) != place
                told = Reported(pod.number, which, group, stands_for, pod.share)
                lost = pod.waited if known else _finite(verdict.lost_seconds_per_second) if verdict else 0.0
                losses = self._losses(verdict, lost, places, pressure, place)[others]
                if correlated:
                    self._correlated(told, numbers[others], pressure[others], lost)
                else:
                    self._sums.add(told, Evidence.DIRECT, numbers[others], pressure[others], losses)

    def _waits(self, running: Sequence[_Running], numbers: Any, pressure: Values, told: Reported) -> None:
        """Add what each pod waited for CPUs beside the pressure of all its neighbours."""
        waited = np.array([each.waited for each in running])
        known = np.isfinite(waited)
        if not known.any():
            return
        told = replace(told, victim=numbers[known], load=pressure[known])
        all_others = np.full(int(known.sum()), ALL, np.int64)
        self._sums.add(told, Evidence.DIRECT, all_others, pressure.sum() - pressure[known], waited[known])

    def _count_quiet(self, running: Sequence[_Running], numbers: Any, seconds: float) -> None:
        missing = len(self._names) - len(self._quiet)
        if missing > 0:
            more = np.zeros((max(missing, len(self._quiet) // 4), len(RESOURCES)), np.float32)
            self._quiet = np.concatenate([self._quiet, more])
        np.add.at(self._quiet, numbers, np.float32(seconds))
        for each in running:
            for which in _stated(each) if each.verdicts else ():
                self._quiet[each.number, which] -= seconds

    def _catch_up(self, number: int, which: int, seconds: float) -> float:
        """Return the time without a loss that a report which is taken stands for."""
        caught = min(float(self._quiet[number, which]), MOST_CAUGHT_UP * QUIET_EVERY * seconds)
        self._quiet[number, which] -= caught
        return max(caught, 0.0)

    def _losses(
        self,
        verdict: WireVerdict | None,
        lost: float,
        places: Mapping[int, Sequence[int]],
        pressure: Values,
        victim: int,
    ) -> Values:
        """Return what a victim lost to each pod: a culprit's pods share its part by their pressure.

        A neighbour that is not named counts as harmless. To divide what is left among these by their pressure would
        make all alike: it costs a tenth of the rank correlation of strengths (`python -m bench.profiles`).
        """
        losses = np.zeros(len(pressure))
        if verdict is None:
            return losses
        for culprit, stated in zip(verdict.culprits, verdict.shares, strict=False):
            share = min(max(_finite(stated), 0.0), 1.0)
            own = [place for place in places.get(self._numbers.get(culprit, -2), ()) if place != victim]
            whole = max(sum(float(pressure[place]) for place in own), 1e-12)
            for place in own:
                losses[place] += lost * share * pressure[place] / whole
        return losses

    def _correlated(self, told: Reported, numbers: Any, pressure: Values, lost: float) -> None:
        """Add a loss that is known as a whole beside the pressure of all neighbours, and the part of each in that."""
        whole = pressure.sum()
        self._sums.add(told, Evidence.CORRELATED, np.array([ALL]), np.array([whole]), np.array([lost]))
        self._sums.add(told, Evidence.CORRELATED, numbers, pressure, np.full(len(pressure), whole))

    def _pod(self, pod: PodUsage, cores: float) -> _Running | None:
        """Return what a report tells of a pod; None for no known workload."""
        stated = pod.extensions or {}
        workload = stated.get(EXTENSION_WORKLOAD)
        if not isinstance(workload, str) or workload_named(workload) is None:
            return None
        number = self._numbers.get(workload)
        if number is None:
            if len(self._numbers) >= MOST_WORKLOADS:
                self._refused += 1
                return None
            if not self._free:
                self._free.append(len(self._names))
                self._names.append("")
            number = self._numbers[workload] = self._free.pop()
            self._unlearned.pop(workload, None)
            self._names[number] = workload
        try:
            share = float(parse_quantity(pod.pod_usage.resources.get(CPU, 0), 1000)) / 1000 / cores
            listed = msgspec.convert(stated.get(EXTENSION_INTERFERENCE) or {}, WireExtension).verdicts
        except (QuantityError, msgspec.ValidationError):
            return None  # the node's account wrote it: it tells nothing
        return _Running(number, min(max(share, 0.0), 1.0), _waited(stated.get(EXTENSION_WAITED)), listed)

    def _usual_values(self, metric: NodeMetric, node: str, time: float) -> None:
        stated: Mapping[str, Any] = metric.status.extensions or {}
        try:
            listed = msgspec.convert(stated.get(EXTENSION_USUAL) or [], list[WireUsualValues])
        except msgspec.ValidationError:
            return
        for each in listed:
            self._hear(each.workload, time)
            self._usual.add(each, node, time)


def _waited(stated: object) -> float:
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not math.isfinite(stated):
        return math.nan
    return min(max(float(stated), 0.0), MOST_WAITED)


def _stated(pod: _Running) -> dict[int, WireVerdict]:
    """Return a pod's verdicts by resource."""
    return {RESOURCES.index(each.resource): each for each in pod.verdicts if each.resource in RESOURCES}


def _finite(number: float) -> float:
    return number if math.isfinite(number) and number > 0 else 0.0
