"""Outcomes of a binding or an eviction: refusals that a caller acts on, so values, not errors."""

from dataclasses import dataclass
from enum import StrEnum


class BindOutcome(StrEnum):
    """Outcome of a binding; in every case the pod is bound at most once.

    Only BOUND means that the pod runs where asked. The others name the reason, and nothing is retried:
    the pod's own state decides what the scheduler does next.
    """

    BOUND = "bound"
    ELSEWHERE = "elsewhere"
    """The pod is bound to another node."""
    REPLACED = "replaced"
    """The name belongs to a pod with another uid."""
    GONE = "gone"
    """The pod is deleted or being deleted."""


class EvictionOutcome(StrEnum):
    """Outcome of an eviction request."""

    EVICTED = "evicted"
    """The server accepted it; the pod terminates within its grace period."""
    GONE = "gone"
    """The pod, or the pod of that uid, is not there any more."""
    BUDGET = "budget"
    """A PodDisruptionBudget forbids it at this moment; `retry_after_seconds` may say when to ask again."""
    AMBIGUOUS_BUDGETS = "ambiguous-budgets"
    """More than one PodDisruptionBudget covers the pod; the server refuses until an administrator changes that."""


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """Outcome with the server's message; `retry_after_seconds` only where the server gave it."""

    outcome: EvictionOutcome
    message: str = ""
    retry_after_seconds: float | None = None

    @property
    def accepted(self) -> bool:
        """True when the pod goes away: evicted by this call or gone already."""
        return self.outcome in (EvictionOutcome.EVICTED, EvictionOutcome.GONE)
