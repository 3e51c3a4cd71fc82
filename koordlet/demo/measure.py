"""Results of the demo as values: one for each phase, and the table that compares them. Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

QUANTILES = (0.5, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class DemoPhase:
    """One phase; times are seconds since it began."""

    name: str
    seconds: float
    at: Floats
    """Intended start of each request."""
    latency: Floats
    """Seconds; NaN where it was not answered."""
    blocks: int
    """Best-effort blocks done."""

    @property
    def quantiles(self) -> Floats:
        """Return p50, p99 and p99.9 in seconds; a request without an answer counts as slower than all others."""
        if not len(self.latency):
            return np.full(len(QUANTILES), np.nan)
        ranked = np.sort(np.where(np.isnan(self.latency), np.inf, self.latency))
        place = np.ceil(np.array(QUANTILES) * len(ranked)).astype(np.int64) - 1
        return np.asarray(ranked[np.clip(place, 0, len(ranked) - 1)], dtype=np.float64)

    @property
    def blocks_per_second(self) -> float:
        """Best-effort blocks per second."""
        return self.blocks / self.seconds


@dataclass(frozen=True, slots=True)
class DemoRow:
    """One row of the comparison."""

    name: str
    quantiles: Floats
    p99_ratio: float
    """Over that of the phase alone."""
    blocks_per_second: float
    work_ratio: float
    """Over that of the phase unprotected; NaN without one."""
    requests: int


def compare(phases: list[DemoPhase]) -> list[DemoRow]:
    """Return one row for each phase; the first is the service alone, the second unprotected."""
    rows = []
    for phase in phases:
        alone = phases[0].quantiles[1]
        free = phases[1].blocks_per_second if len(phases) > 1 else float("nan")
        rows.append(
            DemoRow(
                phase.name,
                phase.quantiles,
                float(phase.quantiles[1] / alone) if np.isfinite(alone) else float("nan"),
                phase.blocks_per_second,
                phase.blocks_per_second / free if free > 0 else float("nan"),
                len(phase.latency),
            )
        )
    return rows


def rolling_p99(at: Floats, latency: Floats, seconds: float, *, step: float = 0.5, span: float = 3.0) -> Floats:
    """Return the 99th percentile of the requests of the last `span` seconds, every `step`; shape (seconds / step,)."""
    ends = np.arange(step, seconds + step / 2, step)
    found = np.full(len(ends), np.nan)
    for number, end in enumerate(ends.tolist()):
        recent = latency[(at > end - span) & (at <= end)]
        recent = recent[np.isfinite(recent)]
        if len(recent):
            found[number] = np.quantile(recent, 0.99)
    return found
