"""Predictors of the next hour's peak to compare with: last value, histograms' percentiles, Crane's DSP. Pure.

Each takes samples of many series in order of time, and answers before each hour what it would have said.
"""

from collections.abc import Callable, Mapping

import numpy as np

from detector.histograms import Buckets, DecayingHistograms, Values

HOUR_SECONDS = 3600.0
DAY_HOURS = 24
_BUCKETS = Buckets(maximum=10_000.0, first=0.01)

Predictor = Callable[[Values, int], Values]
"""From samples of shape (series, hours, samples an hour), NaN where not measured, and the first hour since the epoch,
to peaks of shape (series, hours): each made from the hours before."""


def hourly_peaks(samples: Values) -> Values:
    """Return the largest sample of each hour, NaN for an hour without one."""
    found = np.where(np.isfinite(samples), samples, -np.inf).max(axis=2)
    return np.where(np.isneginf(found), np.nan, found)


def last_value(samples: Values, _first_hour: int) -> Values:
    """Return the peak of the last hour that was measured."""
    peaks = hourly_peaks(samples)
    said = np.full_like(peaks, np.nan)
    for hour in range(1, peaks.shape[1]):
        said[:, hour] = np.where(np.isfinite(peaks[:, hour - 1]), peaks[:, hour - 1], said[:, hour - 1])
    return said


def percentile(quantile: float, half_life_seconds: float, margin: float) -> Predictor:
    """Return the predictor of a decaying histogram's percentile plus a margin."""

    def predict(samples: Values, first_hour: int) -> Values:
        series, hours, each = samples.shape
        histograms = DecayingHistograms(_BUCKETS, half_life_seconds)
        histograms.resize(series)
        rows = np.arange(series)
        said = np.full((series, hours), np.nan)
        for hour in range(hours):
            found = histograms.percentile(rows, quantile) * (1.0 + margin)
            said[:, hour] = np.where(found > 0, found, np.nan)
            for place in range(each):
                now = (first_hour + hour + place / each) * HOUR_SECONDS
                histograms.add(rows, samples[:, hour, place], now)
        return said

    return predict


def crane_dsp(samples: Values, _first_hour: int) -> Values:
    """Return the largest sample that Crane's DSP expects in the hour: refit twice a day, on a week.

    A series whose autocorrelation peaks at a day, else at a week, is continued by the better of two estimators on its
    last cycle: the largest value of all cycles, or its spectrum without what is both fast and small, plus a tenth. Any
    other series has no forecast; here its percentile 99 of the week stands in.
    """
    series, hours, each = samples.shape
    said = np.full((series, hours), np.nan)
    for row in range(series):
        filled = _filled(samples[row].reshape(-1))
        plan = np.zeros(0)
        made = 0
        for hour in range(DAY_HOURS, hours):
            if not len(plan) or hour - made >= DAY_HOURS // 2:
                history = filled[max(hour - 8 * DAY_HOURS, 0) * each : hour * each]
                plan, made = _plan(history, each), hour
            begin = ((hour - made) * each) % len(plan)
            said[row, hour] = plan[begin : begin + each].max()
    return said


def _plan(history: Values, each: int) -> Values:
    for cycle in (DAY_HOURS * each, 7 * DAY_HOURS * each):
        if len(history) >= 2 * cycle and _is_periodic(history, cycle):
            whole = history[-(len(history) // cycle) * cycle :]
            past, last = whole[:-cycle], whole[-cycle:]
            largest_error = np.abs(last - _largest(past, cycle)).mean()
            if np.abs(last - _spectrum(past, cycle, each)).mean() < largest_error:
                return _spectrum(whole, cycle, each)
            return _largest(whole, cycle)
    return np.full(DAY_HOURS * each, float(np.quantile(history, 0.99)) if len(history) else np.nan)


def _is_periodic(history: Values, cycle: int) -> bool:
    centred = history - history.mean()
    power = np.abs(np.fft.rfft(centred, 2 * len(centred))) ** 2
    correlation = np.fft.irfft(power)[: len(centred)]
    if correlation[0] <= 0:
        return False
    near = max(cycle // 24, 1)
    around = correlation[cycle - near : cycle + near + 1]
    middle = correlation[cycle // 4 : 3 * cycle // 4]
    return bool(around.max() > 0.2 * correlation[0] and around.max() > middle.max())


def _largest(history: Values, cycle: int) -> Values:
    peaks: Values = history.reshape(-1, cycle).max(axis=0)
    return peaks


def _spectrum(history: Values, cycle: int, each: int) -> Values:
    waves = np.fft.fft(history)
    amplitudes = np.abs(waves) / len(history)
    an_hour = np.arange(len(history)) * each / len(history)
    ordered = np.sort(amplitudes[1 : len(history) // 2])[::-1]
    least = max(float(ordered[min(99, len(ordered) - 1)]), 1.0)
    least = min(least, float(ordered[min(2, len(ordered) - 1)]))
    waves[(amplitudes < least) & (an_hour > 1.0)] = 0.0
    found: Values = np.maximum(np.fft.ifft(waves).real[-cycle:], 0.01) * 1.1
    return found


def _filled(samples: Values) -> Values:
    """Return samples with straight lines where none was measured."""
    known = np.flatnonzero(np.isfinite(samples))
    if not len(known):
        return np.zeros_like(samples)
    return np.interp(np.arange(len(samples)), known, samples[known])


BASELINES: Mapping[str, Predictor] = {
    "last value": last_value,
    "VPA peak": percentile(0.9, 24 * HOUR_SECONDS, 0.15),
    "Koordinator peak": percentile(0.95, 12 * HOUR_SECONDS, 0.10),
    "Crane DSP": crane_dsp,
}
"""By name, each with its own defaults."""
