"""Results of the self-test: what was measured, and the bounds within which it is right. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Outcome of one check."""

    RIGHT = "right"
    WRONG = "wrong"
    ABSENT = "absent"
    """The host cannot measure or stage it; the reason says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """One counter, moved by a stressor."""

    name: str
    status: Status
    unit: str = ""
    measured: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    """Bounds of what the stressor did, by a count that the probe has no part in."""
    reason: str = ""
    remedy: str = ""

    @property
    def expected(self) -> str:
        """The bounds as words."""
        if self.high == float("inf"):
            return f"at least {self.low:.6g} {self.unit}".rstrip()
        return f"{self.low:.6g} to {self.high:.6g} {self.unit}".rstrip()


def absent(name: str, reason: str, remedy: str = "") -> Result:
    """Return the result of a check that cannot be made here."""
    return Result(name, Status.ABSENT, reason=reason, remedy=remedy)


def held(
    name: str, measured: float, truth: float, unit: str, *, below: float = 0.1, above: float = 0.1, slack: float = 0.0
) -> Result:
    """Compare a figure with the truth: at most `below` of it less, `above` of it more, and `slack` units either way."""
    low, high = max(truth * (1 - below) - slack, 0.0), truth * (1 + above) + slack
    return within(name, measured, low, high, unit)


def within(name: str, measured: float, low: float, high: float, unit: str) -> Result:
    """Compare a figure with its bounds."""
    right = low <= measured <= high
    reason = "" if right else "the counter does not say what the stressor did; please report it with this output"
    return Result(name, Status.RIGHT if right else Status.WRONG, unit, measured, low, high, reason)
