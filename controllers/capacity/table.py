"""Projection: numbers of all nodes as columns. Only nodes of which something changed are counted again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from api.crds import NodeMetric
from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.capacity.pods import PodFacts, facts_of
from controllers.capacity.usage import NodeRow, row_of
from controllers.kinds import NODE, NODE_METRIC, POD, Node
from controllers.runtime.view import Projection
from controllers.runtime.writes import kind_name

Pairs = npt.NDArray[np.int64]
"""int64[nodes, 2]: millicores and bytes."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Columns by node, in the order of `names`; fields as in `NodeRow`. Read only."""

    names: tuple[str, ...]
    index: Mapping[str, int]
    rows: Mapping[str, NodeRow]
    pods: Mapping[str, Mapping[Key, PodFacts]]
    """Pods by node; a node without any is missing."""
    capacity: Pairs
    reserved: Pairs
    system_used: Pairs
    applications_prod: Pairs
    applications_mid: Pairs
    high_request: Pairs
    high_used: Pairs
    high_max_used_request: Pairs
    prod_request: Pairs
    node_used: Pairs
    node_used_known: npt.NDArray[np.bool_]
    prod_reclaimable: Pairs
    updated_seconds: Floats
    """NaN for a node without report."""
    normalization_ratio: Floats
    pods_without_metric: npt.NDArray[np.int64]
    dangling_metrics: npt.NDArray[np.int64]


_COLUMNS = tuple(each.name for each in fields(NodeRow))
_TYPES: dict[str, Any] = {"node_used_known": np.bool_, "updated_seconds": np.float64, "normalization_ratio": np.float64}


class NodeNumbers(Projection[NodeTable]):
    """Numbers of all nodes."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, POD, NODE_METRIC)

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._metrics: dict[str, NodeMetric] = {}
        self._pods: dict[str, dict[Key, PodFacts]] = {}
        self._place: dict[Key, str] = {}
        self._dirty: set[str] = set()
        self._rows: dict[str, NodeRow] = {}
        self._table: NodeTable | None = None

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in changes; nodes that they concern are counted when the table is next asked for."""
        name = kind_name(resource)
        for change in changes:
            if name == kind_name(POD):
                self._pod(change)
                continue
            known: dict[str, Any] = self._nodes if name == kind_name(NODE) else self._metrics
            if change.new is None:
                known.pop(change.key.name, None)
            else:
                known[change.key.name] = change.new
            self._dirty.add(change.key.name)

    def _pod(self, change: StoreDelta[Any]) -> None:
        facts = None if change.new is None else facts_of(change.new)
        place = self._place.get(change.key)
        if place is not None and (facts is None or facts.node != place):
            del self._place[change.key]
            # A node's pods are replaced and never changed: tables that were given out keep theirs.
            rest = {key: each for key, each in self._pods[place].items() if key != change.key}
            self._pods[place] = rest
            if not rest:
                del self._pods[place]
            self._dirty.add(place)
        # Most changes of a pod are of its status: they change no number.
        if facts is not None and self._pods.get(facts.node, {}).get(change.key) != facts:
            self._pods[facts.node] = {**self._pods.get(facts.node, {}), change.key: facts}
            self._place[change.key] = facts.node
            self._dirty.add(facts.node)

    def value(self) -> NodeTable:
        """Return the table; the same one as before when nothing changed."""
        if self._table is not None and not self._dirty:
            return self._table
        for name in self._dirty:
            node = self._nodes.get(name)
            if node is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = row_of(node, self._metrics.get(name), self._pods.get(name, {}))
        self._dirty.clear()
        self._table = table_of(self._rows, self._pods)
        return self._table


def table_of(rows: Mapping[str, NodeRow], pods: Mapping[str, Mapping[Key, PodFacts]] | None = None) -> NodeTable:
    """Return rows as columns, nodes in the order of their names."""
    names = tuple(sorted(rows))
    columns: dict[str, Any] = {}
    for column in _COLUMNS:
        values = [getattr(rows[name], column) for name in names]
        if column == "updated_seconds":
            values = [np.nan if value is None else value for value in values]
        kind = _TYPES.get(column, np.int64)
        shape = (len(names), 2) if column in _PAIRS else (len(names),)
        columns[column] = np.array(values, dtype=kind).reshape(shape)
        columns[column].setflags(write=False)
    index = {name: row for row, name in enumerate(names)}
    return NodeTable(names, index, dict(rows), dict(pods or {}), **columns)


_PAIRS = frozenset(_COLUMNS) - {
    "node_used_known",
    "updated_seconds",
    "normalization_ratio",
    "pods_without_metric",
    "dangling_metrics",
}
