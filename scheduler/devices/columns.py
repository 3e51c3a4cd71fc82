"""Free devices of all nodes as arrays, so that one expression answers for the whole cluster.

For each kind and resource there is a matrix of rows (nodes) by devices; a device that a node does not have, or
that is unhealthy, has nothing. Rows are those of the snapshot.
"""

import numpy as np
import numpy.typing as npt

from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.cluster_state.columns import Row, Rows
from scheduler.devices.inventory import NodeDevices
from scheduler.devices.request import WHOLE_PERCENT, DeviceDemand, DeviceKind

Ints = npt.NDArray[np.int64]


class Amounts:
    """One resource of one kind of device: total and free, each int64[rows, devices]."""

    def __init__(self, rows: int, devices: int) -> None:
        self.total: Ints = np.zeros((rows, devices), dtype=np.int64)
        self.free: Ints = np.zeros((rows, devices), dtype=np.int64)

    def fit(self, rows: int, devices: int) -> None:
        """Grow to at least this shape."""
        extra = (max(0, rows - self.total.shape[0]), max(0, devices - self.total.shape[1]))
        if any(extra):
            self.total = np.pad(self.total, ((0, extra[0]), (0, extra[1])))
            self.free = np.pad(self.free, ((0, extra[0]), (0, extra[1])))


class DeviceColumns:
    """Totals and free amounts of every device of every row."""

    def __init__(self) -> None:
        self._amounts: dict[tuple[DeviceKind, str], Amounts] = {}
        self._rows, self._devices = 64, 8
        self.known: npt.NDArray[np.bool_] = np.zeros(self._rows, dtype=bool)
        """Rows whose node has reported its devices."""

    def set_row(self, row: Row, node: NodeDevices | None) -> None:
        """Take over a node's devices; None when the row has none."""
        self._fit(row, node)
        self.known[row] = node is not None
        for amounts in self._amounts.values():
            amounts.total[row] = amounts.free[row] = 0
        if node is None:
            return
        for kind, devices in node.devices.items():
            for position, device in enumerate(devices.values()):
                free = node.free(device)
                for name, total in device.total.items():
                    amounts = self._of(kind, name)
                    amounts.total[row, position] = total
                    amounts.free[row, position] = free[name]

    def fitting(self, demand: DeviceDemand, rows: Rows) -> Ints:
        """Devices of each row that can serve one instance of the demand, int64[rows]."""
        fits: npt.NDArray[np.bool_] | None = None
        for name, amount in demand.each.items():
            enough = self.free(demand.kind, name, rows) >= amount
            fits = enough if fits is None else fits & enough
        if GPU_MEMORY in demand.each and fits is not None:
            total = self.total(demand.kind, GPU_MEMORY, rows)
            percent = demand.each[GPU_MEMORY] * WHOLE_PERCENT // np.maximum(total, 1)
            fits &= (self.free(demand.kind, GPU_MEMORY_RATIO, rows) >= percent) & (total > 0)
        return np.zeros(0, dtype=np.int64) if fits is None else np.asarray(fits.sum(axis=1))

    def total(self, kind: DeviceKind, name: str, rows: Rows) -> Ints:
        """Total of one resource by device, int64[rows, devices]."""
        return self._of(kind, name).total[rows]

    def free(self, kind: DeviceKind, name: str, rows: Rows) -> Ints:
        """Free amount of one resource by device, int64[rows, devices]."""
        return self._of(kind, name).free[rows]

    def gpu_capacity(self, rows: Rows) -> int:
        """Percent of a GPU that healthy GPUs of the rows have in all."""
        return int(self.total(DeviceKind.GPU, GPU_MEMORY_RATIO, rows).sum())

    def gpu_percent(self, rows: Rows) -> Ints:
        """Free percent of each GPU, compute or memory, whichever is less; int64[rows, devices]."""
        ratio = self.free(DeviceKind.GPU, GPU_MEMORY_RATIO, rows)
        core = self.free(DeviceKind.GPU, GPU_CORE, rows)
        measured = self.total(DeviceKind.GPU, GPU_CORE, rows) > 0
        return np.minimum(np.where(measured, np.minimum(ratio, core), ratio), WHOLE_PERCENT)

    def _of(self, kind: DeviceKind, name: str) -> Amounts:
        amounts = self._amounts.get((kind, name))
        if amounts is None:
            amounts = self._amounts[kind, name] = Amounts(self._rows, self._devices)
        return amounts

    def ensure(self, rows: int) -> None:
        """Have at least this many rows."""
        if rows > self._rows:
            self._rows = max(rows, 2 * self._rows)
            self.known = np.pad(self.known, (0, self._rows - len(self.known)))
            for amounts in self._amounts.values():
                amounts.fit(self._rows, self._devices)

    def _fit(self, row: Row, node: NodeDevices | None) -> None:
        self.ensure(row + 1)
        widest = max((len(devices) for devices in node.devices.values()), default=0) if node else 0
        if widest > self._devices:
            self._devices = widest
            for amounts in self._amounts.values():
                amounts.fit(self._rows, self._devices)
