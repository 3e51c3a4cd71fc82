"""Report of a score: text, or plain values for JSON."""

from collections.abc import Iterable
from typing import Any

import msgspec

from detector.evaluation.intervals import share_interval
from detector.evaluation.scoring import NOTHING, Score

_CORNER = "labelled \\ reported"


def as_json(score: Score) -> dict[str, Any]:
    """All figures; one without a value, such as precision without verdicts, is null."""
    return {
        "scenario": score.scenario,
        "labels": len(score.outcomes),
        "episodes": score.right_episodes + score.wrong_episodes,
        "precision": score.precision,
        "recall": score.recall,
        "culprit_top1": score.culprit_top1,
        "median_seconds_to_detect": score.median_seconds_to_detect,
        "worst_seconds_to_detect": score.worst_seconds_to_detect,
        "confusion": [
            {"labelled": labelled, "reported": reported, "count": count}
            for (labelled, reported), count in sorted(score.confusion.items())
        ],
        "outcomes": [
            {
                **msgspec.to_builtins(outcome.label),
                "detected": outcome.detected,
                "seconds_to_detect": outcome.seconds_to_detect,
                "blamed": outcome.culprit,
                "culprit_right": outcome.culprit_right,
            }
            for outcome in score.outcomes
        ],
    }


def as_text(score: Score) -> str:
    """The figures, what was missed, and the confusion table."""
    right, reported = score.right_episodes, score.right_episodes + score.wrong_episodes
    detected, labels = sum(each.detected for each in score.outcomes), len(score.outcomes)
    judged = [each.culprit_right for each in score.outcomes if each.culprit_right is not None]
    figures = (
        ("precision", _percent(score.precision), _of(right, reported, "verdicts answer a label")),
        ("recall", _percent(score.recall), _of(detected, labels, "labels were detected")),
        ("culprit top-1", _percent(score.culprit_top1), _of(sum(judged), len(judged), "culprits were named first")),
        ("time to detect", _seconds(score.median_seconds_to_detect), _worst(score)),
    )
    lines = [score.scenario, *(f"  {name:<15}{value:>8}  {words}" for name, value, words in figures)]
    for outcome in score.outcomes:
        if not outcome.detected:
            lines.append(f"  missed: {outcome.label.victim} lost time to {outcome.label.what}")
        elif outcome.culprit_right is False:
            blamed = outcome.culprit or "no culprit"
            lines.append(f"  wrong culprit: {outcome.label.victim}: {blamed} instead of {outcome.label.culprit}")
    return "\n".join([*lines, *(f"  {line}" for line in _table(score))])


def _table(score: Score) -> list[str]:
    if not score.confusion:
        return []
    rows = _ordered(labelled for labelled, _ in score.confusion)
    columns = _ordered(reported for _, reported in score.confusion)
    first = max(len(_CORNER), *map(len, rows)) + 2
    widths = [max(len(name), 5) + 2 for name in columns]
    lines = [_CORNER.ljust(first) + "".join(name.rjust(width) for name, width in zip(columns, widths, strict=True))]
    for row in rows:
        counts = [str(score.confusion.get((row, column), "")) for column in columns]
        lines.append(row.ljust(first) + "".join(c.rjust(width) for c, width in zip(counts, widths, strict=True)))
    return lines


def _ordered(names: Iterable[str]) -> list[str]:
    found = set(names)
    return [*sorted(found - {NOTHING}), *sorted(found & {NOTHING})]


def _worst(score: Score) -> str:
    return f"median; worst {_seconds(score.worst_seconds_to_detect)}"


def _of(count: int, whole: int, words: str) -> str:
    """Counts in words, with the interval in which the share lies by 95 %."""
    low, high = share_interval(count, whole)
    return f"{count} of {whole} {words}" + (f" ({low:.1%} to {high:.1%})" if whole else "")


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
