"""The load of all nodes as columns, kept up to date pod by pod and report by report.

A row's usage is a base (what was reported) plus one contribution per pod, all integers, so a pod that comes
and goes leaves exactly what was before, and only a report or a changed node needs a row to be counted anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from api.kube.resources import Resources
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.snapshot import Snapshot
from scheduler.load.columns import UNLIMITED, Amounts, usage_limits
from scheduler.load.node import Assigned, LoadView, NodeLoad, base, contribution, expired
from scheduler.load.thresholds import Limits


class Slot(IntEnum):
    """Sets of usage columns: one per use in filter and score."""

    FILTER = 0
    FILTER_PROD = 1
    SCORE = 2
    SCORE_PROD = 3


class Report(IntEnum):
    """State of a row's load report."""

    MISSING = 0
    EMPTY = 1
    EXPIRED = 2
    FRESH = 3


@dataclass(slots=True, eq=False)
class LoadRow:
    """One node: how to look at it, what it reported, who was placed there."""

    views: tuple[LoadView, LoadView, LoadView, LoadView]
    """By slot."""
    limits: tuple[Limits, Limits]
    """For Slot.FILTER and Slot.FILTER_PROD."""
    load: NodeLoad | None = None
    assigned: dict[str, Assigned] = field(default_factory=dict)
    """By pod UID."""


class LoadTable:
    """Load of every row of a snapshot, for `resources` in this order."""

    def __init__(self, snapshot: Snapshot, resources: Sequence[str], *, expiration_seconds: float) -> None:
        self.resources = tuple(resources)
        self.rows: dict[Row, LoadRow] = {}
        self._expiration_seconds = expiration_seconds
        self._used = [[snapshot.column(np.int64, 0) for _ in self.resources] for _ in Slot]
        self._limits = [[snapshot.column(np.int64, UNLIMITED) for _ in self.resources] for _ in range(2)]
        self._allocatable = [snapshot.column(np.int64, 0) for _ in self.resources]
        self._report = snapshot.column(np.int8, int(Report.MISSING))
        self._by_percentile = snapshot.column(bool, False)
        self._limited = [snapshot.column(bool, False) for _ in range(2)]

    # What filters and scores read

    def report(self, rows: Rows) -> NDArray[np.int8]:
        """`Report` per row."""
        column: NDArray[np.int8] = self._report.values[rows]
        return column

    def by_percentile(self, rows: Rows) -> NDArray[np.bool_]:
        """Rows whose general limit is one on a percentile."""
        column: NDArray[np.bool_] = self._by_percentile.values[rows]
        return column

    def exceeded(self, slot: Slot, index: int, amount: int, rows: Rows) -> NDArray[np.bool_]:
        """Rows whose usage of one resource would exceed its limit with `amount` more."""
        over: NDArray[np.bool_] = self._used[slot][index].values[rows] + amount > self._limits[slot][index].values[rows]
        return over

    def limited(self, slot: Slot, rows: Rows) -> NDArray[np.bool_]:
        """Rows where the slot's usage has any limit."""
        column: NDArray[np.bool_] = self._limited[slot].values[rows]
        return column

    def used(self, slot: Slot, rows: Rows) -> list[Amounts]:
        """Usage, int64[rows] per resource."""
        return [column.values[rows] for column in self._used[slot]]

    def allocatable(self, rows: Rows) -> list[Amounts]:
        """Amounts that usage is compared with, int64[rows] per resource."""
        return [column.values[rows] for column in self._allocatable]

    # What changes them

    def set_node(
        self, row: Row, allocatable: Resources, views: Sequence[LoadView], limits: tuple[Limits, Limits]
    ) -> None:
        """A node appeared or changed; `views` by slot."""
        known = self.rows.get(row)
        fresh = LoadRow((views[0], views[1], views[2], views[3]), limits)
        if known is not None:
            fresh.load, fresh.assigned = known.load, known.assigned
        self.rows[row] = fresh
        amounts = np.array([[allocatable.get(name, 0)] for name in self.resources], dtype=np.int64)
        for index, column in enumerate(self._allocatable):
            column.values[row] = amounts[index, 0]
        for slot, limit in enumerate(limits):
            self._limited[slot].values[row] = limit.active
            percents = np.array([[limit.percents.get(name, 0)] for name in self.resources], dtype=np.int64)
            for column, value in zip(self._limits[slot], usage_limits(amounts, percents)[:, 0], strict=True):
                column.values[row] = value
        self._by_percentile.values[row] = bool(limits[0].view.aggregation)
        self._recount(row)

    def drop_node(self, row: Row) -> None:
        """The node is gone."""
        self.rows.pop(row, None)

    def set_load(self, row: Row, load: NodeLoad | None, now: float) -> None:
        """A report arrived, or was deleted (None)."""
        self.rows[row].load = load
        self._report.values[row] = int(self._grade(load, now))
        self._recount(row)

    def add_pod(self, row: Row, uid: str, pod: Assigned) -> None:
        """A pod was placed."""
        state = self.rows[row]
        state.assigned[uid] = pod
        self._count(row, state, pod, 1)

    def remove_pod(self, row: Row, uid: str) -> None:
        """A pod is gone; an unknown one is ignored."""
        state = self.rows.get(row)
        pod = state.assigned.pop(uid, None) if state is not None else None
        if state is not None and pod is not None:
            self._count(row, state, pod, -1)

    def expire(self, now: float) -> Iterable[Row]:
        """Rows whose report became too old since the last call."""
        fresh = np.flatnonzero(self._report.values == Report.FRESH)
        for row in fresh.tolist():
            load = self.rows[row].load
            if load is not None and expired(load, now, self._expiration_seconds):
                self._report.values[row] = int(Report.EXPIRED)
                yield row

    def _grade(self, load: NodeLoad | None, now: float) -> Report:
        if load is None:
            return Report.MISSING
        if expired(load, now, self._expiration_seconds):
            return Report.EXPIRED
        return Report.FRESH if load.usage is not None else Report.EMPTY

    def _count(self, row: Row, state: LoadRow, pod: Assigned, sign: int) -> None:
        if state.load is None:
            return
        known: dict[LoadView, Resources] = {}
        for slot, view in enumerate(state.views):
            amounts = known.get(view)
            if amounts is None:
                amounts = known[view] = contribution(view, state.load, pod)
            for name, column in zip(self.resources, self._used[slot], strict=True):
                amount = amounts.get(name, 0)
                if amount:
                    column.values[row] += sign * amount

    def _recount(self, row: Row) -> None:
        state = self.rows[row]
        for slot, view in enumerate(state.views):
            amounts = base(view, state.load) if state.load is not None else {}
            for name, column in zip(self.resources, self._used[slot], strict=True):
                column.values[row] = amounts.get(name, 0)
        for pod in state.assigned.values():
            self._count(row, state, pod, 1)
