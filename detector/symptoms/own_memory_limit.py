"""Stalls in reclaim under the cgroup's own memory limit."""

from typing import ClassVar

from api.verdicts import OWN_LIMIT
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class OwnMemoryLimit(Symptom):
    """Self-inflicted, or a limit set too low."""

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "own_limit"
    columns: ClassVar[tuple[str, ...]] = ("memory.stall_own_limit_ns",)
    blame: ClassVar[BlameSource] = BlameSource(named=OWN_LIMIT)

    def sense(self, view: View) -> Signal | None:
        """Seconds stalled."""
        lost = view.total("memory.stall_own_limit_ns")
        return None if lost is None else Signal(lost)
