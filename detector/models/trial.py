"""Trial of a model before it is delivered, and each night after: does it find slow harm that no threshold finds?

Slow harm is a loss below the threshold of the default rules. With a model half the threshold suffices where the model
is suspicious (`detector.rules.SuspicionPolicy`). The alternative without any model is a lower threshold for everybody.
Both are tried on rows that came after those of the training: on ordinary ones, which count the false alarms, and on
the same rows with a planted loss, which count what is found. The threshold of the alternative is the one that makes as
many false alarms as the model. Pure.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.baselines.values import WorkloadKey
from detector.models.bank import ModelBank
from detector.models.format import ModelFile

LOSS = "cpu_wait_neighbour"
"""Feature that harm is planted in: seconds a second that a container waits for a CPU that others have."""
THRESHOLD = 0.05
"""Of the default rule about it."""
RATIO = 0.5
"""Part of the threshold that suffices beside a suspicious model."""
PLANTED = (0.5, 1.0)
"""Planted losses, in thresholds."""
MIN_ROWS = 50
"""Rows from which a trial says something."""

Rows = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trial:
    """Parts of the rows, from 0 to 1."""

    recall: float
    """Of planted harm, found with the model."""
    plain_recall: float
    """Of planted harm, found by a threshold that makes as many false alarms."""
    false_alarms: float
    """Of the ordinary rows, with the model and below the rule's own threshold."""
    rows: int

    @property
    def gain(self) -> float:
        """What the model adds at equal false alarms."""
        return self.recall - self.plain_recall


def trial(file: ModelFile, key: WorkloadKey, rows: Rows, seed: int = 0) -> Trial | None:
    """Try the model of a workload on ordinary rows, shape (rows, features); None where they say nothing."""
    if LOSS not in file.features:
        return None
    place = file.features.index(LOSS)
    rows = rows[np.isfinite(rows).all(axis=1)]
    # What the rule's own threshold finds it finds with and without a model.
    rows = rows[rows[:, place] < THRESHOLD]
    if len(rows) < MIN_ROWS:
        return None
    planted = rows.copy()
    planted[:, place] += np.random.default_rng(seed).uniform(*PLANTED, len(rows)) * THRESHOLD
    bank = ModelBank(file)
    found = _alarms(bank, key, planted, place)
    false = _alarms(bank, key, rows, place)
    least = _equal_threshold(rows[:, place], int(false.sum()))
    return Trial(
        recall=float(found.mean()),
        plain_recall=float((planted[:, place] > least).mean()),
        false_alarms=float(false.mean()),
        rows=len(rows),
    )


def _alarms(bank: ModelBank, key: WorkloadKey, rows: Rows, place: int) -> NDArray[np.bool_]:
    suspicious = bank.evaluate((key,) * len(rows), rows).suspicious
    loss = rows[:, place]
    alarms: NDArray[np.bool_] = (loss >= THRESHOLD) | (suspicious & (loss >= RATIO * THRESHOLD))
    return alarms


def _equal_threshold(losses: Rows, alarms: int) -> float:
    """Return the loss above which as many ordinary rows lie; the rule's own threshold where that is lower."""
    falling = np.sort(losses)[::-1]
    return min(float(falling[alarms]) if alarms < len(falling) else 0.0, THRESHOLD)
