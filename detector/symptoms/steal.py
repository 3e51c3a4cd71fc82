"""CPU time that the hypervisor gave to other guests while the cgroup's threads were to run."""

from typing import ClassVar

import numpy as np

from api.verdicts import HYPERVISOR
from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class Steal(Symptom):
    """No cgroup's doing. The kernel says how much of each CPU was stolen, not on top of which thread, so each leaf's
    part is that of its CPU time: an estimate, never a confident one."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "steal"
    columns: ClassVar[tuple[str, ...]] = ("cpu.oncpu_ns", "cpustat.usage_ns")
    blame: ClassVar[BlameSource] = BlameSource(named=HYPERVISOR)
    default_rule: ClassVar[Rule | None] = Rule(
        threshold=0.1, qos_thresholds=BEST_EFFORT_THRESHOLDS, progress_ratio=0.1, ticks=3, of_ticks=3
    )

    def sense(self, view: View) -> Signal | None:
        """What was stolen, by the cgroup's part of the time that CPUs ran."""
        column = next((name for name in self.columns if view.has(name)), None)
        if column is None or view.stolen is None:
            return None
        lost = view.rate(column) * view.stolen
        return Signal(np.where(view.tree.leaves, lost, np.nan), measured=False)
