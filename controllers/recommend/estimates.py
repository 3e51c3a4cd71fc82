"""Requests from histograms of usage: percentile, safety margin, bounds that widen where history is short. Pure.

Defaults and formulas are those of the Vertical Pod Autoscaler's recommender, so that a user of it finds equal figures.
"""

from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from controllers.recommend.usage import Usage
from detector.histograms import DecayingHistograms, Rows, Values

MAX_AMOUNT = 1e14
"""Of a bound that nothing is known of, in units of the resource (bytes, millicores)."""


class RecommendSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of recommendations."""

    target_quantile: float = 0.9
    lower_quantile: float = 0.5
    upper_quantile: float = 0.95
    margin_ratio: float = 0.15
    """Added to every percentile."""
    confidence_seconds: float = 24 * 3600.0
    """History, with a sample a minute, for a confidence of 1."""
    min_cpu_millicores: float = 25.0
    """Least CPU of a pod, shared by its containers."""
    min_memory_bytes: float = float(250 << 20)
    """Least memory of a pod, shared by its containers."""


DEFAULTS = RecommendSettings()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Recommended amounts of one resource, each of shape (containers,); NaN without a sample."""

    lower: Values
    target: Values
    upper: Values


@dataclass(frozen=True, slots=True)
class Recommendations:
    """Of some containers: CPU in millicores, memory in bytes, whole and rounded up; confidence in days of history."""

    cpu_millicores: Bounds
    memory_bytes: Bounds
    confidence: Values


def recommend(
    usage: Usage, rows: Rows, containers_of_pod: NDArray[np.int64] | int = 1, settings: RecommendSettings = DEFAULTS
) -> Recommendations:
    """Return the recommendations of some containers; `containers_of_pod` share the least amounts of their pod."""
    known = confidence(usage, rows, settings.confidence_seconds)
    share = np.maximum(containers_of_pod, 1)
    cpu = _bounds(usage.cpu, rows, known, 1000.0, settings.min_cpu_millicores / share, settings)
    memory = _bounds(usage.memory, rows, known, 1.0, settings.min_memory_bytes / share, settings)
    return Recommendations(cpu, memory, known)


def confidence(usage: Usage, rows: Rows, interval_seconds: float) -> Values:
    """Return min(length of the history, samples at one a minute) in units of the interval; 0 without a sample."""
    length = (usage.last_cpu_seconds[rows] - usage.first_cpu_seconds[rows]) / interval_seconds
    samples = usage.cpu_samples[rows] / (interval_seconds / 60.0)
    return np.nan_to_num(np.minimum(length, samples), nan=0.0)


def widened(amounts: Values, confidence: Values, multiplier: float, exponent: float) -> Values:
    """Return amount x (1 + multiplier / confidence) ** exponent; without confidence the largest amount, or none."""
    if exponent > 0:
        none = np.full_like(amounts, MAX_AMOUNT)
    else:
        none = np.zeros_like(amounts)
    factor = (1.0 + multiplier / np.where(confidence > 0, confidence, 1.0)) ** exponent
    return np.minimum(np.where(confidence > 0, amounts * factor, none), MAX_AMOUNT)


def _bounds(
    histograms: DecayingHistograms,
    rows: Rows,
    confidence: Values,
    unit: float,
    least: Values | float,
    settings: RecommendSettings,
) -> Bounds:
    margin = 1.0 + settings.margin_ratio
    lower, target, upper = (
        histograms.percentile(rows, quantile) * margin * unit
        for quantile in (settings.lower_quantile, settings.target_quantile, settings.upper_quantile)
    )
    empty = histograms.is_empty(rows) if len(rows) else np.zeros(0, np.bool_)

    def whole(amounts: Values) -> Values:
        # A product such as 0.5 x 1.15 x 1000 may miss a whole number by a last bit.
        return np.where(empty, np.nan, np.ceil(np.maximum(amounts, least) - 1e-6))

    return Bounds(
        whole(widened(lower, confidence, 0.001, -2.0)), whole(target), whole(widened(upper, confidence, 1.0, 1.0))
    )
