"""Batch and mid resources of every node, as extended resources of its status, and of its NUMA zones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import msgspec
import numpy as np
import numpy.typing as npt

from api.kube.times import rfc3339
from api.protocol import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from cluster.events import Event
from cluster.resources import Key, Resource
from controllers.capacity import formulas, interference, third_party, zones
from controllers.capacity.cooldown import cooling_until
from controllers.capacity.forecasts import NodeForecasts
from controllers.capacity.interference import ANNOTATION_FACTOR, Factor, InterferenceSettings
from controllers.capacity.pods import Amounts, total
from controllers.capacity.publish import status_patch, worth_it
from controllers.capacity.slowness import slow_ratio
from controllers.capacity.table import NodeNumbers, NodeTable
from controllers.kinds import NODE, NODE_METRIC, NODE_RESOURCE_TOPOLOGY, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import AnyProjection, View
from controllers.runtime.writes import Write, Writes, kind_name, patch, reference
from controllers.slo.colocation import ANNOTATION_COLOCATION_STRATEGY, LABEL_RATIOS, ColocationStrategy, of_node
from controllers.slo.config import COLOCATION
from controllers.slo.layers import Layers
from controllers.slo.table import SloConfigs, config_of, fault_events

BATCH = (BATCH_CPU, BATCH_MEMORY)
MID = (MID_CPU, MID_MEMORY)
SEVERAL = 3
"""Nodes from which all of them silent at once is rather an outage than the fault of each."""


class OvercommitSettings(ControllerSettings, frozen=True, kw_only=True):
    """Table `[controllers.overcommit]`. Whether and how a node is overcommitted says the ConfigMap."""

    interference: InterferenceSettings = InterferenceSettings()
    forecast: bool = False
    """Sell of mid no more than the node's forecast peak of this hour leaves (docs/forecast.md)."""
    hold_after_eviction: bool = True
    """Sell no more than batch pods hold while the node asks for its eviction cooldown, which is off by default."""


@dataclass(frozen=True, slots=True)
class _Results:
    """Everything about all nodes that a plan and an explanation need, row by row."""

    table: NodeTable
    strategies: list[ColocationStrategy]
    sources: list[str]
    refused: list[list[str]]
    columns: formulas.StrategyColumns
    batch: formulas.BatchTerms
    mid: formulas.MidTerms
    old: npt.NDArray[np.bool_]
    held: bool
    """True while all reports are old at once."""


class Overcommit(Controller[OvercommitSettings]):
    """Publishes and withdraws batch and mid resources."""

    settings_type = OvercommitSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE_RESOURCE_TOPOLOGY,)
    projections: ClassVar[tuple[type[AnyProjection], ...]] = (SloConfigs, NodeNumbers, NodeForecasts)
    period_seconds: ClassVar[float] = 30.0

    def plan(self, view: View, now: float) -> Writes:
        """Return the nodes whose resources come, go or differ enough."""
        config = config_of(view, self.config_map)
        warnings = fault_events(config, self.config_map)
        layers = config.layers(COLOCATION)
        table = view.of(NodeNumbers)
        if layers is None or not table.names:
            return Writes((), warnings)
        results = _results(view, layers, table, now, self._ahead(view))
        nodes, writes = view.objects(NODE), []
        for row, name in enumerate(table.names):
            node = nodes[Key("", name)]
            warnings += [_warning(node, problem) for problem in results.refused[row]]
            writes += self._node(view, node, results, row, now, warnings)
        return Writes(writes, warnings)

    def _node(
        self, view: View, node: Node, results: _Results, row: int, now: float, warnings: list[Event]
    ) -> list[Write]:
        strategy = results.strategies[row]
        if strategy.enable and results.old[row] and results.held:
            return []
        factor, moved = self._factor(view, node, results, row, now)
        annotations: dict[str, str | None] = {}
        sold: Amounts | None = None
        held_by_others = (0, 0)
        if strategy.enable and not results.old[row]:
            sold, held_by_others, problem = _sold(node, results, row, factor)
            if problem:
                warnings.append(_warning(node, f"annotation {third_party.ANNOTATION_THIRD_PARTY}: {problem}"))
            sold = self._held(view, results, row, sold, now)
            if any(held_by_others) or third_party.ANNOTATION_ORIGIN in node.metadata.annotations:
                before = _multiplied(results, row, factor)
                if third_party.origin_of(node.metadata.annotations) != before:
                    annotations[third_party.ANNOTATION_ORIGIN] = third_party.origin_text(before)
        if sold is None and third_party.ANNOTATION_ORIGIN in node.metadata.annotations:
            annotations[third_party.ANNOTATION_ORIGIN] = None
        wanted: dict[str, int | None] = dict.fromkeys((*BATCH, *MID))
        if sold is not None:
            wanted = dict(zip((*BATCH, *MID), (*sold, *_pair(results.mid.result, row)), strict=True))
        if moved is not None:
            annotations[ANNOTATION_FACTOR] = msgspec.json.encode(moved).decode()
        writes = _zone_writes(view, node, results, row, withdrawn=sold is None)
        body = status_patch(node, wanted)
        if not body and not annotations:
            return writes
        if not strategy.enable:
            reason = "colocation is off for the node"
        elif sold is None:
            reason = _age(results.table, row, now)
        else:
            reason = _sentence(results, row, sold, factor, held_by_others)
        return [*self._writes(view, node, strategy, body, wanted, annotations, reason, now), *writes]

    def _writes(
        self,
        view: View,
        node: Node,
        strategy: ColocationStrategy,
        body: Mapping[str, Any],
        wanted: Mapping[str, int | None],
        annotations: Mapping[str, str | None],
        reason: str,
        now: float,
    ) -> list[Write]:
        writes: list[Write] = []
        timely = bool(body) and worth_it(
            node,
            wanted,
            share=strategy.resource_diff_threshold,
            update_seconds=strategy.update_time_threshold_seconds,
            written_seconds=view.written_seconds(NODE, Key("", node.name)),
            now=now,
        )
        if timely:
            event = None
            came, went = _came_and_went(node, wanted)
            if came or went:
                verb = "publishes" if came else "withdraws"
                note = f"koord-manager {verb} {', '.join(came or went)}: {reason}"
                event = Event(reference(NODE, node), "Overcommit", note, "Publish", "Normal" if came else "Warning")
            writes.append(patch(NODE, node, body, reason, subresource="status", event=event))
        if annotations and (writes or not body or ANNOTATION_FACTOR in annotations):
            writes.append(patch(NODE, node, {"metadata": {"annotations": dict(annotations)}}, reason))
        return writes

    def _held(self, view: View, results: _Results, row: int, sold: Amounts, now: float) -> Amounts:
        """Return what is sold, no more than batch pods hold while the node cools down after an eviction."""
        name = results.table.names[row]
        metric = view.objects(NODE_METRIC).get(Key("", name))
        if not self.settings.hold_after_eviction or cooling_until(metric, now) is None:
            return sold
        pods = total(facts.batch for facts in results.table.pods.get(name, {}).values())
        return min(sold[0], pods[0]), min(sold[1], pods[1])

    def _ahead(self, view: View) -> Mapping[str, Amounts]:
        """Return forecast peaks by node; none unless the settings ask for them."""
        return view.of(NodeForecasts) if self.settings.forecast else {}

    def _factor(self, view: View, node: Node, results: _Results, row: int, now: float) -> tuple[Factor, Factor | None]:
        """Return the factor in effect, and the state to write if it moved; a slow node's CPUs are worth less."""
        settings = self.settings.interference
        slow = slow_ratio(node.metadata.annotations)
        if not settings.enabled or not results.strategies[row].enable or results.old[row]:
            return Factor(cpu=round(1.0 / slow, 3)), None
        state = interference.factor_of(node.metadata.annotations, settings)
        loss = interference.loss_of(view.objects(NODE_METRIC).get(Key("", node.name)), now)
        moved = interference.step(state, loss, settings, now)
        in_effect = msgspec.structs.replace(moved, cpu=round(moved.cpu / slow, 3))
        return in_effect, None if moved is state else moved

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return inputs with their times, the formula with its terms, and the limits that acted."""
        table = view.of(NodeNumbers)
        if kind != kind_name(NODE) or key.name not in table.index:
            return ()
        layers = config_of(view, self.config_map).layers(COLOCATION)
        if layers is None:
            return [f"{COLOCATION} is not readable: everything stays as it is"]
        row = table.index[key.name]
        node = view.objects(NODE)[Key("", key.name)]
        results = _results(view, layers, table, now, self._ahead(view))
        factor, _ = self._factor(view, node, results, row, now)
        lines = _explanation(node, results, row, factor, now)
        metric = view.objects(NODE_METRIC).get(Key("", key.name))
        until = cooling_until(metric, now)
        if until is not None and self.settings.hold_after_eviction:
            lines.append(f"pods were evicted: until {rfc3339(until)} no more is sold than batch pods hold")
        ahead = self._ahead(view).get(key.name)
        if ahead is not None:
            lines.append(
                f"forecast: use of this hour peaks at {ahead[0]}m and {ahead[1]} bytes, which mid leaves alone"
            )
        if self.settings.interference.enabled:
            loss = interference.loss_of(view.objects(NODE_METRIC).get(Key("", key.name)), now)
            lines.append(
                f"interference: for each second that they use services lose {loss.cpu:.3f} to cpu and {loss.memory:.3f}"
                f" to memory ({', '.join(loss.victims) or 'no victims'}); factor {factor.cpu} and {factor.memory}"
                f" since {factor.at or 'ever'}"
            )
        return lines


def _with_peaks(table: NodeTable, ahead: Mapping[str, Amounts]) -> NodeTable:
    """Return a table whose nodes use what they are forecast to, where that is more."""
    if not ahead:
        return table
    peaks = np.array([ahead.get(name, (0, 0)) for name in table.names], dtype=np.int64).reshape(len(table.names), 2)
    return replace(table, node_used=np.maximum(table.node_used, peaks))


def _results(view: View, layers: Layers, table: NodeTable, now: float, ahead: Mapping[str, Amounts]) -> _Results:
    nodes = view.objects(NODE)
    strategies, sources, refused = [], [], []
    known: dict[tuple[object, ...], tuple[ColocationStrategy, list[str]]] = {}
    for name in table.names:
        meta = nodes[Key("", name)].metadata
        index = layers.entry_for(meta.labels)
        # Nodes of one pool have one strategy: it is built once.
        own = (
            index,
            meta.annotations.get(ANNOTATION_COLOCATION_STRATEGY),
            *(meta.labels.get(label) for label in LABEL_RATIOS),
        )
        if own not in known:
            known[own] = of_node(layers.strategy(index), meta.labels, meta.annotations)
        strategies.append(known[own][0])
        refused.append(known[own][1])
        sources.append(layers.source(index))
    columns = formulas.strategy_columns(strategies)
    old = formulas.degraded(table, columns, now, view.heard_since_seconds)
    reported = table.updated_seconds[~np.isnan(table.updated_seconds)]
    longest = 2.0 * float(columns.degrade_seconds.max())
    silent = float(now - reported.max()) if len(reported) else 0.0
    held = len(reported) >= SEVERAL and bool(old.all()) and silent < longest
    return _Results(
        table,
        strategies,
        sources,
        refused,
        columns,
        formulas.batch(table, columns),
        formulas.mid(_with_peaks(table, ahead), columns),
        old,
        held,
    )


def _pair(values: npt.NDArray[np.int64], row: int) -> Amounts:
    return int(values[row, 0]), int(values[row, 1])


def _multiplied(results: _Results, row: int, factor: Factor) -> Amounts:
    """Return batch resources times the factor; a factor above 1 sells no more than is free."""
    batch = results.batch
    found = []
    for index, share in enumerate((factor.cpu, factor.memory)):
        value = int(batch.normalized[row, index])
        if share > 1.0:
            free = int(results.table.capacity[row, index] - batch.taken_by_system[row, index])
            free -= int(batch.taken_by_pods[row, index])
            most = max(value, min(free, int(batch.limit[row, index])))
            value = min(int(value * share), most)
        elif share < 1.0:
            value = int(value * share)
        found.append(value)
    return found[0], found[1]


def _sold(node: Node, results: _Results, row: int, factor: Factor) -> tuple[Amounts, Amounts, str]:
    """Return what is left for pods, what third parties hold, and what is wrong with their annotation."""
    value = _multiplied(results, row, factor)
    taken, problem = third_party.held(node.metadata.annotations)
    return (max(0, value[0] - taken[0]), max(0, value[1] - taken[1])), taken, problem


def _zone_writes(view: View, node: Node, results: _Results, row: int, *, withdrawn: bool) -> list[Write]:
    topology = view.objects(NODE_RESOURCE_TOPOLOGY).get(Key("", node.name))
    if topology is None or not topology.zones:
        return []
    by_zone = None
    if not withdrawn:
        capacity = zones.capacities(topology)
        metric = view.objects(NODE_METRIC).get(Key("", node.name))
        if not capacity or metric is None:
            return []
        table, name = results.table, node.name
        pods = table.pods.get(name, {})
        by_zone = zones.batch_by_zone(capacity, table.rows[name], metric, pods, results.strategies[row])
    changed = zones.with_batch(topology.zones, by_zone, results.strategies[row].resource_diff_threshold)
    if changed is None:
        return []
    body = {"zones": msgspec.to_builtins(changed)}
    return [patch(NODE_RESOURCE_TOPOLOGY, topology, body, "batch resources of the NUMA zones")]


def _came_and_went(node: Node, wanted: Mapping[str, int | None]) -> tuple[list[str], list[str]]:
    have = node.status.allocatable
    came = [name for name, value in wanted.items() if value is not None and name not in have]
    went = [name for name, value in wanted.items() if value is None and name in have]
    return came, went


def _warning(node: Node, problem: str) -> Event:
    return Event(reference(NODE, node), "InvalidNodeAnnotation", f"{problem}; it is not used", "ReadNode", "Warning")


def _age(table: NodeTable, row: int, now: float) -> str:
    updated = float(table.updated_seconds[row])
    return "the node never reported" if np.isnan(updated) else f"the node's last report is {now - updated:.0f} s old"


def _sentence(results: _Results, row: int, sold: Amounts, factor: Factor, taken: Amounts) -> str:
    batch, capacity = results.batch, results.table.capacity
    text = (
        f"batch-cpu {sold[0]} = {capacity[row, 0]} - margin {batch.safety_margin[row, 0]}"
        f" - system {batch.taken_by_system[row, 0]} - pods {batch.taken_by_pods[row, 0]} millicores"
    )
    if (factor.cpu, factor.memory) != (1.0, 1.0):
        text += f", times {factor.cpu} for what services lose and how slow the node is"
    text += f", less {taken[0]} of third parties" if taken[0] else ""
    before = max(0, _multiplied(results, row, factor)[0] - taken[0])
    return text + (f", held from {before} after an eviction" if sold[0] < before else "")


def _explanation(node: Node, results: _Results, row: int, factor: Factor, now: float) -> list[str]:
    table, strategy, batch, mid = results.table, results.strategies[row], results.batch, results.mid
    updated = float(table.updated_seconds[row])
    reported = "never" if np.isnan(updated) else f"{rfc3339(updated)}, {now - updated:.0f} s ago"
    own = " and the node itself" if _has_own(node) else ""
    lines = [
        f"strategy: {'on' if strategy.enable else 'off'}, from {results.sources[row]} of {COLOCATION}{own}",
        *(f"refused: {problem}" for problem in results.refused[row]),
        f"last report: {reported}; withdrawn after {strategy.degrade_time_minutes} min",
        f"pods without a metric, counted by request: {table.pods_without_metric[row]}",
        f"metrics without a pod, counted by use: {table.dangling_metrics[row]}",
    ]
    if not strategy.enable or results.old[row]:
        held = ", kept while all nodes are silent at once" if results.held else ""
        return [*lines, f"result: no batch and mid resources{held}"]
    sold, taken, _ = _sold(node, results, row, factor)
    policies = (strategy.cpu_calculate_policy, strategy.memory_calculate_policy)
    for index, unit in enumerate(("millicores", "bytes")):
        limit = int(batch.limit[row, index])
        steps = [f"{batch.before_limit[row, index]}"]
        if limit < batch.before_limit[row, index]:
            steps.append(f"limited to {limit}")
        if index == 0 and table.normalization_ratio[row] > 1:
            steps.append(f"times {table.normalization_ratio[row]:.2f} of normalization")
        share = (factor.cpu, factor.memory)[index]
        if share != 1.0:
            steps.append(f"times {share} of interference")
        if taken[index]:
            steps.append(f"less {taken[index]} of third parties")
        lines.append(
            f"{BATCH[index]}: {table.capacity[row, index]} capacity - {batch.safety_margin[row, index]} margin"
            f" - {batch.taken_by_system[row, index]} system (used {batch.system_used[row, index]},"
            f" reserved {table.reserved[row, index]}) - {batch.taken_by_pods[row, index]} pods by {policies[index]}"
            f" = {', '.join(steps)} -> {sold[index]} {unit}"
        )
    for index, unit in enumerate(("millicores", "bytes")):
        kind = (
            "a fixed share"
            if results.columns.mid_static[row]
            else (
                f"{mid.reclaimable[row, index]} reclaimable (predicted {table.prod_reclaimable[row, index]},"
                f" unused {mid.unused[row, index]}) + {strategy.mid_unallocated_percent} % of"
                f" {mid.unallocated[row, index]} unallocated"
            )
        )
        lines.append(f"{MID[index]}: {kind}, at most {mid.limit[row, index]} -> {mid.result[row, index]} {unit}")
    for name in (*BATCH, *MID):
        lines.append(f"published {name}: {node.status.allocatable.get(name, 'nothing')}")
    return lines


def _has_own(node: Node) -> bool:
    meta = node.metadata
    return ANNOTATION_COLOCATION_STRATEGY in meta.annotations or any(label in meta.labels for label in LABEL_RATIOS)
