"""Output of the engine: bindings to make, and the outcomes of attempts."""

from dataclasses import dataclass
from enum import StrEnum

from scheduler.cluster_state.columns import Row
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.cycle import ClassResult
from scheduler.framework import Attempt, Failure, Reason, Write


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A pod that holds its share of a row; the plugins in `class_result` take part in the steps that follow."""

    attempt: Attempt
    row: Row
    class_result: ClassResult
    node: str
    started: int = 0
    """Number of attempts that had begun when it was placed."""
    despite: tuple[Reason, ...] = ()
    """Reasons for which the row was a last resort."""

    @property
    def info(self) -> PodInfo:
        """The pod."""
        return self.attempt.pod


@dataclass(frozen=True, slots=True, eq=False)
class BindingPlan:
    """Writes that make a placement real, in order; the last one binds."""

    placed: Placed
    writes: tuple[Write, ...]


@dataclass(slots=True, eq=False)
class WaitingPod:
    """A placed pod held at Permit: the plugins that hold it, each with its deadline."""

    placed: Placed
    deadlines: dict[str, float]
    settled: bool = False
    """Every permit was given before; what it waits for now was begun by `settle`."""


class Result(StrEnum):
    """Result of an attempt, as the stock scheduler's metrics spell it."""

    SCHEDULED = "scheduled"
    UNSCHEDULABLE = "unschedulable"
    ERROR = "error"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, eq=False)
class AttemptOutcome:
    """Outcome of one attempt. `message` is the sentence of the condition; `failure` the reasons row by row.

    `despite` are the reasons for which the node of a pod that was bound was a last resort.
    """

    result: Result
    info: PodInfo
    node: str = ""
    message: str = ""
    attempts: int = 0
    first_seen: float = 0.0
    rejected_by: frozenset[str] = frozenset()
    failure: Failure | None = None
    victims: tuple[PodInfo, ...] = ()
    despite: tuple[Reason, ...] = ()
