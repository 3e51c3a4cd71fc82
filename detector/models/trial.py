"""Trial of a model before it is delivered, and each night after: does it find slow harm that no threshold finds?

Slow harm is a loss below the threshold of the default rules. With a model half the threshold suffices where the model
is suspicious (`detector.rules.SuspicionPolicy`). The alternative without any model is a lower threshold for everybody.
Both are tried on rows that came after those of the training: on ordinary ones, where each verdict is a false one, and
on the same rows with a planted loss, which count what is found. Verdicts open and close there as the judge's do, a row
being a tick. The alternative is the best threshold that makes no more false verdicts, or leaves no more time under
them: one that is low makes few, because they hardly ever close, and one that is crossed often makes many short ones.
Pure.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.baselines.values import WorkloadKey
from detector.hysteresis import SECOND_NS, USUAL, USUAL_CLOSE_RATIO, Hysteresis, no_episodes
from detector.models.bank import ModelBank
from detector.models.format import ModelFile

LOSS = "cpu_wait_neighbour"
"""Feature that harm is planted in: seconds a second that a container waits for a CPU that others have."""
THRESHOLD = 0.05
"""Of the default rule about it."""
RATIO = 0.5
"""Part of the threshold that suffices beside a suspicious model."""
TICKS = 1
"""Ticks that suffice beside a suspicious model."""
PLANTED = (0.5, 1.0)
"""Planted losses, in thresholds."""
LOWER = np.linspace(RATIO, 1.0, 11) * THRESHOLD
"""Thresholds of the alternative: none is below what suffices beside a suspicious model."""
MIN_ROWS = 50
"""Rows from which a trial says something."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ordinary:
    """Rows of a workload without an open verdict, in the order of time."""

    values: Floats
    """Shape (rows, features)."""
    seconds: Floats
    """Time of each row."""
    series: Floats
    """Number of the cgroup that each row is of."""

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: slice | NDArray[np.bool_]) -> "Ordinary":
        """Return some of the rows."""
        return Ordinary(self.values[rows], self.seconds[rows], self.series[rows])

    def with_features(self, places: list[int] | NDArray[np.bool_]) -> "Ordinary":
        """Return the rows with some of the features."""
        return Ordinary(self.values[:, places], self.seconds, self.series)


@dataclass(frozen=True, slots=True)
class Trial:
    """Parts of the rows, from 0 to 1."""

    recall: float
    """Of planted harm, found with the model."""
    plain_recall: float
    """Of planted harm, found by a threshold with no more false verdicts, or no more time under them."""
    false_alarms: float
    """Of the ordinary rows, with the model and below the rule's own threshold."""
    rows: int
    false_verdicts: int = 0
    """With the model."""
    under_false_verdicts: float = 0.0
    """Part of the ordinary rows at which one was open."""

    @property
    def gain(self) -> float:
        """What the model adds at an equal number of false verdicts and at equal time under them: the lesser of both."""
        return self.recall - self.plain_recall


def trial(file: ModelFile, key: WorkloadKey, rows: Ordinary, seed: int = 0) -> Trial | None:
    """Try the model of a workload on ordinary rows; None where they say nothing."""
    if LOSS not in file.features:
        return None
    place = file.features.index(LOSS)
    rows = rows.take(np.asarray(np.isfinite(rows.values).all(axis=1), dtype=np.bool_))
    # What the rule's own threshold finds it finds with and without a model.
    below = rows.values[:, place] < THRESHOLD
    count = int(below.sum())
    if count < MIN_ROWS:
        return None
    bank = ModelBank(file)
    planted = rows.values[below]
    planted[:, place] += np.random.default_rng(seed).uniform(*PLANTED, count) * THRESHOLD
    found = _alarms(planted[:, place], _suspicious(bank, key, planted))
    losses, suspicious = rows.values[:, place], _suspicious(bank, key, rows.values)
    opened, under = _false_verdicts(rows, losses, suspicious)
    fair = (opened[1:] <= opened[0]) | (under[1:] <= under[0])
    fair[-1] = True  # the rule as it is
    return Trial(
        recall=float(found.mean()),
        plain_recall=float((planted[:, place] >= LOWER[fair].min()).mean()),
        false_alarms=float(_alarms(losses, suspicious)[below].mean()),
        rows=count,
        false_verdicts=int(opened[0]),
        under_false_verdicts=float(under[0]) / len(rows),
    )


def _suspicious(bank: ModelBank, key: WorkloadKey, values: Floats) -> NDArray[np.bool_]:
    return bank.evaluate((key,) * len(values), values).suspicious


def _alarms(losses: Floats, suspicious: NDArray[np.bool_]) -> NDArray[np.bool_]:
    alarms: NDArray[np.bool_] = (losses >= THRESHOLD) | (suspicious & (losses >= RATIO * THRESHOLD))
    return alarms


def _false_verdicts(
    rows: Ordinary, losses: Floats, suspicious: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many verdicts open in ordinary rows, and at how many rows one is open.

    The first of each is with the model, the others are by the thresholds of `LOWER`.
    """
    opened, under = np.zeros(1 + len(LOWER), np.int64), np.zeros(1 + len(LOWER), np.int64)
    limits = np.array([[THRESHOLD, *LOWER]])
    # What the model suspects: the first column, the others have none.
    eased, fewer = limits * [[RATIO, *np.ones(len(LOWER))]], np.array([[TICKS, *np.full(len(LOWER), USUAL.ticks)]])
    hysteresis = Hysteresis([USUAL])
    times = (rows.seconds * SECOND_NS).astype(np.int64)
    for one in np.unique(rows.series).tolist():
        own, episodes = np.flatnonzero(rows.series == one), no_episodes(1, 1 + len(LOWER))
        for row in own.tolist():
            lost, now_ns = np.full_like(limits, losses[row]), int(times[row])
            met = lost >= (eased if suspicious[row] else limits)
            hysteresis.see(episodes, met, lost >= limits * USUAL_CLOSE_RATIO, now_ns)
            hysteresis.close(episodes, now_ns)
            opening = hysteresis.may_open(episodes, met, now_ns)
            opening &= hysteresis.ticks_held(episodes) >= (fewer if suspicious[row] else USUAL.ticks)
            hysteresis.open(episodes, opening, now_ns)
            opened += opening[0]
            under += episodes.is_open[0]
    return opened, under
