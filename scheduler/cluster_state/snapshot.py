"""The cluster as columns: one row per node, one numpy array per fact, changed in place.

The snapshot is the scheduler's only picture of nodes and placed pods (bound or assumed alike). Every change of
a row goes to a change log, so that a reader with results per row asks `changed_since` and redoes only those:
work per attempt is proportional to the rows that changed, not to the size of the cluster.

Rows are stable while a node exists and are used again after it is gone; `live` marks rows with a node. Matrices are
node-by-resource, int64, in the units of `api.kube.resources`.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from api.kube.objects import Node, Taint
from api.kube.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from scheduler.cluster_state.columns import Column, Row, Rows
from scheduler.cluster_state.labels import LabelColumns
from scheduler.cluster_state.nodeinfo import allocatable, node_taints, same_offer
from scheduler.cluster_state.podcounts import PodCounts
from scheduler.cluster_state.podinfo import MAX_AMOUNT, Placement, PodInfo

MAX_FAULTS = 1024


class Observer(Protocol):
    """Receiver of every change to the snapshot, after it happened, in one thread."""

    def node_changed(self, row: Row, node: Node) -> None:
        """A node appeared or its object changed."""

    def node_removed(self, row: Row) -> None:
        """The node of the row is gone; its pods were removed one by one before."""

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """A pod holds its share of the node: bound, or assumed after Reserve."""

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """A pod holds nothing on the node any more."""


class ObserverFault(NamedTuple):
    """An exception of one observer; the others were called, so every figure of theirs adds up."""

    observer: str
    subject: str
    """`namespace/name` of the pod, or the node's name."""
    uid: str
    """The pod's; empty for a node."""
    error: Exception


class Snapshot:
    """Nodes with what they offer, what is taken, and the pods on them."""

    def __init__(self, capacity: int = 64, resources: int = 8) -> None:
        self.columns: dict[str, int] = {}
        """Resource name to column of `allocatable` and `requested`."""
        self.allocatable: NDArray[np.int64] = np.zeros((capacity, resources), dtype=np.int64)
        self.requested: NDArray[np.int64] = np.zeros((capacity, resources), dtype=np.int64)
        self.nonzero: NDArray[np.int64] = np.zeros((capacity, 2), dtype=np.int64)
        """CPU millicores and memory bytes taken, counting defaults for pods that ask for nothing."""
        self.rows_used = 0
        """Rows from this one on were never used."""
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.pods: dict[str, Placement] = {}
        """Placement by pod UID."""
        self.residents: list[dict[str, PodInfo]] = []
        """Per row, the pods on it by UID."""
        self.labels = LabelColumns(capacity)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        self.node_observers: list[Observer] = []
        """Receivers of node changes, as `pod_observers` are of pod changes."""
        self.pod_observers: list[Observer] = []
        self.faults: deque[ObserverFault] = deque(maxlen=MAX_FAULTS)
        """Exceptions of observers, for the engine to report."""
        self.fault_count = 0
        self._columns: WeakSet[Column] = WeakSet()
        self.counts = PodCounts(self.pods, lambda: self.column(np.int64, 0))
        self._live = self.column(bool, False)
        self._taint_set = self.column(np.int32, 0)
        self._row_of: dict[str, Row] = {}
        self._free: list[Row] = []
        self._taint_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self._log: list[Row] = []
        self._log_start = 0
        for name in (CPU, MEMORY, PODS, EPHEMERAL_STORAGE):
            self.resource_column(name)

    # Shape

    @property
    def capacity(self) -> int:
        """Rows allocated; every column has this length."""
        return int(self.allocatable.shape[0])

    @property
    def width(self) -> int:
        """Resource columns allocated."""
        return int(self.allocatable.shape[1])

    @property
    def all_rows(self) -> slice:
        """Every row ever used; mask by `live`."""
        return slice(0, self.rows_used)

    @property
    def live(self) -> NDArray[np.bool_]:
        """bool[capacity]: rows that hold a node."""
        return self._live.values

    @property
    def taint_set(self) -> NDArray[np.int32]:
        """int32[capacity]: index into `taint_sets`, the cordon included as its taint."""
        return self._taint_set.values

    @property
    def node_count(self) -> int:
        """Nodes in the cluster."""
        return len(self._row_of)

    def column(self, dtype: Any, fill: Any) -> Column:
        """A per-row array of `dtype` that grows with the snapshot; a removed node's row is refilled."""
        column = Column(np.full(self.capacity, fill, dtype=dtype), fill)
        self._columns.add(column)
        return column

    def resource_column(self, name: str) -> int:
        """Column of a resource, made when first asked for."""
        index = self.columns.get(name)
        if index is None:
            index = self.columns[name] = len(self.columns)
            if index >= self.width:
                self._widen(max(index + 1, 2 * self.width))
        return index

    def vector(self, info: PodInfo) -> NDArray[np.int64]:
        """A pod's requests, int64[width]; every requested resource gets its column first."""
        for name in info.cls.requests:
            if name not in self.columns:
                self.resource_column(name)
        return info.cls.vector(self.columns, self.width)

    # Nodes

    def row(self, name: str) -> Row | None:
        """The row of a node, None when there is no such node."""
        return self._row_of.get(name)

    def node(self, row: Row) -> Node:
        """The node of a live row. Raises LookupError for a row without one."""
        node = self.nodes[row]
        if node is None:
            raise LookupError(f"row {row} holds no node")
        return node

    def set_node(self, node: Node) -> Row:
        """Add a node or take over its changed object. Pods on it stay.

        A heartbeat (nothing changed that placement depends on) changes nothing.
        """
        row = self._row_of.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        elif same_offer(self.node(row), node):
            self.nodes[row] = node
            return row
        self.nodes[row] = node
        self.live[row] = True
        offered = allocatable(node)
        indices = [self.resource_column(name) for name in offered]
        self.allocatable[row] = 0
        self.allocatable[row, indices] = [min(amount, MAX_AMOUNT - 1) for amount in offered.values()]
        self.labels.set(row, node.metadata.labels)
        self._taint_set.values[row] = self._taint_id(node_taints(node))
        for observer in self.node_observers:
            try:
                observer.node_changed(row, node)
            except Exception as error:  # noqa: BLE001 (reported as a fault)
                self._fault(observer, node.name, "", error)
        self.touch(row)
        return row

    def remove_node(self, name: str) -> None:
        """Forget a node and the pods on it; an unknown name is ignored."""
        row = self._row_of.get(name)
        if row is None:
            return
        for uid in list(self.residents[row]):
            self.remove_pod(uid)
        for observer in self.node_observers:
            try:
                observer.node_removed(row)
            except Exception as error:  # noqa: BLE001 (reported as a fault)
                self._fault(observer, name, "", error)
        del self._row_of[name]
        self.nodes[row], self.names[row] = None, ""
        self.allocatable[row] = 0
        for column in self._columns:
            column.values[row] = column.fill
        self.labels.clear(row)
        self._free.append(row)
        self.touch(row)

    # Pods

    def add_pod(self, info: PodInfo, row: Row, *, assumed: bool = False) -> None:
        """Place a pod. A pod placed elsewhere (or here, with an older object) is moved, never counted twice."""
        if info.uid in self.pods:
            self.remove_pod(info.uid)
        self.pods[info.uid] = Placement(info, row, assumed)
        self.residents[row][info.uid] = info
        self._charge(info, row, 1)
        self.counts.add(info, row)
        for observer in self.pod_observers:
            try:
                observer.pod_added(row, info)
            except Exception as error:  # noqa: BLE001 (reported as a fault)
                self._fault(observer, info.key, info.uid, error)
        self.touch(row)

    def remove_pod(self, uid: str) -> Placement | None:
        """Take a pod off its node; None when it was not placed."""
        placement = self.pods.pop(uid, None)
        if placement is None:
            return None
        info, row = placement.info, placement.row
        del self.residents[row][uid]
        self._charge(info, row, -1)
        self.counts.remove(info, row)
        for observer in self.pod_observers:
            try:
                observer.pod_removed(row, info)
            except Exception as error:  # noqa: BLE001 (reported as a fault)
                self._fault(observer, info.key, info.uid, error)
        self.touch(row)
        return placement

    def update_pod(self, info: PodInfo) -> None:
        """Take over a placed pod's changed object; it counts as confirmed. Unknown pods are ignored.

        The figures are only redone when something that counts differs from before.
        """
        placement = self.pods.get(info.uid)
        if placement is None:
            return
        same_share = not placement.assumed or placement.info.decided == info.decided
        if same_share and placement.info.cls is info.cls and _same_to_observers(placement.info, info):
            for key, value in placement.info.patch.items():
                info.patch.setdefault(key, value)
            placement.info.pod = info.pod
            placement.assumed = False
            return
        self.add_pod(info, placement.row)

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Temporary changes: undone, for observers too, when the block ends."""
        trial = Trial(self)
        try:
            yield trial
        finally:
            trial.undo()

    # Changes

    @property
    def generation(self) -> int:
        """Grows with every change of a row."""
        return self._log_start + len(self._log)

    def touch(self, row: Row) -> None:
        """Note that results about a row are out of date."""
        self._log.append(row)
        if len(self._log) > 4 * self.capacity + 1024:
            half = len(self._log) // 2
            del self._log[:half]
            self._log_start += half

    def touch_all(self) -> None:
        """Note that results about every row are out of date."""
        self._log_start += len(self._log) + 1
        self._log.clear()

    def changed_since(self, generation: int) -> Rows | None:
        """Rows touched after `generation`; None when nothing changed, all rows when it is too long ago."""
        missed = generation - self._log_start
        if missed < 0:
            return self.all_rows
        count = len(self._log) - missed
        if count <= 0:
            return None
        first = self._log[missed]
        if count == 1:
            return slice(first, first + 1)
        rows = set(self._log[missed:])
        if len(rows) == 1:
            return slice(first, first + 1)
        if len(rows) * 2 > self.rows_used:
            return self.all_rows
        return np.fromiter(rows, dtype=np.intp, count=len(rows))

    # Internals

    def _fault(self, observer: Observer, subject: str, uid: str, error: Exception) -> None:
        self.fault_count += 1
        self.faults.append(ObserverFault(getattr(observer, "name", type(observer).__name__), subject, uid, error))

    def _charge(self, info: PodInfo, row: Row, sign: int) -> None:
        vector = self.vector(info)
        cpu, memory = info.cls.nonzero
        if sign > 0:
            self.requested[row] += vector
        else:
            self.requested[row] -= vector
        taken = self.nonzero[row]
        taken[0] += sign * cpu
        taken[1] += sign * memory

    def _new_row(self, name: str) -> Row:
        if self._free:
            row = self._free.pop()
        else:
            row = self.rows_used
            if row >= self.capacity:
                self._lengthen(2 * self.capacity)
            self.rows_used += 1
            self.names.append("")
            self.nodes.append(None)
            self.residents.append({})
        self.names[row] = name
        self._row_of[name] = row
        return row

    def _taint_id(self, taints: tuple[Taint, ...]) -> int:
        index = self._taint_ids.get(taints)
        if index is None:
            index = self._taint_ids[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return index

    def _lengthen(self, capacity: int) -> None:
        extra = capacity - self.capacity
        for column in self._columns:
            tail = np.full(extra, column.fill, dtype=column.values.dtype)
            column.values = np.concatenate([column.values, tail])
        self.labels.lengthen(capacity)
        self.allocatable = np.pad(self.allocatable, ((0, extra), (0, 0)))
        self.requested = np.pad(self.requested, ((0, extra), (0, 0)))
        self.nonzero = np.pad(self.nonzero, ((0, extra), (0, 0)))
        self.touch_all()

    def _widen(self, width: int) -> None:
        extra = width - self.width
        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, extra)))
        self.requested = np.pad(self.requested, ((0, 0), (0, extra)))
        self.touch_all()


class Trial:
    """A recorder of temporary changes (see `Snapshot.trial`)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._undo: list[tuple[str, Placement | None]] = []
        self._order: dict[Row, list[str]] = {}
        """Residents of the rows changed, in their order: of equal victims, preemption takes the first."""

    def add(self, info: PodInfo, row: Row) -> None:
        """Place the pod on the row until `undo`."""
        before = self._snapshot.pods.get(info.uid)
        for changed in (row,) if before is None else (row, before.row):
            self._keep_order(changed)
        self._undo.append((info.uid, before))
        self._snapshot.add_pod(info, row, assumed=True)

    def remove(self, uid: str) -> None:
        """Remove the pod until `undo`."""
        placement = self._snapshot.pods.get(uid)
        if placement is not None:
            self._keep_order(placement.row)
            self._snapshot.remove_pod(uid)
            self._undo.append((uid, placement))

    def undo(self) -> None:
        """Put everything back, last change first."""
        for uid, before in reversed(self._undo):
            if before is None:
                self._snapshot.remove_pod(uid)
            else:
                self._snapshot.add_pod(before.info, before.row, assumed=before.assumed)
        self._undo.clear()
        for row, uids in self._order.items():
            residents = self._snapshot.residents[row]
            for uid in uids:
                if uid in residents:
                    residents[uid] = residents.pop(uid)
        self._order.clear()

    def _keep_order(self, row: Row) -> None:
        if row not in self._order:
            self._order[row] = list(self._snapshot.residents[row])


def _same_to_observers(before: PodInfo, after: PodInfo) -> bool:
    """Return whether selectors see no difference, nor counts that leave out pods being deleted, nor what waits for a
    pod to be bound.
    """
    leaving = bool(before.pod.metadata.deletion_timestamp), bool(after.pod.metadata.deletion_timestamp)
    bound = before.pod.spec.node_name == after.pod.spec.node_name
    return bound and leaving[0] is leaving[1] and before.labels == after.labels


def snapshot_of(nodes: Mapping[str, Node] | list[Node]) -> Snapshot:
    """A snapshot that holds `nodes` and no pods."""
    snapshot = Snapshot(capacity=max(64, len(nodes)))
    for node in nodes.values() if isinstance(nodes, Mapping) else nodes:
        snapshot.set_node(node)
    return snapshot
