"""Trial of predictors on the past: coverage, cost, missed peaks, and those of ours at the same cost. Pure."""

from dataclasses import dataclass

import numpy as np

from controllers.forecast.predictors import BASELINES, hourly_peaks
from controllers.forecast.seasonal import SeasonalForecaster
from detector.histograms import Values

OURS = "seasonal"


@dataclass(frozen=True, slots=True)
class Score:
    """Score of one predictor on one trace; ratios of the mean peak, or of the hours."""

    predictor: str
    coverage: float
    """Hours whose peak stayed below what was said."""
    cost: float
    """Mean of what was said above the peak, in mean peaks."""
    missed: float
    """Hours with a higher peak than said."""
    ours_missed: float
    """The same of ours, with a spread that makes it cost as much as this predictor."""


def scores(samples: Values, first_hour: int, warm_up_hours: int, quantile: float = 0.95) -> list[Score]:
    """Return the scores of all predictors; `samples` of shape (series, hours, samples an hour), NaN where unknown."""
    peaks = hourly_peaks(samples)
    said = {name: predict(samples, first_hour) for name, predict in BASELINES.items()}
    expected, spread = seasonal(peaks, first_hour, quantile)
    judged = np.isfinite(peaks) & np.isfinite(expected)
    for each in said.values():
        judged &= np.isfinite(each)
    judged[:, :warm_up_hours] = False
    actual = peaks[judged]
    if not len(actual):
        return []
    base, width = expected[judged], spread[judged]
    said[OURS] = np.maximum(expected + spread, 0.0)
    found = []
    for name, values in said.items():
        own = values[judged]
        price = cost(own, actual)
        covered = float(np.mean(actual <= own))
        found.append(Score(name, covered, price, 1 - covered, missed_at(base, width, actual, price)))
    return found


def seasonal(peaks: Values, first_hour: int, quantile: float) -> tuple[Values, Values]:
    """Return what ours expects of each hour, and its spread, each made from the hours before."""
    series, hours = peaks.shape
    forecaster = SeasonalForecaster(series, quantile)
    rows = np.arange(series)
    expected, spread = np.full(peaks.shape, np.nan), np.full(peaks.shape, np.nan)
    for hour in range(hours):
        said = forecaster.forecast(rows, first_hour + hour)
        expected[:, hour], spread[:, hour] = said.expected, said.spread
        forecaster.step(rows, peaks[:, hour], first_hour + hour)
    return expected, spread


def cost(said: Values, actual: Values) -> float:
    """Return the mean of what was said above the peak, in mean peaks."""
    return float(np.maximum(said - actual, 0.0).mean() / max(float(actual.mean()), 1e-9))


def missed_at(base: Values, spread: Values, actual: Values, wanted: float) -> float:
    """Return the part of peaks above `base + k x spread`, for the k at which this costs what is wanted."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        if cost(np.maximum(base + middle * spread, 0.0), actual) < wanted:
            low = middle
        else:
            high = middle
    return float(np.mean(actual > base + high * spread))
