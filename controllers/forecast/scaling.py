"""Trial of autoscaling on the past: replicas by present use against replicas by present use and forecast. Pure.

Both autoscalers are a HorizontalPodAutoscaler's rule at steps of five minutes: as many replicas as the metric needs at
the target, no fewer than anything wanted in the last five minutes (its stabilisation), of use a quarter of an hour
after it was decided (a node to add, an image to pull, caches to fill). One looks at the last measured use, the other at
the larger of that and the forecast of this hour or, a quarter of an hour before its end, of the next one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.forecast.predictors import hourly_peaks
from controllers.forecast.seasonal import SeasonalForecaster
from controllers.forecast.traces import SAMPLES_AN_HOUR
from detector.histograms import Values

Flags = NDArray[np.bool_]

START_STEPS = 3
"""Steps from a decision to replicas that are of use."""
LEAD_STEPS = 3
"""Steps before an hour from which its forecast counts."""
TARGET = 0.7
"""Use of a replica's capacity that is aimed at."""


@dataclass(frozen=True, slots=True)
class ScalingScore:
    """Score on one trace."""

    missed: float
    """Part of the steps in which more was used than the replicas have."""
    missed_peaks: float
    """Part of the series' days whose busiest step was one of them."""
    cost: float
    """Mean capacity in mean uses."""
    target: float
    """Target at which it costs this."""


@dataclass(frozen=True, slots=True)
class ScalingScores:
    """Of one trace: present use; present use and forecast; and present use at the cost of the latter."""

    reactive: ScalingScore
    ahead: ScalingScore
    reactive_at_cost: ScalingScore


def scaling(samples: Values, first_hour: int, warm_up_hours: int, quantile: float = 0.95) -> ScalingScores | None:
    """Return the scores; `samples` of shape (series, hours, samples an hour). None for a trace that is too short."""
    series, hours, _ = samples.shape
    if hours <= warm_up_hours or not np.isfinite(samples).any():
        return None
    samples = samples[np.isfinite(samples).any(axis=(1, 2))]
    series = len(samples)
    this, following = _forecasts(hourly_peaks(samples), first_hour, quantile)
    use = samples.reshape(series, -1)
    unit = np.nanmax(use, axis=1, keepdims=True) / 20.0
    """Capacity of one replica: twenty carry the largest use."""
    known = _held(use)
    this_hour = np.repeat(this, SAMPLES_AN_HOUR, axis=1)
    last_steps = np.arange(use.shape[1]) % SAMPLES_AN_HOUR >= SAMPLES_AN_HOUR - LEAD_STEPS
    soon = np.where(last_steps, np.repeat(following, SAMPLES_AN_HOUR, axis=1), np.nan)
    ready = np.fmax(known, np.fmax(this_hour, soon))
    begin = warm_up_hours * SAMPLES_AN_HOUR
    judged = np.isfinite(use) & np.isfinite(known) & np.isfinite(this_hour)
    judged[:, :begin] = False
    if not judged.any():
        return None
    reactive = _score(use, _capacity(known, unit, TARGET), judged, TARGET)
    ahead = _score(use, _capacity(ready, unit, TARGET), judged, TARGET)
    low, high = 0.05, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if _cost(use, _capacity(known, unit, middle), judged) > ahead.cost:
            low = middle
        else:
            high = middle
    return ScalingScores(reactive, ahead, _score(use, _capacity(known, unit, low), judged, low))


def _forecasts(peaks: Values, first_hour: int, quantile: float) -> tuple[Values, Values]:
    """Return the bounds of each hour, and of the one after it, as known when the hour begins."""
    series, hours = peaks.shape
    forecaster = SeasonalForecaster(series, quantile)
    rows = np.arange(series)
    this, following = np.full(peaks.shape, np.nan), np.full(peaks.shape, np.nan)
    for hour in range(hours):
        this[:, hour] = forecaster.forecast(rows, first_hour + hour).bound
        following[:, hour] = forecaster.forecast(rows, first_hour + hour + 1, 2).bound
        forecaster.step(rows, peaks[:, hour], first_hour + hour)
    return this, following


def _held(use: Values) -> Values:
    """Return the use measured last before each step; NaN before the first one."""
    found = np.full_like(use, np.nan)
    last = np.full(len(use), np.nan)
    for step in range(use.shape[1]):
        found[:, step] = last
        last = np.where(np.isfinite(use[:, step]), use[:, step], last)
    return found


def _capacity(metric: Values, unit: Values, target: float) -> Values:
    """Return what the replicas carry in each step, which were decided before by the rule above."""
    wanted = np.maximum(np.ceil(np.nan_to_num(metric, nan=0.0) / (unit * target) - 1e-9), 1.0)
    stable = np.maximum(wanted, np.concatenate([wanted[:, :1], wanted[:, :-1]], axis=1))
    ready = np.concatenate([np.repeat(stable[:, :1], START_STEPS, axis=1), stable[:, :-START_STEPS]], axis=1)
    capacity: Values = ready * unit
    return capacity


def _cost(use: Values, capacity: Values, judged: Flags) -> float:
    scale = np.nanmean(use, axis=1, keepdims=True)
    return float((capacity / np.maximum(scale, 1e-9))[judged].mean())


def _score(use: Values, capacity: Values, judged: Flags, target: float) -> ScalingScore:
    over = judged & (use > capacity)
    day = 24 * SAMPLES_AN_HOUR
    days = use.shape[1] // day
    whole = np.where(judged, use, -np.inf)[:, : days * day].reshape(len(use), days, day)
    busiest = whole.argmax(axis=2)[..., None]
    counted = np.isfinite(np.take_along_axis(whole, busiest, axis=2))[..., 0]
    missed = np.take_along_axis(over[:, : days * day].reshape(len(use), days, day), busiest, axis=2)[..., 0]
    peaks = float(missed[counted].mean()) if counted.any() else float("nan")
    return ScalingScore(float(over.sum() / judged.sum()), peaks, _cost(use, capacity, judged), target)
