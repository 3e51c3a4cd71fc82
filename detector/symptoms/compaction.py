"""Stalls of allocations that wait for compaction."""

from typing import ClassVar

from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class Compaction(Symptom):
    """The cgroup that fragmented memory is not observable; culprits are correlated by the pages that they take."""

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "compaction"
    columns: ClassVar[tuple[str, ...]] = (
        "memory.stall_compaction_ns",
        "memory.pressure_pages",
    )
    blame: ClassVar[BlameSource] = BlameSource(suspects="memory.pressure_pages")

    def sense(self, view: View) -> Signal | None:
        """Seconds stalled."""
        lost = view.lost_to_others("memory:compaction")
        return None if lost is None else Signal(lost)
