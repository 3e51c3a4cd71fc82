"""Time held back by a CPU quota further up: the pod's, the slice's."""

from typing import ClassVar

from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class AncestorQuota(Symptom):
    """The limit is that of the nearest ancestor that was throttled in the tick; CPU time below it used it up."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "ancestor_quota"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.wait_ancestor_quota_ns",
        "throttle.throttled_ns",
        "cpustat.throttled_ns",
        "cpu.oncpu_ns",
    )
    # A quota that has just been set is told by the probe at once, by the kernel's files when their turn comes.
    blame: ClassVar[BlameSource] = BlameSource(ancestor_columns=columns[1:3], used=columns[3])

    def sense(self, view: View) -> Signal | None:
        """Seconds per second that runnable threads were held back by it."""
        column = "cpu.wait_ancestor_quota_ns"
        return Signal(view.rate(column)) if view.has(column) else None
