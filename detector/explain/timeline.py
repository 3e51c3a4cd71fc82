"""Timeline of a story as arrays: losses by cause, states of rules, culprits of the leading rule. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from api.loss import CAUSED_BY_OTHERS, LOSS_CAUSES
from api.verdict_text import culprit_in_words
from detector.arrays import Floats
from detector.explain.story import Story, StoryTick
from detector.explain.text import lost_of
from detector.judging.diagnosis import Reason, RuleDiagnosis

_MIN_PART = 0.005
"""A cause below this part of all that was lost is left out."""
_MAX_CULPRITS = 6
_MAX_RATIO = 20.0
"""Times the threshold beyond which a tick makes a rule no more the leading one; an open verdict counts as much."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Span:
    """A rule in one state, in seconds since the recording began."""

    start: float
    end: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of one length, a value for each tick; times in seconds since the recording began."""

    seconds: Floats
    at: float
    causes: Mapping[str, Floats]
    """Lost seconds per second; causes by others first, then the rest, the largest first."""
    rules: Mapping[str, Sequence[Span]]
    """Spans of rules that were open or nearly so; a rule below its threshold has none."""
    leading: str
    """The rule that lost most in relation to its threshold; empty where none measured a loss."""
    threshold: Floats
    """Of the leading rule."""
    lost: Floats
    """Loss that the leading rule judged."""
    culprits: Mapping[str, Floats]
    """Shares of that loss, 0..1, by name, the largest first; the rest to 1 has no culprit."""


def timeline(story: Story) -> Timeline:
    """The arrays of a story."""
    seconds = np.array([(tick.wall_ns - story.first_ns) / 1e9 for tick in story.ticks])
    leading = _leading(story)
    diagnoses = [_of_rule(tick, leading) for tick in story.ticks]
    return Timeline(
        seconds,
        (story.at_ns - story.first_ns) / 1e9,
        _causes(story),
        _rules(story, seconds),
        leading,
        np.array([np.nan if diagnosis is None else diagnosis.threshold for diagnosis in diagnoses]),
        np.array([np.nan if diagnosis is None else (lost_of(diagnosis) or 0.0) for diagnosis in diagnoses]),
        _culprits(story, diagnoses),
    )


def _causes(story: Story) -> dict[str, Floats]:
    names = [cause.name for cause in LOSS_CAUSES if any(cause.name in tick.causes for tick in story.ticks)]
    columns = {name: np.array([tick.causes.get(name, 0.0) for tick in story.ticks]) for name in names}
    whole = sum(float(column.sum()) for column in columns.values())
    kept = {name: column for name, column in columns.items() if column.sum() > _MIN_PART * whole}
    return dict(sorted(kept.items(), key=lambda item: (item[0] not in CAUSED_BY_OTHERS, -float(item[1].sum()))))


def _leading(story: Story) -> str:
    """The rule whose loss within the picture comes to most in relation to its threshold."""
    sums: dict[str, float] = {}
    for tick in story.ticks:
        for diagnosis in tick.diagnoses:
            lost = lost_of(diagnosis)
            if lost:
                weight = min(lost / diagnosis.threshold, _MAX_RATIO) + _MAX_RATIO * diagnosis.is_open
                sums[diagnosis.rule] = sums.get(diagnosis.rule, 0.0) + weight
    return max(sums, key=lambda rule: sums[rule], default="")


def _of_rule(tick: StoryTick, rule: str) -> RuleDiagnosis | None:
    return next((diagnosis for diagnosis in tick.diagnoses if diagnosis.rule == rule), None)


_SHOWN = (Reason.OPEN, Reason.NOT_HELD, Reason.COOLING_DOWN)


def _rules(story: Story, seconds: Floats) -> dict[str, list[Span]]:
    """A state begins where it was found and lasts until the next tick."""
    spans: dict[str, list[Span]] = {}
    ends = [*seconds[1:].tolist(), *(seconds[-1:] + _interval(seconds)).tolist()]
    for tick, start, end in zip(story.ticks, seconds.tolist(), ends, strict=True):
        for diagnosis in tick.diagnoses:
            if diagnosis.reason not in _SHOWN:
                continue
            own = spans.setdefault(diagnosis.rule, [])
            if own and own[-1].reason is diagnosis.reason and own[-1].end == start:
                own[-1] = Span(own[-1].start, end, diagnosis.reason)
            else:
                own.append(Span(start, end, diagnosis.reason))
    return spans


def _interval(seconds: Floats) -> float:
    return float(np.median(np.diff(seconds))) if len(seconds) > 1 else 1.0


def _culprits(story: Story, diagnoses: Sequence[RuleDiagnosis | None]) -> dict[str, Floats]:
    shares: dict[str, Floats] = {}
    for position, diagnosis in enumerate(diagnoses):
        for each in diagnosis.culprits if diagnosis is not None else ():
            name = culprit_in_words(each.path, story.name_of)
            shares.setdefault(name, np.zeros(len(diagnoses)))[position] += each.share
    lost = np.array([0.0 if diagnosis is None else (lost_of(diagnosis) or 0.0) for diagnosis in diagnoses])
    ranked = sorted(shares, key=lambda name: -float(shares[name] @ lost))
    folded = {name: shares[name] for name in ranked[:_MAX_CULPRITS]}
    if ranked[_MAX_CULPRITS:]:
        rest = np.sum([shares[name] for name in ranked[_MAX_CULPRITS:]], axis=0)
        folded[OTHERS] = rest + folded.pop(OTHERS, np.zeros(len(diagnoses)))
    return folded
