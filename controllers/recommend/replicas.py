"""How many replicas a workload needs, and at what use an autoscaler should add one. Pure.

    target = expected / bound x (1 - harm)
    min    = lowest bound of the coming day / (request x target)
    max    = highest bound of the coming week x margin / (request x target)

`bound` is the forecast peak of an hour, `expected` the same without the spread of its past errors: what an autoscaler
cannot know ahead is left free. `harm` is the part of its progress that a replica loses while neighbours use as much of
the node as `pressure` says: it then does as much less, as if it were smaller.
"""

import math

import msgspec
import numpy as np

from detector.histograms import Values

DAY_HOURS, WEEK_HOURS = 24, 168


class ReplicaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of replica recommendations."""

    margin_ratio: float = 1.5
    """Of the highest forecast, for the largest number of replicas."""
    pressure: float = 0.5
    """Share of a node's CPUs that neighbours are taken to use."""
    lowest_target: float = 0.2
    highest_target: float = 0.9
    most_harm: float = 0.5
    """Part of a replica's progress that is taken to be lost at most."""


DEFAULTS = ReplicaSettings()


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What the recommendation follows from."""

    request_cores: float
    """CPU request of one replica."""
    replicas: int
    """At present."""
    sensitivity: float = 0.0
    """Seconds lost a second per unit of neighbours' pressure on the CPU."""


class ReplicaAdvice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Bounds and target of a HorizontalPodAutoscaler."""

    min_replicas: int
    max_replicas: int
    target_cpu_utilization_percent: int
    lowest_cores: float
    """Lowest forecast peak of an hour in the coming day."""
    highest_cores: float
    """Highest forecast peak of an hour in the coming week."""
    harm: float


def advice(bounds: Values, spread: float, demand: Demand, settings: ReplicaSettings = DEFAULTS) -> ReplicaAdvice | None:
    """Return the recommendation from the bounds of the coming hours and the spread in them, in cores.

    None without a request, or with no forecast for some hour of the coming day.
    """
    day, week = bounds[:DAY_HOURS], bounds[np.isfinite(bounds)][:WEEK_HOURS]
    if not demand.request_cores > 0 or len(day) < DAY_HOURS or not np.isfinite(day).all() or not math.isfinite(spread):
        return None
    lowest, highest = float(day.min()), float(week.max())
    expected = max(highest - max(spread, 0.0), 0.0)
    harm = min(max(demand.sensitivity, 0.0) * settings.pressure, settings.most_harm)
    target = (expected / highest if highest > 0 else settings.highest_target) * (1.0 - harm)
    target = min(max(target, settings.lowest_target), settings.highest_target)
    each = demand.request_cores * target
    # One replica is no more available than its node: who runs several keeps two.
    least = max(math.ceil(lowest / each - 1e-9), 2 if demand.replicas > 1 else 1)
    most = max(math.ceil(highest * settings.margin_ratio / each - 1e-9), least + 1)
    return ReplicaAdvice(
        min_replicas=least,
        max_replicas=most,
        target_cpu_utilization_percent=round(100 * target),
        lowest_cores=round(lowest, 3),
        highest_cores=round(highest, 3),
        harm=round(harm, 4),
    )


def why(own: ReplicaAdvice, demand: Demand, settings: ReplicaSettings = DEFAULTS) -> list[str]:
    """Return lines that say what the recommendation follows from."""
    target = own.target_cpu_utilization_percent
    each = demand.request_cores * target / 100
    aim = (
        f"replicas: target {target} % of the CPU request = expected / bound of the busiest forecast hour, less"
        f" {100 * own.harm:.0f} % that neighbours cost at a pressure of {settings.pressure:g}"
        f" (sensitivity {demand.sensitivity:.3g})"
    )
    least = (
        f"replicas: at least {own.min_replicas} = {own.lowest_cores:g} cores, the lowest hour of the coming day, at"
        f" {each:.3g} cores a replica"
    )
    most = (
        f"replicas: at most {own.max_replicas} = {own.highest_cores:g} cores, the highest hour of the coming week,"
        f" x {settings.margin_ratio:g} at {each:.3g} cores a replica"
    )
    return [aim, least + (", two since several run" if demand.replicas > 1 else ""), most]
