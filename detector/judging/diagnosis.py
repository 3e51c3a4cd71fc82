"""Diagnosis of one cgroup in the newest tick: losses and threshold by rule, and the reason for no verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from api.verdicts import Culprit
from detector.attribution import Attribution
from detector.judging.engine import RuleEngine
from detector.judging.sensing import RuleTick
from detector.judging.verdict_rows import evidence_of


class Reason(StrEnum):
    """Reason that a rule has a verdict or none; the first that holds, in this order."""

    OPEN = "open"
    """A verdict is open."""
    NOT_SELECTED = "not-selected"
    """The rule is not about this cgroup."""
    SUPERSEDED = "superseded"
    """The host measures a symptom that sees more (`unless_measured`)."""
    NOT_MEASURED = "not-measured"
    """The host does not measure a symptom that the rule needs, or not for this cgroup."""
    BELOW_THRESHOLD = "below-threshold"
    BEYOND_SHARE = "beyond-share"
    """The loss is above the threshold, what of it lies below the cgroup's own share is not."""
    COOLING_DOWN = "cooling-down"
    """Above the threshold, but a verdict closed within the cool-down."""
    NOT_HELD = "not-held"
    """Above the threshold, not long enough yet."""


@dataclass(frozen=True, slots=True)
class SymptomDiagnosis:
    """One symptom of a rule."""

    name: str
    lost: float | None
    """Seconds per second; None where it is not measured."""
    exceeds: bool
    """True where the loss is at least the rule's threshold."""


@dataclass(frozen=True, slots=True)
class RuleDiagnosis:
    """One rule."""

    rule: str
    reason: Reason
    symptoms: tuple[SymptomDiagnosis, ...]
    threshold: float
    """Loss from which a symptom holds here, lower under suspicion, and higher in an early tick where it is small;
    infinite where the rule is not about the cgroup."""
    held_ticks: int
    """Ticks of the last `of_ticks` in which the rule held."""
    needed_ticks: int
    of_ticks: int
    cooldown_left_seconds: float
    is_open: bool
    counted: float = 0.0
    """Loss of the rule that counts against the threshold: without what lies beyond the cgroup's own share where the
    whole is above the closing threshold."""
    is_one_burst: bool = False
    """True where one tick more is needed, because the cgroup wanted no CPU just before those in which the rule held."""
    is_suspicious: bool = False
    """True where an anomaly model suspects the cgroup."""
    culprits: tuple[Culprit, ...] = ()
    """Culprits that a verdict would name now; empty without loss."""
    confidence: float = 0.0
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Evidence that a verdict would carry now."""


def diagnose(engine: RuleEngine, path: str) -> tuple[RuleDiagnosis, ...]:
    """Return a diagnosis by each rule in the newest tick; empty without such a tick or cgroup."""
    row = engine.tick.view.tree.row_of(path) if engine.tick else None
    if engine.tick is None or row is None:
        return ()
    return tuple(_diagnose_rule(engine, engine.tick, place, row) for place in range(len(engine.rules)))


def _diagnose_rule(engine: RuleEngine, tick: RuleTick, place: int, row: int) -> RuleDiagnosis:
    rule = engine.rules[place]
    limit = float(tick.eased[place, row])
    symptoms = tuple(_symptom(tick, name, row, limit) for name in rule.symptoms)
    cooling = int(engine.cooldown_left_ns(tick.now_ns)[place, row])
    measured = [each for each in symptoms if each.lost is not None]
    blamed, evidence = Attribution(), dict[str, float]()
    if measured:
        name = max(measured, key=lambda each: each.lost or 0.0).name
        rows = np.array([row], dtype=np.intp)
        blamed = tick.attributor.of(name, rows)[0]
        evidence = evidence_of(tick, rule, name, engine.symptoms[name], rows)[0]
    return RuleDiagnosis(
        rule=rule.name,
        reason=_reason(engine, tick, place, row),
        symptoms=symptoms,
        threshold=limit,
        held_ticks=int(engine.held[place, row]),
        needed_ticks=int(tick.needed[place, row]),
        of_ticks=rule.of_ticks,
        cooldown_left_seconds=cooling / 1e9,
        is_open=bool(engine.memory.is_open[place, row]),
        counted=float(np.nan_to_num(tick.counted[place, row])),
        is_one_burst=bool(engine.is_one_burst[place, row]),
        is_suspicious=bool(tick.suspicious[row]),
        culprits=blamed.culprits,
        confidence=blamed.confidence,
        evidence=evidence,
    )


def _symptom(tick: RuleTick, name: str, row: int, limit: float) -> SymptomDiagnosis:
    signal = tick.signals.get(name)
    lost = float("nan") if signal is None else float(signal.lost[row])
    known = np.isfinite(lost)
    return SymptomDiagnosis(name, lost if known else None, exceeds=bool(known and lost >= limit))


def _reason(engine: RuleEngine, tick: RuleTick, place: int, row: int) -> Reason:
    checks = (
        (Reason.OPEN, engine.memory.is_open[place, row]),
        (Reason.NOT_SELECTED, np.isinf(tick.limits[place, row])),
        (Reason.SUPERSEDED, tick.superseded[place, 0]),
        (Reason.NOT_MEASURED, np.isnan(tick.lost[place, row])),
        (Reason.BELOW_THRESHOLD, tick.lost[place, row] < tick.eased[place, row]),
        (Reason.BEYOND_SHARE, tick.counted[place, row] < tick.eased[place, row]),
        (Reason.COOLING_DOWN, engine.cooldown_left_ns(tick.now_ns)[place, row] > 0),
    )
    return next((reason for reason, holds in checks if holds), Reason.NOT_HELD)
