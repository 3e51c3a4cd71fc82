"""Waits for a CPU that another cgroup or a kernel thread held meanwhile."""

from typing import ClassVar

import numpy as np

from detector.rules import NOT_BEST_EFFORT, Rule
from detector.symptom import BlameSource, Signal, Symptom, ratio
from detector.view import View

OTHERS = ("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns")
EXPLAINED = (*OTHERS, "cpu.wait_self_ns", "cpu.wait_idle_ns")
"""Waits of which the probe knows who had the CPU."""


class CpuContention(Symptom):
    """Own threads and quotas are symptoms of their own, and a subtree of one's own is no neighbour.

    A wait of unknown cause is no loss to others, for nothing shows it; but the same part of it may be as of the wait
    that is explained, so culprits share in the sum of both, and what is unknown lowers the confidence.
    """

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "contention"
    columns: ClassVar[tuple[str, ...]] = (*EXPLAINED, "cpu.wait_unknown_ns", "cpu.oncpu_ns", "cpu.wait_count")
    blame: ClassVar[BlameSource] = BlameSource(table="cpu.blame")
    default_rule: ClassVar[Rule | None] = Rule(selector=NOT_BEST_EFFORT, progress_ratio=0.02, least_ratio=0.4)
    usual: ClassVar[str] = "cpu_contention"

    def sense(self, view: View) -> Signal | None:
        """Neighbours' and the kernel's part of the wait."""
        seen = view.cpu_contention
        if seen is None:
            return None
        explained = view.total(*EXPLAINED)
        if explained is None or not view.has("cpu.wait_unknown_ns"):
            return Signal(seen)
        unknown = np.nan_to_num(ratio(view.rate("cpu.wait_unknown_ns"), explained))
        return Signal(seen, whole=seen * (1.0 + unknown))
