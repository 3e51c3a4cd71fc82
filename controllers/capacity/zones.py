"""Batch resources of the NUMA zones of one node: the node's formulas on each zone's capacity."""

from collections.abc import Mapping, Sequence

import msgspec

from api.crds import NodeMetric
from api.kube.numa import NodeResourceTopology, Zone, ZoneResource
from api.kube.resources import CPU, MEMORY
from api.protocol import BATCH_CPU, BATCH_MEMORY
from api.qos import QoSClass
from cluster.resources import Key
from controllers.capacity.pods import LOW_BANDS, Amounts, PodFacts, amount, amounts
from controllers.capacity.usage import NodeRow, is_low
from controllers.slo.colocation import ColocationStrategy

NAMES = (BATCH_CPU, BATCH_MEMORY)


def capacities(topology: NodeResourceTopology) -> dict[int, Amounts]:
    """Return millicores and bytes by NUMA node, of the zones that state both."""
    found: dict[int, Amounts] = {}
    for zone in topology.zones:
        number = zone_number(zone)
        stated = {each.name: each.capacity for each in zone.resources}
        if number is not None and CPU in stated and MEMORY in stated:
            found[number] = (amount(stated, CPU, 1000), amount(stated, MEMORY, 1))
    return found


def zone_number(zone: Zone) -> int | None:
    """Return the NUMA node of a zone named like `node-0`; None for others."""
    number = zone.name.rpartition("-")[2]
    return int(number) if zone.type in ("Node", "") and number.isdecimal() and len(number) < 4 else None


def batch_by_zone(
    capacity: Mapping[int, Amounts],
    row: NodeRow,
    metric: NodeMetric,
    pods: Mapping[Key, PodFacts],
    strategy: ColocationStrategy,
) -> dict[int, Amounts]:
    """Return batch resources by NUMA node.

    System use, reservation, pods without NUMA nodes of their own and reports of pods without an object are divided
    equally over the zones, rounded up.
    Unlike on the node, pods without a metric count with their request under `maxUsageRequest`, too.
    """
    count = max(1, len(capacity))
    taken = {number: _taken(row, strategy, count) for number in capacity}
    measured = {Key(each.namespace, each.name): each for each in metric.status.pods_metric}
    charges: list[tuple[Amounts, list[int]]] = []
    for key, facts in pods.items():
        report = measured.pop(key, None)
        if facts.band in LOW_BANDS:
            continue
        zones = [number for number in facts.numa_nodes if number in capacity] or list(capacity)
        usage = amounts(report.pod_usage.resources) if report is not None else None
        charges.append((_counted(facts, usage, strategy), zones))
    charges += [(amounts(each.pod_usage.resources), list(capacity)) for each in measured.values() if not is_low(each)]
    for amount_of, zones in charges:
        share = _each(amount_of, len(zones))
        for number in zones:
            taken[number] = (taken[number][0] + share[0], taken[number][1] + share[1])
    kept = (100 - strategy.cpu_reclaim_threshold_percent, 100 - strategy.memory_reclaim_threshold_percent)
    limits = (strategy.batch_cpu_threshold_percent, strategy.batch_memory_threshold_percent)
    found: dict[int, Amounts] = {}
    for number, have in capacity.items():
        rest = [max(0, have[index] - have[index] * kept[index] // 100 - taken[number][index]) for index in (0, 1)]
        bound = [
            have[index] if limits[index] is None else have[index] * (limits[index] or 0) // 100 for index in (0, 1)
        ]
        cpu, memory = (min(rest[i], bound[i]) if limits[i] is not None else rest[i] for i in (0, 1))
        found[number] = (cpu * round(row.normalization_ratio * 100) // 100, memory)
    return found


def _taken(row: NodeRow, strategy: ColocationStrategy, count: int) -> Amounts:
    system = tuple(
        row.system_used[index] + row.applications_prod[index] + row.applications_mid[index] for index in (0, 1)
    )
    by_request = (False, strategy.memory_calculate_policy == "request")
    both = tuple(
        row.reserved[index] if by_request[index] else max(system[index], row.reserved[index]) for index in (0, 1)
    )
    return _each((both[0], both[1]), count)


def _counted(facts: PodFacts, usage: Amounts | None, strategy: ColocationStrategy) -> Amounts:
    if usage is None:
        return facts.requests
    used = (facts.requests[0], usage[1]) if facts.qos is QoSClass.LSE else usage
    policies = (strategy.cpu_calculate_policy, strategy.memory_calculate_policy)
    chosen = [
        facts.requests[index]
        if policy == "request"
        else max(facts.requests[index], usage[index])
        if policy == "maxUsageRequest"
        else used[index]
        for index, policy in enumerate(policies)
    ]
    return chosen[0], chosen[1]


def _each(amount_of: Amounts, count: int) -> Amounts:
    return -(-amount_of[0] // count), -(-amount_of[1] // count)


def with_batch(zones: Sequence[Zone], batch: Mapping[int, Amounts] | None, share: float) -> list[Zone] | None:
    """Return the zones with their batch resources, without any for None; zones without a result get 0.

    None when no value differs by more than `share` of itself.
    """
    changed = False
    result: list[Zone] = []
    for zone in zones:
        number = zone_number(zone)
        own = [each for each in zone.resources if each.name not in NAMES]
        if batch is not None:
            values = batch.get(number, (0, 0)) if number is not None else (0, 0)
            own += [
                ZoneResource(name=name, capacity=str(value), allocatable=str(value), available=str(value))
                for name, value in zip(NAMES, values, strict=True)
            ]
        have = {
            each.name: amount({each.name: each.capacity}, each.name, 1) for each in zone.resources if each.name in NAMES
        }
        want = {each.name: int(str(each.capacity)) for each in own if each.name in NAMES}
        changed |= have.keys() != want.keys()
        changed |= any(abs(want[each] - have[each]) > have[each] * share for each in want.keys() & have.keys())
        result.append(msgspec.structs.replace(zone, resources=own))
    return result if changed else None
