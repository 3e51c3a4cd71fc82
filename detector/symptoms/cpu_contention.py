"""Waits for a CPU that another cgroup or a kernel thread held meanwhile."""

from typing import ClassVar

from detector.rules import NOT_BEST_EFFORT, Rule
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class CpuContention(Symptom):
    """Own threads and quotas are symptoms of their own, and a subtree of one's own is no neighbour."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "contention"
    columns: ClassVar[tuple[str, ...]] = ("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns", "cpu.oncpu_ns")
    blame: ClassVar[BlameSource] = BlameSource(table="cpu.blame")
    default_rule: ClassVar[Rule | None] = Rule(selector=NOT_BEST_EFFORT)

    def sense(self, view: View) -> Signal | None:
        """Neighbours' and the kernel's part of the wait."""
        lost = view.lost_to_others("cpu:neighbour", "cpu:kernel")
        return None if lost is None else Signal(view.by_others("cpu.blame", lost))
