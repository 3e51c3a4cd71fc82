"""What a picture of a story shows, as arrays: losses by cause, how rules stood, whom the leading rule blamed. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from api.loss import CAUSED_BY_OTHERS, LOSS_CAUSES
from api.verdicts import culprit_in_words
from detector.arrays import Floats
from detector.explain.story import Story, StoryTick
from detector.explain.text import lost_of
from detector.judging.diagnosis import RuleDiagnosis, Why

_LEAST_PART = 0.005
"""A cause below this part of all that was lost is left out."""
_MOST_CULPRITS = 6
_MOST_WORTH = 20.0
"""Times the threshold beyond which a tick makes a rule no more the leading one; an open verdict counts as much."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class Span:
    """A rule in one state, in seconds since the recording began."""

    start: float
    end: float
    why: Why


@dataclass(frozen=True, slots=True)
class Timeline:
    """Columns of one length, a value for each tick; times in seconds since the recording began."""

    seconds: Floats
    at: float
    causes: Mapping[str, Floats]
    """Lost seconds per second; what others caused first, then the rest, the largest first."""
    rules: Mapping[str, Sequence[Span]]
    """Rules that said or nearly said something; what is below its threshold has no span."""
    leading: str
    """The rule that lost most in relation to its threshold; empty where none measured a loss."""
    threshold: Floats
    """Of the leading rule."""
    lost: Floats
    """What the leading rule judged by."""
    culprits: Mapping[str, Floats]
    """Shares of that loss, 0..1, by name, the largest first; what is left to 1 nobody is blamed for."""


def timeline(story: Story) -> Timeline:
    """The arrays of a story."""
    seconds = np.array([(tick.wall_ns - story.first_ns) / 1e9 for tick in story.ticks])
    leading = _leading(story)
    looks = [_look(tick, leading) for tick in story.ticks]
    return Timeline(
        seconds,
        (story.at_ns - story.first_ns) / 1e9,
        _causes(story),
        _rules(story, seconds),
        leading,
        np.array([np.nan if look is None else look.threshold for look in looks]),
        np.array([np.nan if look is None else (lost_of(look) or 0.0) for look in looks]),
        _culprits(story, looks),
    )


def _causes(story: Story) -> dict[str, Floats]:
    names = [cause.name for cause in LOSS_CAUSES if any(cause.name in tick.causes for tick in story.ticks)]
    columns = {name: np.array([tick.causes.get(name, 0.0) for tick in story.ticks]) for name in names}
    whole = sum(float(column.sum()) for column in columns.values())
    kept = {name: column for name, column in columns.items() if column.sum() > _LEAST_PART * whole}
    return dict(sorted(kept.items(), key=lambda item: (item[0] not in CAUSED_BY_OTHERS, -float(item[1].sum()))))


def _leading(story: Story) -> str:
    """The rule whose loss within the picture comes to most in relation to its threshold."""
    sums: dict[str, float] = {}
    for tick in story.ticks:
        for look in tick.looks:
            lost = lost_of(look)
            if lost:
                worth = min(lost / look.threshold, _MOST_WORTH) + _MOST_WORTH * look.is_open
                sums[look.rule] = sums.get(look.rule, 0.0) + worth
    return max(sums, key=lambda rule: sums[rule], default="")


def _look(tick: StoryTick, rule: str) -> RuleDiagnosis | None:
    return next((look for look in tick.looks if look.rule == rule), None)


_SHOWN = (Why.OPEN, Why.NOT_HELD, Why.COOLING_DOWN)


def _rules(story: Story, seconds: Floats) -> dict[str, list[Span]]:
    """A state begins where it was found and lasts until the next tick."""
    spans: dict[str, list[Span]] = {}
    ends = [*seconds[1:].tolist(), *(seconds[-1:] + _interval(seconds)).tolist()]
    for tick, start, end in zip(story.ticks, seconds.tolist(), ends, strict=True):
        for look in tick.looks:
            if look.why not in _SHOWN:
                continue
            own = spans.setdefault(look.rule, [])
            if own and own[-1].why is look.why and own[-1].end == start:
                own[-1] = Span(own[-1].start, end, look.why)
            else:
                own.append(Span(start, end, look.why))
    return spans


def _interval(seconds: Floats) -> float:
    return float(np.median(np.diff(seconds))) if len(seconds) > 1 else 1.0


def _culprits(story: Story, looks: Sequence[RuleDiagnosis | None]) -> dict[str, Floats]:
    shares: dict[str, Floats] = {}
    for position, look in enumerate(looks):
        for each in look.culprits if look is not None else ():
            name = culprit_in_words(each.path, story.name_of)
            shares.setdefault(name, np.zeros(len(looks)))[position] += each.share
    lost = np.array([0.0 if look is None else (lost_of(look) or 0.0) for look in looks])
    ranked = sorted(shares, key=lambda name: -float(shares[name] @ lost))
    folded = {name: shares[name] for name in ranked[:_MOST_CULPRITS]}
    if ranked[_MOST_CULPRITS:]:
        rest = np.sum([shares[name] for name in ranked[_MOST_CULPRITS:]], axis=0)
        folded[OTHERS] = rest + folded.pop(OTHERS, np.zeros(len(looks)))
    return folded
