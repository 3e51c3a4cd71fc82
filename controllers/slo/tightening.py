"""Thresholds of suppression ahead of a forecast peak of services. Pure.

What batch pods may use is threshold x CPUs - use of services. So when services are forecast to use more, the threshold
goes down by that growth: batch pods leave the room before the peak, not in its first minutes. As the use comes, the
growth that is left shrinks and the threshold goes up again.
"""

import math
from collections.abc import Mapping
from typing import Any

from api.kube.resources import CPU, QuantityError, parse_quantity
from controllers.capacity.forecasts import ServicePeak
from controllers.slo.layers import Plain

SUPPRESS = "cpuSuppressThresholdPercent"
STEP = 5.0
"""Percent in which a threshold is lowered; it is raised from half a step more while a growth is left, so
that it does not swing."""


def growth_percent(capacity: Mapping[str, Any], peak: ServicePeak | None, now: float, lead_seconds: float) -> float:
    """Return what services are forecast to use on top within the lead, in percent of the node's CPUs."""
    try:
        millicores = parse_quantity(capacity.get(CPU, 0), 1000)
    except QuantityError:
        return 0.0
    if peak is None or millicores <= 0:
        return 0.0
    return 100.0 * peak.growth_millicores(now, lead_seconds) / millicores


def lowered(strategy: Plain, percent: float, current: object, most: int = 100) -> Plain:
    """Return a threshold strategy with its suppression lowered by a growth, by `most` at most.

    `current` is the threshold in effect. Without growth the strategy is returned as it is: whether `current` is less
    because of an earlier growth or of an earlier configuration is not known.
    """
    threshold = strategy.get(SUPPRESS)
    if percent <= 0 or not strategy.get("enable") or not isinstance(threshold, int):
        return strategy
    percent = min(percent, most)
    before = threshold - current if isinstance(current, int) and current <= threshold else 0
    held = 0 < before <= most and before - 1.5 * STEP < percent <= before
    points = before if held else min(math.ceil(percent / STEP - 1e-9) * STEP, most)
    return {**strategy, SUPPRESS: max(int(threshold - points), 0)} if points else strategy
