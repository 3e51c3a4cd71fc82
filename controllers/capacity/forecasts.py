"""Projection: the peak that each node's use is forecast to reach in this hour; learned once it was asked for."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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


class NodeForecasts(Projection[Mapping[str, Amounts]]):
    """Forecast peaks by node in millicores and bytes; a node without enough history is missing.

    State lives in this process: after a restart nodes have no forecast for two days.
    """

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

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in reports; an hour is learned with the first report of a later one."""
        if not self._wanted:
            return
        for change in changes:
            if change.new is None:
                self._forget(change.key.name)
            else:
                self._report(change.key.name, change.new)

    def value(self) -> Mapping[str, Amounts]:
        """Return the forecasts for the hour under way."""
        self._wanted = True
        return dict(self._said)

    def _report(self, name: str, metric: NodeMetric) -> None:
        time = epoch_seconds(metric.status.update_time)
        if time is None or metric.status.node_metric is None:
            return
        used = metric.status.node_metric.node_usage.resources
        try:
            amounts = (float(parse_quantity(used.get(CPU, 0), 1000)), float(parse_quantity(used.get(MEMORY, 0))))
        except QuantityError:
            return  # the node's account wrote it: its forecast stays as it was
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
            cpu, memory = self._forecaster.forecast(rows, hour).bound
            self._said[name] = int(cpu), int(memory)

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
        place = self._place.pop(name, None)
        if place is not None:
            self._forecaster.clear(np.arange(_WIDTH * place, _WIDTH * (place + 1)))
            self._free.append(place)
