"""A look at the newest tick of one cgroup: what each rule saw, and in one word why there is no verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.verdicts import Culprit


class Why(StrEnum):
    """Why a rule tells a verdict or none; the first that holds, in this order."""

    OPEN = "open"
    """A verdict stands."""
    NOT_SELECTED = "not-selected"
    """The rule is not about this cgroup."""
    RULE_RESTS = "rule-rests"
    """The host measures a symptom that sees more (`unless_measured`)."""
    NOT_MEASURED = "not-measured"
    """The host does not measure a symptom that the rule needs, or not for this cgroup."""
    COOLING_DOWN = "cooling-down"
    """A verdict closed a moment ago."""
    BELOW_THRESHOLD = "below-threshold"
    NOT_HELD = "not-held"
    """Above the threshold, not long enough yet."""


@dataclass(frozen=True, slots=True)
class SymptomLook:
    """One symptom of a rule."""

    name: str
    lost: float | None
    """Seconds per second; None where it is not measured."""
    exceeds: bool
    """Whether the loss is at least the rule's threshold."""


@dataclass(frozen=True, slots=True)
class RuleLook:
    """One rule."""

    rule: str
    why: Why
    symptoms: tuple[SymptomLook, ...]
    threshold: float
    """Loss from which a symptom holds for this cgroup, lower under suspicion, infinite where the rule is not about it."""
    held_ticks: int
    """Ticks of the last `of_ticks` in which the rule held."""
    needed_ticks: int
    of_ticks: int
    cooldown_left_seconds: float
    is_open: bool
    is_suspicious: bool = False
    """Whether an anomaly model finds the cgroup strange."""
    culprits: tuple[Culprit, ...] = ()
    """Who a verdict would name now; empty without loss."""
    confidence: float = 0.0
    evidence: Mapping[str, float] = field(default_factory=dict)
    """What a verdict would carry now."""
