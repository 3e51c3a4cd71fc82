"""What batch and mid work may have of each node: Koordinator's formulas over columns, with every term by name.

Pairs are int64[nodes, 2]: millicores and bytes. The functions state the terms so that a value can be explained.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controllers.capacity.table import Floats, NodeTable, Pairs
from controllers.slo.colocation import ColocationStrategy

USAGE, REQUEST, MAX_USAGE_REQUEST = 0, 1, 2
_POLICIES = {"usage": USAGE, "request": REQUEST, "maxUsageRequest": MAX_USAGE_REQUEST}
UNLIMITED = 1 << 40
"""Percent that limits nothing."""
MOST_PERCENT = 10_000
"""Percents are cut here: a hundredfold capacity is a slip."""


@dataclass(frozen=True, slots=True)
class StrategyColumns:
    """Strategies of all nodes, one row each."""

    enable: npt.NDArray[np.bool_]
    reclaim_percent: Pairs
    policy: Pairs
    batch_limit_percent: Pairs
    """`UNLIMITED` for no limit."""
    mid_limit_percent: Pairs
    mid_static: npt.NDArray[np.bool_]
    mid_static_percent: Pairs
    mid_unallocated_percent: npt.NDArray[np.int64]
    degrade_seconds: Floats
    update_seconds: Floats
    difference: Floats


def _cut(percent: int) -> int:
    return percent if percent == UNLIMITED else min(percent, MOST_PERCENT)


def strategy_columns(strategies: Sequence[ColocationStrategy]) -> StrategyColumns:
    """Return strategies as columns."""

    def column(values: list[int]) -> npt.NDArray[np.int64]:
        return np.array(values, dtype=np.int64)

    def pairs(values: list[tuple[int, int]]) -> Pairs:
        cut = [(_cut(cpu), _cut(memory)) for cpu, memory in values]
        return np.array(cut, dtype=np.int64).reshape(len(values), 2)

    def limit(percent: int | None) -> int:
        return UNLIMITED if percent is None else percent

    return StrategyColumns(
        enable=np.array([each.enable for each in strategies], dtype=np.bool_),
        reclaim_percent=pairs(
            [(each.cpu_reclaim_threshold_percent, each.memory_reclaim_threshold_percent) for each in strategies]
        ),
        policy=pairs(
            [(_POLICIES[each.cpu_calculate_policy], _POLICIES[each.memory_calculate_policy]) for each in strategies]
        ),
        batch_limit_percent=pairs(
            [
                (limit(each.batch_cpu_threshold_percent), limit(each.batch_memory_threshold_percent))
                for each in strategies
            ]
        ),
        mid_limit_percent=pairs(
            [(each.mid_cpu_threshold_percent, each.mid_memory_threshold_percent) for each in strategies]
        ),
        mid_static=np.array([each.mid_reclaim_mode == "static" for each in strategies], dtype=np.bool_),
        mid_static_percent=pairs(
            [(each.mid_static_cpu_reserved_percent, each.mid_static_memory_reserved_percent) for each in strategies]
        ),
        mid_unallocated_percent=column([each.mid_unallocated_percent for each in strategies]),
        degrade_seconds=np.array([60.0 * min(each.degrade_time_minutes, 1 << 30) for each in strategies]),
        update_seconds=np.array([float(min(each.update_time_threshold_seconds, 1 << 40)) for each in strategies]),
        difference=np.array([each.resource_diff_threshold for each in strategies]),
    )


@dataclass(frozen=True, slots=True)
class BatchTerms:
    """Terms of batch resources."""

    safety_margin: Pairs
    """Negative where the reclaim percent exceeds 100."""
    system_used: Pairs
    """With host applications of prod and mid."""
    taken_by_system: Pairs
    """The larger of use and reservation; the reservation alone under `request`."""
    taken_by_pods: Pairs
    before_limit: Pairs
    limit: Pairs
    normalized: Pairs
    """The result before anything of Koord's own and before third parties."""


def batch(table: NodeTable, strategy: StrategyColumns) -> BatchTerms:
    """Return batch resources: capacity less margin, system and pods of higher bands, by policy; floor 0."""
    margin = percent_of(table.capacity, 100 - strategy.reclaim_percent)
    system = table.system_used + table.applications_prod + table.applications_mid
    by_request = strategy.policy == REQUEST
    taken = np.where(by_request, table.reserved, np.maximum(system, table.reserved))
    pods = np.select(
        [by_request, strategy.policy == MAX_USAGE_REQUEST],
        [table.high_request, table.high_max_used_request],
        table.high_used,
    )
    rest = np.maximum(table.capacity - margin - taken - pods, 0)
    limit = limit_of(table.capacity, strategy.batch_limit_percent)
    return BatchTerms(margin, system, taken, pods, rest, limit, normalize(np.minimum(rest, limit), table))


def normalize(values: Pairs, table: NodeTable) -> Pairs:
    """Return values with the cpu multiplied by the node's ratio, cut to whole millicores."""
    result = values.copy()
    ratio = np.maximum(table.normalization_ratio, 1.0)
    # A ratio has two decimals: integers keep 25000 * 1.2 from becoming 29999.
    result[:, 0] = values[:, 0] * np.rint(ratio * 100).astype(np.int64) // 100
    return result


@dataclass(frozen=True, slots=True)
class MidTerms:
    """Terms of mid resources."""

    unused: Pairs
    reclaimable: Pairs
    """The smaller of what prod pods will leave and what is not used."""
    unallocated: Pairs
    limit: Pairs
    result: Pairs


def mid(table: NodeTable, strategy: StrategyColumns) -> MidTerms:
    """Return mid resources: what prod leaves and a share of what is not requested, or a fixed share of capacity."""
    unused = np.where(table.node_used_known[:, None], np.maximum(table.capacity - table.node_used, 0), 0)
    reclaimable = np.minimum(table.prod_reclaimable, unused)
    system = np.maximum(table.system_used + table.applications_prod, table.reserved)
    unallocated = np.maximum(table.capacity - system - table.prod_request, 0)
    dynamic = reclaimable + percent_of(unallocated, strategy.mid_unallocated_percent[:, None])
    fixed = percent_of(table.capacity, strategy.mid_static_percent)
    limit = limit_of(table.capacity, strategy.mid_limit_percent)
    result = np.minimum(np.where(strategy.mid_static[:, None], fixed, dynamic), limit)
    return MidTerms(unused, reclaimable, unallocated, limit, result)


def degraded(table: NodeTable, strategy: StrategyColumns, now: float, heard_since: float) -> npt.NDArray[np.bool_]:
    """Return the nodes whose resources are withdrawn: no report yet, or an old one.

    What could not come in while the API server was away does not count: a report is as old as the later of its own
    time and `heard_since`.
    """
    last = np.maximum(table.updated_seconds, heard_since)
    return np.isnan(table.updated_seconds) | (now - last > strategy.degrade_seconds)


def percent_of(values: Pairs, percent: npt.NDArray[np.int64]) -> Pairs:
    """Return a percent of each value, rounded down; exact for up to 90 PiB."""
    hundreds, rest = np.divmod(values, 100)
    product: Pairs = hundreds * percent + rest * percent // 100
    return product


def limit_of(capacity: Pairs, percent: Pairs) -> Pairs:
    """Return a percent of capacity as a limit; `UNLIMITED` gives one that nothing reaches."""
    unlimited = percent >= UNLIMITED
    return np.where(unlimited, np.int64(1) << np.int64(62), percent_of(capacity, np.where(unlimited, 0, percent)))
