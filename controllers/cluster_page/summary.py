"""From nodes, reports and profiles to what the cluster page shows. Pure.

A pair is expected to lose, for each resource, the victim's sensitivity times the neighbour's aggressiveness. Of the
products of two lists the largest lie among the largest of each list, so no table of all pairs is made.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from api.crds import NodeMetric, ResourceInterference
from api.kube.losses import Loss, losses, report_age, workload_in
from api.kube.resources import CPU, QuantityError, parse_quantity
from api.kube.workload import Workload, workload_named
from api.protocol import ANNOTATION_SLOW_RATIO
from controllers.cluster_page.values import ClusterState, NodeRow, PairRow, Trait, WorkloadRow
from controllers.kinds import Node, ShownProfile

PAIRS = 50
LEAST_LOSS = 0.001
"""Expected loss from which a pair is named, in seconds per second."""


def summary(
    nodes: Iterable[Node],
    metrics: Sequence[NodeMetric],
    profiles: Iterable[ShownProfile],
    now: float,
    *,
    version: str,
    leading: bool,
) -> ClusterState:
    """Return what the page shows at a time in seconds since the epoch."""
    opened = losses(metrics, now)
    traits = _traits(profiles)
    places, replicas = _places(metrics)
    found = _pairs(traits, opened, places)
    return ClusterState(
        now=now,
        version=version,
        leading=leading,
        nodes=_nodes(nodes, metrics, opened, now),
        workloads=_workloads(traits, opened, places, replicas),
        pairs=found,
        losses=opened,
        profiles=len(traits),
    )


def _nodes(nodes: Iterable[Node], metrics: Sequence[NodeMetric], opened: Sequence[Loss], now: float) -> list[NodeRow]:
    reports = {each.metadata.name: each for each in metrics}
    mine: dict[str, list[Loss]] = defaultdict(list)
    for loss in opened:
        mine[loss.node].append(loss)
    rows = []
    for node in nodes:
        report, own = reports.get(node.name), mine[node.name]
        rows.append(
            NodeRow(
                node.name,
                sum(_figure(loss.lost_seconds_per_second) for loss in own),
                len({loss.victim for loss in own}),
                own[0] if own else None,
                _cpu_used(node, report) if report else None,
                _ratio(node.metadata.annotations.get(ANNOTATION_SLOW_RATIO)),
                report_age(report, now) if report else None,
            )
        )
    return sorted(rows, key=lambda row: (-row.lost, -(row.slow_ratio or 0), row.name))


def _cpu_used(node: Node, report: NodeMetric) -> float | None:
    usage = report.status.node_metric
    if usage is None:
        return None
    try:
        used = parse_quantity(usage.node_usage.resources.get(CPU, 0), 1000)
        capacity = parse_quantity(node.status.capacity.get(CPU, 0), 1000)
    except QuantityError:
        return None
    return used / capacity if capacity > 0 else None


def _ratio(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


def _traits(profiles: Iterable[ShownProfile]) -> dict[str, dict[str, Trait]]:
    """Return figures by workload and resource; of several profiles of a workload the largest figures."""
    found: dict[str, dict[str, Trait]] = {}
    for profile in profiles:
        named = profile.spec.workload
        path = Workload(profile.metadata.namespace, named.kind, named.name).path
        for resource in profile.status.resources:
            trait, before = _trait(resource), found.get(path, {}).get(resource.name)
            if before is not None:
                worse = max((before, trait), key=lambda each: each.sensitivity)
                aggressiveness = max(before.aggressiveness, trait.aggressiveness)
                trait = Trait(worse.sensitivity, worse.error, aggressiveness)
            found.setdefault(path, {})[resource.name] = trait
    return found


def _trait(resource: ResourceInterference) -> Trait:
    bins = resource.sensitivity
    weights = [max(each.samples, 1) for each in bins]
    total = sum(weights)
    if not total:
        return Trait(0.0, None, _figure(resource.aggressiveness))
    mean = sum(weight * _figure(each.lost_seconds_per_pressure) for weight, each in zip(weights, bins, strict=True))
    errors = [_figure(each.error) for each in bins if each.error is not None]
    return Trait(mean / total, max(errors, default=None), _figure(resource.aggressiveness))


def _places(metrics: Iterable[NodeMetric]) -> tuple[Mapping[str, set[str]], Mapping[str, int]]:
    """Return nodes and number of pods by workload."""
    places: dict[str, set[str]] = defaultdict(set)
    replicas: dict[str, int] = defaultdict(int)
    for metric in metrics:
        for pod in metric.status.pods_metric:
            workload = workload_in(pod.extensions)
            if workload:
                places[workload].add(metric.metadata.name)
                replicas[workload] += 1
    return places, replicas


def _workloads(
    traits: Mapping[str, Mapping[str, Trait]],
    opened: Iterable[Loss],
    places: Mapping[str, set[str]],
    replicas: Mapping[str, int],
) -> list[WorkloadRow]:
    lost: dict[str, float] = defaultdict(float)
    costs: dict[str, float] = defaultdict(float)
    for loss in opened:
        if loss.workload:
            lost[loss.workload] += _figure(loss.lost_seconds_per_second)
        for culprit, part in _blamed(loss):
            costs[culprit] += part
    names = {*traits, *lost, *costs}
    return [
        WorkloadRow(
            name, traits.get(name, {}), replicas.get(name, 0), len(places.get(name, ())), lost[name], costs[name]
        )
        for name in sorted(names)
    ]


def _pairs(
    traits: Mapping[str, Mapping[str, Trait]], opened: Iterable[Loss], places: Mapping[str, set[str]]
) -> list[PairRow]:
    current: dict[tuple[str, str], dict[str, float]] = {}
    for loss in opened:
        for culprit, part in _blamed(loss):
            by_resource = current.setdefault((loss.workload or loss.victim, culprit), {})
            by_resource[loss.resource] = by_resource.get(loss.resource, 0.0) + part
    rows = []
    for victim, neighbour in sorted({*_expected_most(traits), *current}):
        expected, error = _expected(traits.get(victim, {}), traits.get(neighbour, {}))
        measured = current.get((victim, neighbour), {})
        together = sorted(places.get(victim, set()) & places.get(neighbour, set())) if victim != neighbour else []
        now = sum(measured.values())
        rows.append(PairRow(victim, neighbour, sum(expected.values()), error, expected or measured, now, together))
    rows.sort(key=lambda row: (-max(row.expected, row.now), row.victim, row.neighbour))
    return rows[:PAIRS]


def _expected_most(traits: Mapping[str, Mapping[str, Trait]]) -> set[tuple[str, str]]:
    """Return victims and neighbours with the largest expected losses of each resource."""
    victims: dict[str, list[tuple[float, str]]] = defaultdict(list)
    neighbours: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for name, resources in traits.items():
        for resource, trait in resources.items():
            if trait.sensitivity > 0:
                victims[resource].append((trait.sensitivity, name))
            if trait.aggressiveness > 0:
                neighbours[resource].append((trait.aggressiveness, name))
    found: set[tuple[str, str]] = set()
    for resource, sensitive in victims.items():
        strong = sorted(neighbours[resource], reverse=True)[:PAIRS]
        products = [
            (own * other, victim, neighbour)
            for own, victim in sorted(sensitive, reverse=True)[:PAIRS]
            for other, neighbour in strong
        ]
        largest = sorted(products, reverse=True)[:PAIRS]
        found |= {(victim, neighbour) for lost, victim, neighbour in largest if lost >= LEAST_LOSS}
    return found


def _expected(victim: Mapping[str, Trait], neighbour: Mapping[str, Trait]) -> tuple[dict[str, float], float]:
    """Return expected losses by resource, and half of the interval of their sum."""
    expected, variance = {}, 0.0
    for resource, own in victim.items():
        other = neighbour.get(resource)
        lost = own.sensitivity * other.aggressiveness if other is not None else 0.0
        if other is not None and lost > 0:
            expected[resource] = lost
            variance += ((own.error or 0.0) * other.aggressiveness) ** 2
    return expected, math.sqrt(variance)


def _blamed(loss: Loss) -> Iterable[tuple[str, float]]:
    """Yield culprits that are workloads, with their parts of a loss; without shares they have none that is known."""
    whole = _figure(loss.lost_seconds_per_second)
    for culprit, share in zip(loss.culprits, loss.shares, strict=False):
        if workload_named(culprit) is not None:
            yield culprit, whole * min(_figure(share), 1.0)


def _figure(value: float) -> float:
    """Return a figure that anybody may have written: finite, not negative, and small enough to multiply."""
    return min(value, 1e9) if math.isfinite(value) and value > 0 else 0.0


def decoded(objects: Iterable[object]) -> list[ShownProfile]:
    """Return profiles from the whole ones that a controller may watch in their place."""
    return [
        each if isinstance(each, ShownProfile) else msgspec.convert(each, ShownProfile, from_attributes=True)
        for each in objects
    ]
