"""Usage of nodes against thresholds: which are low, which are high, and how much room the low ones have."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.kube.objects import Node
from api.kube.resources import Resources, total
from api.kube.times import epoch_seconds
from cluster.resources import Key
from controllers.descheduler.cluster_view import Cluster, allocatable, amounts, is_prod

Percents = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Load:
    """What a node has and uses; amounts by resource."""

    node: Node
    capacity: Resources
    used: Resources
    prod_used: Resources
    pods: Mapping[Key, Resources]
    """Reported usage of its pods."""

    @property
    def schedulable(self) -> bool:
        """Whether pods may go there."""
        return not self.node.spec.unschedulable


@dataclass(frozen=True, slots=True)
class Levels:
    """Amounts of one node below which it is low and above which it is high."""

    low: Resources
    high: Resources
    prod_low: Resources
    prod_high: Resources


class Group(StrEnum):
    """Class of a node; the first condition that holds decides."""

    LOW = "low"
    BOTH_LOW = "both-low"
    HIGH = "high"
    PROD_HIGH = "prod-high"
    PROD_LOW = "prod-low"
    NORMAL = "normal"


def load_of(cluster: Cluster, node: Node, now: float, expiration_seconds: float) -> Load | None:
    """Return the load of a node; None without a fresh report.

    The usage is that of the system and of the pods; host applications are not in it, as in Koordinator.
    """
    metric = cluster.metrics.get(Key("", node.name))
    if metric is None or metric.status.node_metric is None:
        return None
    updated = epoch_seconds(metric.status.update_time)
    if updated is None or now - updated > expiration_seconds:
        return None
    pods = cluster.metric_of_pods(node.name)
    here = cluster.pods_by_node.get(node.name, ())
    prod = {Key(pod.metadata.namespace, pod.metadata.name) for pod in here if is_prod(pod)}
    system = amounts(metric.status.node_metric.system_usage.resources)
    return Load(
        node,
        allocatable(node),
        {**total([system, *pods.values()]), "pods": len(here)},
        {**total(used for key, used in pods.items() if key in prod), "pods": len(prod)},
        pods,
    )


def shares(load: Load, used: Resources, name: str) -> float:
    """Return the percent of a node's capacity that is used of a resource; 0 where it has none."""
    have = load.capacity.get(name, 0)
    return 100.0 * used.get(name, 0) / have if have else 0.0


def thresholds(
    low: Percents, high: Percents, loads: Sequence[Load], *, deviation: bool, prod: bool = False
) -> tuple[Percents, Percents]:
    """Return both thresholds in percent of capacity, by resource.

    With `deviation` they are distances from the mean of the nodes. A resource without a low threshold never counts.
    """
    names = (low.keys() | high.keys()) | ({"memory"} if high else set())
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    for name in names:
        if name not in low or name not in high:
            lows[name] = highs[name] = 100.0
        elif not deviation:
            lows[name], highs[name] = low[name], high[name]
        elif low[name] == 0:
            lows[name] = highs[name] = 100.0
        else:
            used = [shares(each, each.prod_used if prod else each.used, name) for each in loads]
            mean = sum(used) / len(used) if used else 0.0
            lows[name] = min(100.0, max(0.0, mean - low[name]))
            highs[name] = min(100.0, max(0.0, mean + high[name]))
    return lows, highs


def level(percents: Percents, capacity: Resources) -> Resources:
    """Return percents of a capacity as amounts, cut to whole numbers."""
    return {name: int(percent * 0.01 * capacity.get(name, 0)) for name, percent in percents.items()}


def above(used: Resources, levels: Resources) -> list[str]:
    """Return the resources of which more than the level is used."""
    return sorted(name for name, limit in levels.items() if used.get(name, 0) > limit)


def group_of(load: Load, levels: Levels) -> Group:
    """Return the class of a node."""
    prod_high = bool(levels.prod_high) and bool(above(load.prod_used, levels.prod_high))
    prod_low = bool(levels.prod_low) and not above(load.prod_used, levels.prod_low)
    if load.schedulable and not above(load.used, levels.low):
        return Group.PROD_HIGH if prod_high else Group.BOTH_LOW if prod_low else Group.LOW
    if above(load.used, levels.high):
        return Group.HIGH
    if prod_high:
        return Group.PROD_HIGH
    return Group.PROD_LOW if prod_low and load.schedulable else Group.NORMAL


def usage_score(load: Load, used: Resources, weights: Mapping[str, int]) -> float:
    """Return how full a node is, 0 to 1000: the weighted mean of its resources."""
    whole = sum(weights.values())
    if not whole:
        return 0.0
    parts = (
        weight * (min(used.get(name, 0), load.capacity[name]) * 1000 // load.capacity[name])
        for name, weight in weights.items()
        if load.capacity.get(name)
    )
    return sum(parts) / whole


class AnomalyDetector:
    """Rounds in which a node was over its thresholds: after one peak pods would move there and back."""

    def __init__(self, timeout_seconds: float, abnormalities: int, normalities: int) -> None:
        self.anomalous = False
        self.used_seconds = 0.0
        self._timeout_seconds = timeout_seconds
        self._abnormalities = abnormalities
        self._normalities = normalities
        self._in_a_row = 0
        self._until_seconds = 0.0

    def mark(self, *, abnormal: bool, now: float) -> bool:
        """Count a round; returns whether the node counts as anomalous."""
        self.used_seconds = now
        if self.anomalous and now >= self._until_seconds:
            self.reset()
        if self._abnormalities <= 1:
            self._set(anomalous=abnormal, now=now)
            return self.anomalous
        if abnormal is self.anomalous:
            self._in_a_row = 0
            return self.anomalous
        self._in_a_row += 1
        if self._in_a_row > (self._normalities if self.anomalous else self._abnormalities):
            self._set(anomalous=not self.anomalous, now=now)
        return self.anomalous

    def reset(self) -> None:
        """Forget all rounds."""
        self.anomalous, self._in_a_row = False, 0

    def _set(self, *, anomalous: bool, now: float) -> None:
        self.anomalous, self._in_a_row = anomalous, 0
        self._until_seconds = now + self._timeout_seconds
