"""Stalls in reclaim under a memory limit further up."""

from typing import ClassVar

from detector.memory_limits import BY_HELD
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class AncestorMemoryLimit(Symptom):
    """The limit is that of the nearest ancestor that has used it up; the memory charged below it fills it."""

    resource: ClassVar[str] = "memory"
    cause: ClassVar[str] = "ancestor_limit"
    columns: ClassVar[tuple[str, ...]] = (
        "memory.stall_ancestor_limit_ns",
        "memstat.limit_bytes",
        "memstat.usage_bytes",
    )
    blame: ClassVar[BlameSource] = BY_HELD

    def sense(self, view: View) -> Signal | None:
        """Seconds stalled."""
        lost = view.total("memory.stall_ancestor_limit_ns")
        return None if lost is None else Signal(lost)
