"""Peak of the next hour: season, what is left of the last hour's surprise, and the spread of past errors. Pure.

Three models of each series are kept side by side (no season, day, week); the one with the smallest recent pinball loss
speaks. A model is `mean of the hour of its season + phi x last surprise`; means age, phi is the surprise's regression
on the one before. The upper bound adds a quantile of the model's own past errors, so it covers what it claims as long
as errors stay what they were (adaptive conformal prediction in one line).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detector.histograms import Rows, Values

PERIODS = (1, 24, 168)
"""Hours of the seasons."""
MEAN_GAIN = 0.25
"""Weight of the newest value in a mean of one hour of a season."""
LEVEL_GAIN = 0.05
"""The same without season."""
ERROR_DECAY = 0.98
"""Each hour, of the errors' scale, phi and loss."""
ERRORS_KEPT = 336
MIN_ERRORS = 24
"""Errors from which a quantile of them is a spread."""
MIN_CYCLES = 2
"""Cycles from which a season may speak."""
_LARGEST = 60_000.0
"""Error in units of its scale that half precision holds."""
_MOST_VISITS = 255
"""Beyond, a mean's gain is its least anyway."""
_AT_ONCE = 4096
"""Series whose errors are sorted at once: 6 MB."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Next hour's peak of some series, shapes (series,); NaN before there is history."""

    expected: Values
    spread: Values
    """Added to what is expected, gives the bound that the quantile asked for claims."""
    period_hours: NDArray[np.int64]
    """Season that spoke, 1 for none."""

    @property
    def bound(self) -> Values:
        """Value that the peak stays below as often as the quantile says."""
        return np.maximum(self.expected + self.spread, 0.0)


class SeasonalForecaster:
    """State of many series; `step` once an hour with the peaks of the hour that ended."""

    def __init__(self, series: int, quantile: float = 0.95) -> None:
        models = len(PERIODS)
        self.quantile = quantile
        # Most of the state, 3 KB of a series; a step is computed in double precision.
        self._means = [np.full((series, period), np.nan, np.float32) for period in PERIODS]
        self._visits = [np.zeros((series, period), np.uint8) for period in PERIODS]
        self._surprise = np.zeros((models, series))
        self._products = np.zeros((models, series))
        self._squares = np.full((models, series), 1e-12)
        self._scale = np.zeros((models, series))
        self._loss = np.zeros((models, series))
        self._errors = np.full((models, series, ERRORS_KEPT), np.nan, np.float16)
        self._told = np.zeros((models, series), np.int64)
        """Errors seen by each model."""
        self._seen = np.zeros(series, np.int64)

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._seen)

    def resize(self, series: int) -> None:
        """Make room for more series; none is taken away."""
        missing = series - len(self)
        if missing <= 0:
            return
        fresh = SeasonalForecaster(missing, self.quantile)
        for name, value in vars(self).items():
            added = getattr(fresh, name)
            if isinstance(value, list):
                setattr(self, name, [np.concatenate(pair) for pair in zip(value, added, strict=True)])
            elif isinstance(value, np.ndarray):
                setattr(self, name, np.concatenate([value, added], axis=0 if value.ndim == 1 else 1))

    def clear(self, rows: Rows) -> None:
        """Forget what rows were, so that other series may have them."""
        fresh = SeasonalForecaster(len(rows), self.quantile)
        for name, value in vars(self).items():
            if isinstance(value, list):
                for own, new in zip(value, getattr(fresh, name), strict=True):
                    own[rows] = new
            elif isinstance(value, np.ndarray):
                value[(rows,) if value.ndim == 1 else (slice(None), rows)] = getattr(fresh, name)

    def step(self, rows: Rows, peaks: Values, hour: int) -> None:
        """Take in the peaks of distinct rows in an hour since the epoch; NaN, not measured, teaches nothing."""
        measured = np.isfinite(peaks)
        rows, peaks = rows[measured], peaks[measured]
        if not len(rows):
            return
        bases = self._bases(rows, hour)
        for model, period in enumerate(PERIODS):
            base = bases[model]
            known = np.isfinite(base)
            own, error = rows[known], (peaks - base)[known]
            scale = np.maximum(self._scale[model, own], 1e-9)
            spread = self._quantile_of(model, own) * scale
            beyond = error - np.nan_to_num(spread, nan=0.0)
            pinball = np.where(beyond > 0, self.quantile * beyond, (self.quantile - 1) * beyond)
            first = self._told[model, own] == 0
            keep = np.where(first, 0.0, ERROR_DECAY)
            place = self._told[model, own] % ERRORS_KEPT
            self._errors[model, own, place] = np.where(first, np.nan, np.clip(error / scale, -_LARGEST, _LARGEST))
            self._loss[model, own] = keep * self._loss[model, own] + (1 - keep) * pinball
            self._scale[model, own] = keep * self._scale[model, own] + (1 - keep) * np.abs(error)
            self._told[model, own] += 1
            self._learn(model, period, rows, peaks, hour)
        self._seen[rows] += 1

    def forecast(self, rows: Rows, hour: int, ahead: int = 1) -> Forecast:
        """Return the forecast of some rows for an hour, which is `ahead` hours after the last step."""
        bases = self._bases(rows, hour, ahead)
        loss = self._loss[:, rows].copy()
        for model, period in enumerate(PERIODS):
            young = self._seen[rows] < MIN_CYCLES * period
            loss[model, young | ~np.isfinite(bases[model])] = np.inf
        chosen = loss.argmin(axis=0)
        columns = np.arange(len(rows))
        spreads = np.stack([self._quantile_of(model, rows) * self._scale[model, rows] for model in range(len(PERIODS))])
        return Forecast(bases[chosen, columns], spreads[chosen, columns], np.array(PERIODS)[chosen])

    def coming(self, rows: Rows, hour: int, hours: int) -> Values:
        """Return the bounds of some rows for the hours from `hour` on, the one after the last step; (rows, hours)."""
        said = self.forecast(rows, hour)
        found = np.full((len(rows), hours), np.nan)
        for model, period in enumerate(PERIODS):
            own = np.flatnonzero(said.period_hours == period)
            phi = np.clip(self._products[model, rows[own]] / self._squares[model, rows[own]], 0.0, 0.98)
            for each in range(hours):
                means = self._means[model][rows[own], (hour + each) % period]
                found[own, each] = means + phi ** (each + 1) * self._surprise[model, rows[own]]
        return np.maximum(found + said.spread[:, None], 0.0)

    def _bases(self, rows: Rows, hour: int, ahead: int = 1) -> Values:
        """Return what each model expects, shape (models, rows)."""
        phi = np.clip(self._products[:, rows] / self._squares[:, rows], 0.0, 0.98) ** ahead
        means = np.stack([mean[rows, hour % period] for mean, period in zip(self._means, PERIODS, strict=True)])
        bases: Values = means + phi * self._surprise[:, rows]
        return bases

    def _learn(self, model: int, period: int, rows: Rows, peaks: Values, hour: int) -> None:
        slot = hour % period
        mean, visits = self._means[model], self._visits[model]
        known = np.isfinite(mean[rows, slot])
        surprise = np.where(known, peaks - np.nan_to_num(mean[rows, slot]), 0.0)
        before = self._surprise[model, rows]
        self._products[model, rows] = ERROR_DECAY * self._products[model, rows] + before * surprise
        self._squares[model, rows] = ERROR_DECAY * self._squares[model, rows] + before * before + 1e-12
        self._surprise[model, rows] = surprise
        counted = np.minimum(visits[rows, slot].astype(np.float64) + 1, _MOST_VISITS)
        visits[rows, slot] = counted
        gain = np.maximum(1.0 / counted, LEVEL_GAIN if period == 1 else MEAN_GAIN)
        mean[rows, slot] = np.where(known, mean[rows, slot] + gain * surprise, peaks)

    def _quantile_of(self, model: int, rows: Rows) -> Values:
        """Return the quantile of the past errors in units of their scale; a wide one while there are few."""
        found = np.zeros(len(rows))
        for begin in range(0, len(rows), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            errors = np.sort(self._errors[model, rows[some]].astype(np.float32), axis=1)
            count = np.isfinite(errors).sum(axis=1)
            # Of n errors the next one is below the ceil(q (n + 1))-th smallest with probability q.
            place = np.clip(np.ceil(self.quantile * (count + 1)).astype(np.int64) - 1, 0, np.maximum(count - 1, 0))
            found[some] = np.where(count >= MIN_ERRORS, errors[np.arange(len(errors)), place], 3.0)
        return found
