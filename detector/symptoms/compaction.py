"""Stalls of allocations that wait for compaction."""

from typing import ClassVar

from detector.memory_limits import BY_TAKEN, TAKEN, part_of_others
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class Compaction(Symptom):
    """The cgroup that fragmented memory is not observable; culprits are those that take pages while the node is short.

    The part of the cgroup's own pages in all that were taken is its own doing and does not count.
    """

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "compaction"
    columns: ClassVar[tuple[str, ...]] = ("memory.stall_compaction_ns", TAKEN)
    blame: ClassVar[BlameSource] = BY_TAKEN

    def sense(self, view: View) -> Signal | None:
        """Seconds stalled."""
        lost = view.lost_to_others("memory:compaction")
        return None if lost is None else Signal(lost * part_of_others(view))
