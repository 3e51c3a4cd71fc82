"""What requests and limits would have changed: the loss a larger request cures, the limit without throttling. Pure.

Below its request a container is entitled to the CPUs that it waits for; what it waits beyond is the node's to give. So
of the loss to neighbours, a request of r cores cures what is waited below r: min(wait, max(0, r - use)) in each sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controllers.recommend.usage import CPU_BUCKETS, HALF_LIFE_SECONDS
from detector.histograms import DecayingHistograms, Rows, Values

DEMAND_QUANTILE = 0.99
"""Of the samples that a limit is to leave without throttling."""
DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of aggregates, shapes (aggregates,); times in seconds a day of one replica."""

    waited: Values
    """Lost to neighbours, waiting for a CPU."""
    curable: Values
    """Part of it that the recommended request would have cured, beyond what the present one entitles to."""
    throttled: Values
    """Lost to the own quota."""
    unthrottled_millicores: Values
    """Limit that leaves all but a hundredth of the samples without throttling; NaN where nothing was throttled."""


def curable_wait(cores: Values, wait: Values, request: Values, target: Values) -> Values:
    """Return the wait that a request of `target` instead of `request` would have cured; all in cores, any one shape."""
    entitled = np.minimum(wait, np.maximum(request - cores, 0.0))
    proposed = np.minimum(wait, np.maximum(target - cores, 0.0))
    cured: Values = np.maximum(proposed - entitled, 0.0)
    return cured


def losses(
    aggregates: Rows,
    times_seconds: Values,
    columns: Sequence[Values],
    *,
    requests: Values,
    targets: Values,
) -> Losses:
    """Return the losses of aggregates from samples of shape (samples,).

    `columns` are cores used, seconds a second waited for neighbours, and seconds a second throttled; NaN, not
    measured, is no loss. `requests` and `targets` are in cores, shape (aggregates,); a request of NaN is none.
    """
    cores, wait, throttled = (np.nan_to_num(column, nan=0.0) for column in columns)
    count = len(targets)
    request, target = np.nan_to_num(requests, nan=0.0)[aggregates], np.nan_to_num(targets, nan=0.0)[aggregates]
    samples = np.bincount(aggregates, minlength=count)

    def a_day(column: Values) -> Values:
        total = np.bincount(aggregates, weights=column, minlength=count)
        return np.asarray(total / np.maximum(samples, 1) * DAY_SECONDS)

    return Losses(
        a_day(wait),
        a_day(curable_wait(cores, wait, request, target)),
        a_day(throttled),
        _unthrottled(aggregates, times_seconds, cores, throttled, count),
    )


def _unthrottled(
    aggregates: Rows, times_seconds: Values, cores: Values, throttled: NDArray[np.float64], count: int
) -> Values:
    """Return the quantile of use plus throttled time: with so much CPU no thread would have waited for the quota."""
    demand = DecayingHistograms(CPU_BUCKETS, HALF_LIFE_SECONDS)
    demand.resize(count)
    demand.add_many(aggregates, cores + throttled, times_seconds)
    wanted: Values = np.ceil(demand.percentile(np.arange(count), DEMAND_QUANTILE) * 1000.0)
    has_loss = np.bincount(aggregates, weights=throttled, minlength=count) > 0
    return np.where(has_loss, wanted, np.nan)
