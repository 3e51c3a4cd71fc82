"""Stalls to find memory because the node is short of it."""

from typing import ClassVar

from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class Reclaim(Symptom):
    """The part owed to the cgroup's own allocations is no neighbour's doing and does not count."""

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "reclaim"
    columns: ClassVar[tuple[str, ...]] = (
        "memory.stall_global_ns",
        "memory.stall_global_self_ns",
        "memory.pressure_pages",
    )
    blame: ClassVar[BlameSource] = BlameSource(table="memory.blame", suspects="memory.pressure_pages")

    def sense(self, view: View) -> Signal | None:
        """Seconds stalled for pages that others took."""
        lost = view.lost_to_others("memory:global")
        return None if lost is None else Signal(view.by_others("memory.blame", lost))
