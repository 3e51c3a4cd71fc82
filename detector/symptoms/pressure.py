"""Pressure stall information: some thread of the cgroup stalled, for any reason and by any culprit."""

from typing import ClassVar

import numpy as np

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import Signal, Symptom
from detector.view import View


class Pressure(Symptom):
    """Names no culprit. Own throttling is taken off the CPU's part, for no neighbour causes it.

    Pressure of a parent is its children's, so only leaves are judged.
    """

    resource: ClassVar[str] = "pressure"
    cause: ClassVar[str] = "stall"
    columns: ClassVar[tuple[str, ...]] = (
        "pressure.cpu_some_us",
        "pressure.memory_some_us",
        "pressure.io_some_us",
        "cpustat.throttled_ns",
    )
    default_rule: ClassVar[Rule | None] = Rule(
        threshold=0.2, qos_thresholds=BEST_EFFORT_THRESHOLDS, unless_measured=("cpu_contention",)
    )

    def sense(self, view: View) -> Signal | None:
        """The worst of the three resources."""
        parts = {column: view.rate(column) for column in self.columns[:3] if view.has(column)}
        if not parts:
            return None
        if view.has("pressure.cpu_some_us", "cpustat.throttled_ns"):
            cpu = parts["pressure.cpu_some_us"] - view.rate("cpustat.throttled_ns")
            parts["pressure.cpu_some_us"] = np.maximum(cpu, 0.0)
        worst = np.fmax.reduce(list(parts.values()))
        return Signal(np.where(view.tree.leaves, worst, np.nan), parts)
