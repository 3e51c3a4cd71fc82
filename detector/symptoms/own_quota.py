"""Time held back by the cgroup's own CPU quota."""

from typing import ClassVar

from api.verdicts import OWN_QUOTA
from detector.symptom import BlameSource, Signal, Symptom
from detector.view import View


class OwnQuota(Symptom):
    """Thread time where the cpu probe sees it, else the kernel's own account, which is a sum over CPUs."""

    resource: ClassVar[str] = "cpu"
    cause: ClassVar[str] = "own_quota"
    columns: ClassVar[tuple[str, ...]] = (
        "cpu.wait_own_quota_ns",
        "cpustat.throttled_ns",
        "cpustat.periods",
        "cpustat.throttled_periods",
    )
    blame: ClassVar[BlameSource] = BlameSource(named=OWN_QUOTA)

    def sense(self, view: View) -> Signal | None:
        """Throttled seconds per second."""
        for column in ("cpu.wait_own_quota_ns", "cpustat.throttled_ns"):
            if view.has(column):
                return Signal(view.rate(column))
        return None
