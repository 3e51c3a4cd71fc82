"""Projection: the peak that each node's use is forecast to reach in this hour; learned once it was asked for."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from api.crds import NodeMetric
from api.kube.resources import CPU, MEMORY, QuantityError, parse_quantity
from api.kube.times import epoch_seconds
from cluster.resources import Resource
from cluster.store import StoreDelta
from controllers.capacity.pods import Amounts
from controllers.forecast.seasonal import SeasonalForecaster
from controllers.kinds import NODE_METRIC
from controllers.runtime.view import Projection
from detector.histograms import Rows

HOUR_SECONDS = 3600.0
QUANTILE = 0.95
MIN_HOURS = 48
"""Hours of reports before a node has a forecast."""
_WIDTH = 2
"""Rows of the forecaster for each node: cpu, memory."""


V = TypeVar("V")


class _Forecasts(Projection[V]):
    """State of the forecasts, in this process: after a restart nodes have none for two days."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE_METRIC,)

    def __init__(self) -> None:
        self._wanted = False
        self._forecaster = SeasonalForecaster(0, QUANTILE)
        self._place: dict[str, int] = {}
        self._free: list[int] = []
        self._hour: dict[str, int] = {}
        """Hour under way by node, since the epoch."""
        self._peak: dict[str, tuple[float, float]] = {}
        self._hours: dict[str, int] = {}
        self._said: dict[str, Amounts] = {}
        """For the hour under way."""
        self._following: dict[str, Amounts] = {}
        """For the hour after it."""
        self._now: dict[str, tuple[float, float]] = {}
        """Of the last report."""
        self._value: V | None = None
        """Present table; None until it is asked for after a change."""

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in reports; an hour is learned with the first report of a later one."""
        if not self._wanted:
            return
        self._value = None
        for change in changes:
            if change.new is None:
                self._forget(change.key.name)
            else:
                self._report(change.key.name, change.new)

    def value(self) -> V:
        """Return the present table; from here on reports are taken in."""
        self._wanted = True
        if self._value is None:
            self._value = self._made()
        return self._value

    @abstractmethod
    def _made(self) -> V:
        """Return a new table."""

    def _report(self, name: str, metric: NodeMetric) -> None:
        time = epoch_seconds(metric.status.update_time)
        if time is None or metric.status.node_metric is None:
            return
        try:
            amounts = self._amounts(metric)
        except QuantityError:
            return  # the node's account wrote it: its forecast stays as it was
        self._now[name] = amounts
        hour = int(time // HOUR_SECONDS)
        before = self._hour.get(name)
        if before is not None and hour > before:
            self._learn(name, before, hour)
        if before is None or hour > before:
            self._hour[name], self._peak[name] = hour, amounts
        elif hour == before:
            peak = self._peak[name]
            self._peak[name] = max(peak[0], amounts[0]), max(peak[1], amounts[1])
        else:
            # The node's clock was ahead when it named the hour under way: what it said of that hour is not learned.
            self._hour[name], self._peak[name] = hour, amounts

    def _learn(self, name: str, ended: int, hour: int) -> None:
        rows = self._rows(name)
        self._forecaster.step(rows, np.array(self._peak[name]), ended)
        self._hours[name] = self._hours.get(name, 0) + 1
        if self._hours[name] >= MIN_HOURS:
            self._said[name], self._following[name] = self._bound(rows, hour), self._bound(rows, hour + 1, 2)

    def _bound(self, rows: Rows, hour: int, ahead: int = 1) -> Amounts:
        cpu, memory = self._forecaster.forecast(rows, hour, ahead).bound
        return int(cpu), int(memory)

    def _amounts(self, metric: NodeMetric) -> tuple[float, float]:
        """Return millicores and bytes of a report that has a node's usage. Raises QuantityError."""
        used = metric.status.node_metric.node_usage.resources if metric.status.node_metric else {}
        return float(parse_quantity(used.get(CPU, 0), 1000)), float(parse_quantity(used.get(MEMORY, 0)))

    def _rows(self, name: str) -> Rows:
        place = self._place.get(name)
        if place is None:
            place = self._free.pop() if self._free else len(self._forecaster) // _WIDTH
            self._place[name] = place
            self._forecaster.resize(_WIDTH * (place + 1))
        return np.arange(_WIDTH * place, _WIDTH * (place + 1))

    def _forget(self, name: str) -> None:
        self._hour.pop(name, None)
        self._peak.pop(name, None)
        self._hours.pop(name, None)
        self._said.pop(name, None)
        self._following.pop(name, None)
        self._now.pop(name, None)
        place = self._place.pop(name, None)
        if place is not None:
            self._forecaster.clear(np.arange(_WIDTH * place, _WIDTH * (place + 1)))
            self._free.append(place)


class NodeForecasts(_Forecasts[Mapping[str, Amounts]]):
    """Forecast peaks by node in millicores and bytes; a node without enough history is missing."""

    def _made(self) -> Mapping[str, Amounts]:
        """Return the forecasts for the hour under way."""
        return dict(self._said)


@dataclass(frozen=True, slots=True)
class ServicePeak:
    """CPU of a node outside its best-effort pods, in millicores: of the last report, and forecast peaks by hour."""

    now_millicores: float
    peaks: Mapping[int, int]
    """By hour since the epoch: the one under way and the one after it."""

    def growth_millicores(self, now: float, lead_seconds: float) -> float:
        """Return what is forecast to come on top of the present use within `lead_seconds`."""
        hours = {int(now // HOUR_SECONDS), int((now + lead_seconds) // HOUR_SECONDS)}
        coming = max((self.peaks[hour] for hour in hours if hour in self.peaks), default=0)
        return max(coming - self.now_millicores, 0.0)


class ServiceForecasts(_Forecasts[Mapping[str, ServicePeak]]):
    """Forecast peaks of what nodes use besides best-effort pods; a node without enough history is missing."""

    def _made(self) -> Mapping[str, ServicePeak]:
        """Return present use and forecasts."""
        return {
            name: ServicePeak(
                self._now[name][0], {self._hour[name]: cpu, self._hour[name] + 1: self._following[name][0]}
            )
            for name, (cpu, _) in self._said.items()
        }

    def _amounts(self, metric: NodeMetric) -> tuple[float, float]:
        cpu, memory = super()._amounts(metric)
        batch = [each.pod_usage.resources for each in metric.status.pods_metric if each.qos == "BE"]
        for used in batch:
            cpu -= parse_quantity(used.get(CPU, 0), 1000)
            memory -= parse_quantity(used.get(MEMORY, 0))
        return max(cpu, 0.0), max(memory, 0.0)
