"""Rows of workloads, of their containers and of their pods' containers: given, and given again once free. Pure."""

import logging
import math
from collections.abc import Iterable

import numpy as np

from controllers.recommend.outlook import ObservedUsage
from detector.histograms import Rows, Values

_log = logging.getLogger(__name__)

MOST_WORKLOADS = 60_000
"""Workloads that are followed; `python -m bench.workload_usage` prints the memory of one."""
MOST_CONTAINERS = 50
"""Containers by name that are followed of one workload."""
LEAST_ROOM = 64


class WorkloadRows:
    """Rows of `ObservedUsage`."""

    def __init__(self, found: ObservedUsage) -> None:
        self.peaks: Values = np.zeros(0)
        """Of the hour under way, by workload's row; NaN before the first report of it."""
        self._found = found
        self._free_streams: list[int] = []
        self._free_aggregates: list[int] = []
        self._free_rows: list[int] = []
        self._refused_hour = -1
        """Hour in which the log last told of workloads without room."""
        self._taken = 0
        """Aggregates that were ever used."""

    def of(self, workload: str) -> int | None:
        """Return the row of a workload, made where it is new; None where there is no room."""
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
        if row >= len(self.peaks):
            # By a quarter: twice the rows would be for the most part empty memory.
            self._grow(max(5 * len(self.peaks) // 4, LEAST_ROOM))
        found.rows[workload] = row
        return row

    def aggregate(self, row: int, container: str) -> int | None:
        """Return the aggregate of a workload's container, made where it is new; None where there is no room."""
        of_row = self._found.aggregates.setdefault(row, {})
        if container not in of_row and len(of_row) >= MOST_CONTAINERS:
            return None
        if container not in of_row and self._free_aggregates:
            of_row[container] = self._free_aggregates.pop()
        elif container not in of_row:
            of_row[container] = self._taken
            self._taken += 1
        return of_row[container]

    def open(self, aggregates: Rows) -> Rows:
        """Return a stream of each aggregate, those of pods that are gone first."""
        used = min(len(self._free_streams), len(aggregates))
        again = np.array([self._free_streams.pop() for _ in range(used)], np.intp)
        self._found.usage.reopen(again, aggregates[:used])
        return np.concatenate([again, self._found.usage.open(aggregates[used:])])

    def close(self, streams: Iterable[int]) -> None:
        """Have other pods use some streams."""
        self._free_streams += streams

    def forget(self, workload: str) -> None:
        """Forget a workload without pods; another may have its rows."""
        found = self._found
        row = found.rows.pop(workload)
        for aggregate in found.aggregates.pop(row, {}).values():
            found.usage.clear(aggregate)
            found.demand.clear(aggregate)
            found.waits.clear(aggregate)
            self._free_aggregates.append(aggregate)
        found.forecaster.clear(np.array([row], np.intp))
        found.hours[row], found.total_cores[row], found.throttled[row] = 0.0, 0.0, math.nan
        self._free_rows.append(row)

    def _grow(self, size: int) -> None:
        found = self._found
        missing = size - len(self.peaks)
        found.forecaster.resize(size)
        self.peaks = np.append(self.peaks, np.full(missing, np.nan))
        found.throttled = np.append(found.throttled, np.full(missing, np.nan))
        found.outlook = found.outlook._replace(total_cores=np.append(found.total_cores, np.zeros(missing)))
        for name in ("hours", "heard_seconds"):
            setattr(found, name, np.append(getattr(found, name), np.zeros(missing)))
