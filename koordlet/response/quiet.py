"""Whether a culprit is quiet: gone, or wanting almost nothing although its rungs would allow more."""

from collections.abc import Sequence
from dataclasses import dataclass

from koordlet.response.applied_rung import AppliedRung
from koordlet.response.observation import Observation
from koordlet.response.settings import ResponseSettings

_MOST_SECONDS = 8.0
"""Upper bound of the time that a culprit must be quiet, however often it came back."""
_GONE_RATIO = 0.001
"""Use of a culprit, relative to its peak, below which no process of it runs: the idle class leaves more than this even
on a busy node (weight 3 beside 1024). Where waits are measured, wishes are compared instead."""


@dataclass
class QuietWatch:
    """How long one culprit has been quiet on one resource."""

    culprit: str
    resource: str
    since_seconds: float | None = None

    def is_quiet(
        self,
        observation: Observation,
        applied_rungs: Sequence[AppliedRung],
        settings: ResponseSettings,
        *,
        hold_seconds: float,
    ) -> bool:
        """Return whether it is gone, or quiet for long enough to be released.

        A culprit that is held back waits instead of running, and waits for its quota: it is not quiet.
        """
        if not applied_rungs:
            return False
        if self.culprit not in observation.rows:
            return True
        used = max(applied.peak_wanted for applied in applied_rungs)
        ratio = settings.quiet_ratio
        if self.resource == "blockio":
            if any(applied.limit_state is not None for applied in applied_rungs):
                used = min(applied.allowed_use() for applied in applied_rungs)
        elif observation.cpu_waits is None:
            ratio = min(ratio, _GONE_RATIO)
        if used <= 0 or self.wanted(observation) > used * ratio:
            self.since_seconds = None
            return False
        if self.since_seconds is None:
            self.since_seconds = observation.now_seconds
        growth = hold_seconds / settings.hold_seconds
        patience = min(settings.quiet_seconds * growth, max(_MOST_SECONDS, settings.quiet_seconds))
        return observation.now_seconds - self.since_seconds >= patience

    def wanted(self, observation: Observation) -> float:
        """Return what the culprit uses or waits for: bytes/s of block IO, else cores; 0 for memory, which has no such
        rate."""
        row = observation.rows.get(self.culprit)
        if row is None or self.resource == "memory":
            return 0.0
        if self.resource == "blockio":
            return float(observation.io_bytes_per_second[row])
        return observation.wanted_by(self.culprit)
