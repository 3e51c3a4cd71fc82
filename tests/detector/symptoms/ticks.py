"""A tick of one cgroup for tests of single symptoms."""

from collections.abc import Mapping

import numpy as np

from api.window import Window
from detector.baselines.values import Judgement
from detector.symptom import Symptom
from detector.view import View
from tests.frames import make_frame

MS = 10**6
USUAL = {"cpi": 1.0, "llc_miss_ratio": 0.1, "turnaround": 0.002, "others_memory_traffic": 1e6}
PMU = {"cpu.oncpu_ns": 800 * MS, "pmu.cycles": 2000, "pmu.instructions": 1000, "pmu.llc_references": 100}
"""Twice the usual cycles per instruction."""


def tick(symptom: Symptom, grown: Mapping[str, float], sigmas: float = 9.0, upper_ratio: float = 1.0) -> View:
    """One second in which the columns of the cgroup /web grew so much; all signals are `sigmas` above `USUAL`, and one
    ordinary tick in a hundred is above `upper_ratio` of it."""
    made = [make_frame(t, {1: "/web"}, {column: [value * t] for column, value in grown.items()}) for t in (0, 1)]
    view = View(Window(made), symptom.columns)
    view.judgements = {signal: _judgement(value, sigmas, upper_ratio) for signal, value in USUAL.items()}
    return view


def lost(symptom: Symptom, grown: Mapping[str, float], sigmas: float = 9.0, upper_ratio: float = 1.0) -> float:
    """Seconds per second that /web loses in the tick."""
    signal = symptom.sense(tick(symptom, grown, sigmas, upper_ratio))
    assert signal is not None
    return float(signal.lost[0])


def _judgement(expected: float, sigmas: float, upper_ratio: float) -> Judgement:
    one = np.array([expected])
    return Judgement(one, one, one * upper_ratio, np.array([sigmas]), np.array([2]), np.array([100]), one, one)
