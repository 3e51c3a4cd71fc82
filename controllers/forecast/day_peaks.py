"""Peaks of each hour of the coming day: the mean of this hour, and what past days were above theirs. Pure.

Two seasons of each series are kept side by side, a day and a week; the one with the smaller recent pinball loss speaks.
A mean of an hour was last changed a season ago, so each error is one of a forecast made at least a day before. The
bound adds a quantile of these errors: it covers what it claims as long as errors stay what they were.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detector.histograms import Rows, Values

AnyArray = NDArray[Any]
DAY_HOURS = 24
SEASONS = (DAY_HOURS, 7 * DAY_HOURS)
"""Hours."""
MEAN_GAIN = 0.25
"""Weight of the newest value in a mean."""
LOSS_DECAY = 0.98
"""Each hour."""
ERRORS_KEPT = 336
MIN_HOURS = 3 * DAY_HOURS
"""Hours that a series was measured before it is forecast: errors of two days."""
MIN_CYCLES = 2
"""Cycles from which the week may speak."""


class DayPeaks:
    """State of many series; `step` once an hour with the peaks of the hour that ended. 4.5 kB a series."""

    def __init__(self, series: int, quantile: float = 0.95) -> None:
        self.quantile = quantile
        self._means = [np.full((series, season), np.nan, np.float32) for season in SEASONS]
        self._errors = [np.full((series, ERRORS_KEPT), np.nan, np.float32) for _ in SEASONS]
        self._told = [np.zeros(series, np.int64) for _ in SEASONS]
        """Errors seen."""
        self._loss = [np.zeros(series) for _ in SEASONS]
        self._seen = np.zeros(series, np.int64)

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._seen)

    def resize(self, series: int) -> None:
        """Make room for more series; none is taken away."""
        if series > len(self):
            self._each(DayPeaks(series - len(self), self.quantile), lambda own, new: np.concatenate([own, new]))

    def clear(self, rows: Rows) -> None:
        """Forget what rows were, so that other series may have them."""

        def cleared(own: AnyArray, new: AnyArray) -> AnyArray:
            own[rows] = new
            return own

        self._each(DayPeaks(len(rows), self.quantile), cleared)

    def hours(self, rows: Rows) -> NDArray[np.int64]:
        """Return how many hours of each series were measured."""
        counted: NDArray[np.int64] = self._seen[rows]
        return counted

    def step(self, rows: Rows, peaks: Values, hour: int) -> None:
        """Take in the peaks of distinct rows in an hour since the epoch; NaN, not measured, teaches nothing."""
        measured = np.isfinite(peaks)
        rows, peaks = rows[measured], peaks[measured]
        for place, season in enumerate(SEASONS):
            mean, slot = self._means[place], hour % season
            expected = mean[rows, slot]
            known = np.isfinite(expected)
            own, error = rows[known], (peaks - expected)[known]
            beyond = error - np.nan_to_num(self._quantile_of(place, own))
            pinball = np.where(beyond > 0, self.quantile * beyond, (self.quantile - 1) * beyond)
            keep = np.where(self._told[place][own] == 0, 0.0, LOSS_DECAY)
            self._loss[place][own] = keep * self._loss[place][own] + (1 - keep) * pinball
            self._errors[place][own, self._told[place][own] % ERRORS_KEPT] = error
            self._told[place][own] += 1
            mean[rows, slot] = np.where(known, expected + MEAN_GAIN * (peaks - expected), peaks)
        self._seen[rows] += 1

    def day(self, rows: Rows, hour: int) -> Values:
        """Return the bounds of the 24 hours that begin with one since the epoch, by hour of the day; (rows, 24).

        NaN where the series is too young, or was never measured at that hour.
        """
        hours = hour + np.arange(DAY_HOURS)
        bounds = []
        losses = []
        for place, season in enumerate(SEASONS):
            means = self._means[place][np.ix_(rows, hours % season)]
            bounds.append(means + self._quantile_of(place, rows)[:, None])
            young = (self._seen[rows] < (MIN_HOURS if place == 0 else MIN_CYCLES * season)) | ~np.isfinite(
                bounds[place]
            ).all(axis=1)
            losses.append(np.where(young, np.inf, self._loss[place][rows]))
        week = losses[1] < losses[0]
        chosen = np.where(week[:, None], bounds[1], bounds[0])
        chosen[self._seen[rows] < MIN_HOURS] = np.nan
        found = np.full((len(rows), DAY_HOURS), np.nan)
        found[:, hours % DAY_HOURS] = np.maximum(chosen, 0.0)
        return found

    def _each(self, other: "DayPeaks", change: Callable[[AnyArray, AnyArray], AnyArray]) -> None:
        """Replace each array by `change` of it and the other's."""
        for name, value in vars(self).items():
            added = getattr(other, name)
            if isinstance(value, list):
                setattr(self, name, [change(own, new) for own, new in zip(value, added, strict=True)])
            elif isinstance(value, np.ndarray):
                setattr(self, name, change(value, added))

    def _quantile_of(self, place: int, rows: Rows) -> Values:
        """Return the quantile of past errors; the largest while there are few, NaN for none."""
        errors = np.sort(self._errors[place][rows], axis=1)
        count = np.isfinite(errors).sum(axis=1)
        # Of n errors the next one is below the ceil(q (n + 1))-th smallest with probability q.
        wanted = np.clip(np.ceil(self.quantile * (count + 1)).astype(np.int64) - 1, 0, np.maximum(count - 1, 0))
        found: Values = errors[np.arange(len(rows)), wanted].astype(np.float64)
        return found
