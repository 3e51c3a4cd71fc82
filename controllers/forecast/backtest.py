"""Trial of predictors on the past: coverage, cost, missed peaks, and those of ours at the same cost. Pure."""

from dataclasses import dataclass

import numpy as np

from controllers.forecast.day_peaks import DAY_HOURS, DayPeaks
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


def day_scores(samples: Values, first_hour: int, warm_up_hours: int, quantile: float = 0.95) -> list[Score]:
    """Return the scores of what is said at the start of each day about all of its hours; arguments as of `scores`."""
    peaks = hourly_peaks(samples)
    said = {"same hour, 7 days": _past_peaks(peaks, DAY_HOURS), "all hours, 7 days": _past_peaks(peaks, 1)}
    ours = day_ahead(peaks, first_hour, quantile)
    judged = np.isfinite(peaks) & np.isfinite(ours)
    for each in said.values():
        judged &= np.isfinite(each)
    judged[:, :warm_up_hours] = False
    actual = peaks[judged]
    if not len(actual):
        return []
    said[OURS] = ours
    found = []
    for name, values in said.items():
        own = values[judged]
        price = cost(own, actual)
        covered = float(np.mean(actual <= own))
        missed = missed_at(np.zeros_like(actual), ours[judged], actual, price)
        found.append(Score(name, covered, price, 1 - covered, missed))
    return found


def day_ahead(peaks: Values, first_hour: int, quantile: float) -> Values:
    """Return the bounds of ours for each hour, all those of a day made before it began."""
    series, hours = peaks.shape
    learner, rows = DayPeaks(series, quantile), np.arange(series)
    said = np.full(peaks.shape, np.nan)
    for hour in range(hours):
        if (first_hour + hour) % DAY_HOURS == 0:
            ahead = min(DAY_HOURS, hours - hour)
            said[:, hour : hour + ahead] = learner.day(rows, first_hour + hour)[:, :ahead]
        learner.step(rows, peaks[:, hour], first_hour + hour)
    return said


def _past_peaks(peaks: Values, step: int) -> Values:
    """Return the largest peak of the seven days before a day: of each hour (24) or of all hours (1)."""
    said = np.full_like(peaks, np.nan)
    for hour in range(DAY_HOURS, peaks.shape[1]):
        day = hour - hour % DAY_HOURS
        if step == 1:
            past = peaks[:, max(day - 7 * DAY_HOURS, 0) : day]
        else:
            past = peaks[:, hour % DAY_HOURS : hour : DAY_HOURS][:, -7:]
        found = np.where(np.isfinite(past), past, -np.inf).max(axis=1)
        said[:, hour] = np.where(np.isfinite(found), found, np.nan)
    return said


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
