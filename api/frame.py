"""Frame of one tick: the raw columns that probes and collectors read, before anything is derived from them.

A `Table` holds rows keyed by cgroup id (and further keys such as culprit, device or port) with value
columns in numpy arrays. A probe or collector returns a `Reading` of such tables; the agent merges the
readings of one tick into a `Frame`, whose dense table `CGROUP` has one row for each known cgroup.
Counters are cumulative, as in the kernel; `api.window` alone makes rates of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from api.qos import QoSSource

CGROUP = "cgroup"
"""Name of the dense table: one row a cgroup."""
HOST = "host"
"""Name of the table without cgroup keys: host-wide counters, rows keyed by whatever labels they carry."""

KERNEL_ID = 0xFFFF_FFFF_FFFF_FFFF
"""Culprit id that stands for kernel threads in the root cgroup; one that was put into another counts as that."""
OTHER_ID = 0xFFFF_FFFF_FFFF_FFFE
"""Culprit id that stands for culprits folded together (top-k plus other)."""

Column = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of raw values.

    `keys` maps a key name to an array of length n; every table but `HOST` has `cgroup` (uint64 ids of the
    cpu hierarchy). `columns` maps a column name of `api.metrics` to an array of shape (n,) or (n, slots).
    """

    keys: Mapping[str, Column]
    columns: Mapping[str, Column]

    @property
    def ids(self) -> NDArray[np.uint64]:
        """Cgroup id of each row."""
        return self.keys["cgroup"].astype(np.uint64, copy=False)

    def __len__(self) -> int:
        for column in (*self.keys.values(), *self.columns.values()):
            return len(column)
        return 0

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "Table":
        """The same table with only the picked rows."""
        return Table(
            {name: column[rows] for name, column in self.keys.items()},
            {name: column[rows] for name, column in self.columns.items()},
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """Tables that one probe or collector read at one moment.

    `lost` counts what could not be recorded, by place (a full map, a missing stamp); it is cumulative.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    read_ns: Mapping[str, Column] = field(default_factory=dict)
    """Of the columns of the dense table that are read in turn: when each row was read, as `Frame.read_ns`."""


class CgroupKind(StrEnum):
    """Role of a cgroup in the layouts of systemd, the kubelet and the container runtimes."""

    ROOT = "root"
    UNIT = "unit"
    """A systemd unit: a slice, service, scope, socket or mount."""
    KUBEPODS = "kubepods"
    """A directory of the kubelet above the pods: `kubepods` itself or that of a QoS class."""
    POD = "pod"
    CONTAINER = "container"
    PLAIN = "plain"
    """Any other directory."""
    UNKNOWN = ""
    """Not classified, as in recordings of earlier versions."""


UNKNOWN_UID = -1


@dataclass(frozen=True, slots=True)
class CgroupInfo:
    """Identity of one cgroup: names, class, role. The agent fills it once; nothing derives it from the path again."""

    id: int
    """Kernfs id of the cpu controller's directory (its inode number)."""
    path: str
    """Path under the mount of the cpu hierarchy, starting with `/`, in the text form of `api.cgroup_path`."""
    name: str
    """Display name: unit, `namespace/pod/container`, `namespace/pod`, container or the last path component."""
    qos: str = ""
    """Koordinator QoS class, empty where none is known. SYSTEM for pods of critical priority: strategies, response and
    enforcer protect by the class alone."""
    workload: str = ""
    """Stable name across restarts: owner as `Kind/namespace/name`; or the service, image, unit, path."""
    container: str = ""
    """Name of the container within the workload's pods, `POD` for a pod's sandbox; empty where the workload is the
    container."""
    kind: CgroupKind = CgroupKind.UNKNOWN
    pod_uid: str = ""
    """Of the pod and its containers; empty outside pods."""
    container_id: str = ""
    kube_qos: str = ""
    """Kubernetes QoS class that the kubelet's layout implies: Guaranteed, Burstable, BestEffort or empty."""
    owner_uid: int = UNKNOWN_UID
    """User id of the owner of the cgroup's directory."""
    namespace: str = ""
    """Of the pod; empty outside pods and without a source of pods."""
    pod: str = ""
    """Name of the pod; a cgroup inside a container has its pod's, too."""
    role: str = ""
    """Of a container in its pod: app, init, sidecar, ephemeral or sandbox; empty where it is not known."""
    priority: int | None = None
    """`.spec.priority` of the pod; None where it is not known."""
    priority_band: str = ""
    """Koordinator's priority class by label, else by number; empty outside its bands."""
    qos_source: QoSSource = QoSSource.NONE


@dataclass(frozen=True, slots=True)
class Frame:
    """All measurements of one tick: clocks, cgroups, and every table as read.

    `cgroups` is aligned with the rows of the dense table; `tables[CGROUP].ids[i] == cgroups[i].id`.
    `sources` has an entry for each probe and collector: empty where it delivered, else the reason.
    """

    monotonic_ns: int
    wall_ns: int
    cgroups: tuple[CgroupInfo, ...]
    tables: Mapping[str, Table]
    lost: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    read_ns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Column of the dense table that is read in turn to the monotonic time at which each row was read; NaN where it
    never was. A column that is missing here is read in every tick, or recorded without."""

    @property
    def cgroup(self) -> Table:
        """The dense table."""
        return self.tables[CGROUP]


def align(ids: NDArray[np.uint64], table: Table) -> dict[str, Column]:
    """Columns of `table` in the row order of `ids`; rows absent from the table are zero.

    Floats become NaN where absent, so that "not measured" stays apart from "measured zero".
    Rows of `table` whose id is not in `ids` are left out.
    """
    if np.array_equal(ids, table.ids):
        return {name: column.copy() for name, column in table.columns.items()}
    order = np.argsort(table.ids, kind="stable")
    known = table.ids[order]
    position = np.minimum(np.searchsorted(known, ids), max(len(known) - 1, 0))
    found = known[position] == ids if len(known) else np.zeros(len(ids), dtype=np.bool_)
    rows = order[position[found]] if len(known) else order
    if len(rows) == len(ids):
        return {name: column[rows] for name, column in table.columns.items()}
    aligned: dict[str, Column] = {}
    for name, column in table.columns.items():
        empty = np.nan if column.dtype.kind == "f" else 0
        out = np.full((len(ids), *column.shape[1:]), empty, dtype=column.dtype)
        out[found] = column[rows]
        aligned[name] = out
    return aligned


def merge(ids: NDArray[np.uint64], readings: Iterable[Reading]) -> tuple[dict[str, Table], dict[str, int]]:
    """Join the readings of one tick: dense columns aligned to `ids`, other tables and losses as they are.

    Two readings may bring the same sparse table name only if they have the same keys; the later one wins.
    """
    dense: dict[str, Column] = {}
    tables: dict[str, Table] = {}
    lost: dict[str, int] = {}
    for reading in readings:
        lost.update(reading.lost)
        for name, table in reading.tables.items():
            if name == CGROUP:
                dense.update(align(ids, table))
            elif name == HOST and HOST in tables:
                tables[HOST] = Table({}, {**tables[HOST].columns, **table.columns})
            else:
                tables[name] = table
    tables[CGROUP] = Table({"cgroup": ids}, dense)
    return tables, lost


def reading_times(ids: NDArray[np.uint64], readings: Iterable[Reading]) -> dict[str, NDArray[np.float64]]:
    """When each row of the columns that are read in turn was read, in the row order of `ids`."""
    times: dict[str, NDArray[np.float64]] = {}
    for reading in readings:
        if reading.read_ns:
            # All columns of a file share one array.
            first = {id(column): name for name, column in reading.read_ns.items()}
            distinct = {name: reading.read_ns[name] for name in first.values()}
            aligned = align(ids, Table(reading.tables[CGROUP].keys, distinct))
            floats = {name: column.astype(np.float64, copy=False) for name, column in aligned.items()}
            times |= {name: floats[first[id(column)]] for name, column in reading.read_ns.items()}
    return times
