"""Goals of the bench, each with its bound, the figure that was measured, and what this is of. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_SHARE = 0.95
"""Of precision, recall and culprit top-1."""
MOST_MEDIAN_SECONDS = 1.5
MOST_P95_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Sums over all runs of the product."""

    runs: int
    clean_runs: int
    right: int
    """Verdicts that answer a claim, of `told` ..."""
    told: int
    found: int
    """Claims that a verdict answers, of `claims` ..."""
    claims: int
    named: int
    """Found claims whose culprit was named first, of `judged` ..."""
    judged: int
    said: int
    """Wrong verdicts in clean runs."""
    seconds: Sequence[float]
    """Time to detect of each found claim."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal; `is_met` is None where nothing was measured."""

    name: str
    bound: str
    figure: str
    of: str
    is_met: bool | None

    @property
    def answer(self) -> str:
        """Whether it is met, in words."""
        return "not measured" if self.is_met is None else "met" if self.is_met else "missed"

    def __str__(self) -> str:
        return f"goal {self.answer}: {self.name} {self.figure} ({self.of}), {self.bound}"


def goals(counts: Counts) -> list[Goal]:
    """All goals with what these runs say of them."""
    runs = f"in {counts.runs} runs"
    return [
        _share("precision", counts.right, counts.told, f"verdicts {runs}"),
        _share("recall", counts.found, counts.claims, f"labels {runs}"),
        _share("culprit top-1", counts.named, counts.judged, f"culprits {runs}"),
        _seconds("median", 50, MOST_MEDIAN_SECONDS, counts.seconds, runs),
        _seconds("95th percentile", 95, MOST_P95_SECONDS, counts.seconds, runs),
        Goal(
            "verdicts in clean runs",
            "none",
            str(counts.said) if counts.clean_runs else "-",
            f"{counts.clean_runs} clean runs",
            counts.said == 0 if counts.clean_runs else None,
        ),
    ]


def as_table(found: Sequence[Goal]) -> list[str]:
    """The goals as lines of a table."""
    rows = (f"| {each.name} | {each.bound} | {each.figure} | {each.of} | {each.answer} |" for each in found)
    return ["| goal | bound | measured | of | |", "|---|---|---|---|---|", *rows]


def _share(name: str, count: int, whole: int, of: str) -> Goal:
    figure = f"{count / whole * 100:.1f} %" if whole else "-"
    is_met = count >= LEAST_SHARE * whole if whole else None
    return Goal(name, f"at least {LEAST_SHARE * 100:.0f} %", figure, f"{count} of {whole} {of}", is_met)


def _seconds(name: str, percentile: float, most: float, seconds: Sequence[float], runs: str) -> Goal:
    value = float(np.percentile(seconds, percentile)) if seconds else None
    return Goal(
        f"time to detect, {name}",
        f"at most {most:g} s",
        "-" if value is None else f"{value:.2f} s",
        f"{len(seconds)} labels {runs}",
        None if value is None else value <= most,
    )
