"""Waits for a CPU that stood idle because the other hardware thread of its core ran a group that shares with none."""

from typing import ClassVar

import numpy as np

from detector.rules import BEST_EFFORT_THRESHOLDS, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View

WAITED = "cpu.wait_idle_ns"
FORCED = "cpustat.forced_idle_ns"


class ForcedIdle(Symptom):
    """Core scheduling keeps a hardware thread idle while the one beside it runs a task of another group.

    A wait behind an idle CPU is mostly the time that it takes to wake up. It is told as far as others forced hardware
    threads idle for as long, by the kernel's account, which the kernel keeps with schedstats alone: an estimate.
    """

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "forced_idle"
    columns: ClassVar[tuple[str, ...]] = (WAITED, FORCED)
    blame: ClassVar[BlameSource] = BlameSource(takers=FORCED, takers_below=True)
    default_rule: ClassVar[Rule | None] = Rule(threshold=0.1, qos_thresholds=BEST_EFFORT_THRESHOLDS)

    def sense(self, view: View) -> Signal | None:
        """Waits behind idle CPUs, at most what other leaves forced idle."""
        if not view.has(*self.columns):
            return None
        leaves = view.tree.leaves
        forced = np.where(leaves, np.nan_to_num(view.rate(FORCED)), 0.0)
        by_others = np.maximum(float(forced.sum()) - forced, 0.0)
        return Signal(np.where(leaves, np.minimum(view.rate(WAITED), by_others), np.nan), measured=False)
