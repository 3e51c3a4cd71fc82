"""Phases of a PodGroup, from the counts of its pods by state."""

from dataclasses import dataclass
from enum import StrEnum

STALE_START_SECONDS = 48 * 3600.0
"""A group with all scheduled and nothing running is left alone when it took longer than this to start."""


class GangPhase(StrEnum):
    """`status.phase` of a PodGroup."""

    NEW = ""
    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    FINISHED = "Finished"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """Never left again."""
        return self in (GangPhase.FINISHED, GangPhase.FAILED)


@dataclass(frozen=True, slots=True)
class Counts:
    """Pods of one group by state; `bound` includes running and finished ones."""

    pods: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


def next_phase(phase: GangPhase, minimum: int, counts: Counts) -> GangPhase:
    """The phase that follows; the caller writes it and asks again until it stays.

    Terminal phases never change. A minimum of zero or less keeps the group pending.
    """
    if phase.terminal:
        return phase
    if phase is GangPhase.NEW:
        return GangPhase.PENDING
    if counts.pods == 0:
        return GangPhase.PENDING
    if minimum > 0 and counts.succeeded >= minimum:
        return GangPhase.FINISHED
    if minimum > 0 and counts.failed > 0 and counts.failed + counts.running + counts.succeeded >= minimum:
        return GangPhase.FAILED
    if phase is GangPhase.PENDING:
        return GangPhase.PRE_SCHEDULING if 0 < minimum <= counts.pods else GangPhase.PENDING
    if counts.bound < minimum:
        return GangPhase.SCHEDULING
    if phase in (GangPhase.SCHEDULED, GangPhase.RUNNING) and counts.succeeded + counts.running >= minimum:
        return GangPhase.RUNNING
    return GangPhase.SCHEDULED


def left_alone(phase: GangPhase, minimum: int, counts: Counts, seconds_to_start: float | None) -> bool:
    """True for groups that need no further look: terminal, or scheduled long ago and never running."""
    stuck = counts.bound == minimum and counts.running == 0
    return phase.terminal or (stuck and seconds_to_start is not None and seconds_to_start > STALE_START_SECONDS)
