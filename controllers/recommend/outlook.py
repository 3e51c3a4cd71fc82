"""What is known of workloads' use, as its readers ask for it: sums, hourly forecasts, containers and pods. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster.resources import Key
from controllers.forecast.seasonal import SeasonalForecaster
from controllers.kinds import Pod
from controllers.recommend.on_demand import QuotaDemand, WaitLevels
from controllers.recommend.usage import Usage
from detector.histograms import Values

QUANTILE = 0.95
MIN_HOURS = 48
"""Hours of reports before a workload has a forecast."""


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


class ObservedUsage:
    """What is known of workloads, by their `Kind/namespace/name`. It goes on to change with each report."""

    def __init__(self) -> None:
        self.usage = Usage.compact()
        self.demand = QuotaDemand(self.usage.cpu)
        """Use plus time lost to the own quota, of reports that tell of both, by row of the usage."""
        self.waits = WaitLevels()
        """Waits for CPUs that neighbours held, by row of the usage."""
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
