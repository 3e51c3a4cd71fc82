"""Recent use of devices, and the averages and percentiles that a report takes of it. Pure.

Rings as those of CPU and memory (`usage_series.py`), by device of the node and by device of each pod. They are made
with the first device that is in use: most nodes have none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from api.kube.device import DeviceInfo
from api.kube.device_use import DeviceSample, DeviceUse
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordlet.kube.usage_series import NOT_MEASURED, Quantity, UsageSeries

NODE_UID = ""
"""Uid under which the use of the whole node stands."""
CORE, MEMORY = Quantity.CPU, Quantity.MEMORY
"""Planes of the rings: percent of the device's compute, and bytes."""

_Key = tuple[str, str]
"""Uid of the pod and id of the device."""


@dataclass(slots=True)
class DeviceHistory:
    """Samples of devices. Times are monotonic seconds and never go back."""

    grain_seconds: float
    node_span_seconds: float
    pod_span_seconds: float
    _rings: tuple[UsageSeries, UsageSeries] | None = None
    """Of the node, and of the pods."""
    _devices: dict[_Key, DeviceSample] = field(default_factory=dict)
    """Newest sample of each device in use."""
    _newest: DeviceUse | None = None

    @property
    def nbytes(self) -> int:
        """Size of the rings in bytes."""
        return sum(ring.nbytes for ring in self._rings or ())

    def span_pods(self, span_seconds: float) -> None:
        """Keep the use by pods for this long; it starts anew."""
        self.pod_span_seconds = span_seconds
        if self._rings is not None:
            self._rings = (self._rings[0], UsageSeries(span_seconds, self.grain_seconds))

    def add(self, use: DeviceUse, now_seconds: float) -> None:
        """Add the use at a time. The same object again is no new reading, and no sample."""
        if use is self._newest or not (use or self._rings):
            return
        self._newest = use
        if self._rings is None:
            self._rings = (
                UsageSeries(self.node_span_seconds, self.grain_seconds),
                UsageSeries(self.pod_span_seconds, self.grain_seconds),
            )
        samples = {(uid, each.id): each for uid, devices in use.items() for each in devices}
        self._devices |= samples
        for ring, of_node in zip(self._rings, (True, False), strict=True):
            ring.append(
                {
                    _text(key): (each.core_percent, float(each.memory_bytes), NOT_MEASURED[0])
                    for key, each in samples.items()
                    if (key[0] == NODE_UID) is of_node
                },
                now_seconds,
            )

    def forget_before(self, since_seconds: float) -> None:
        """Drop pods' devices that were not used after a time."""
        if self._rings is None:
            return
        used = self._rings[1].means(CORE, since_seconds)
        gone = [key for key in self._devices if key[0] != NODE_UID and _text(key) not in used]
        self._rings[1].forget(map(_text, gone))
        for key in gone:
            del self._devices[key]

    def averages(self, uid: str, since_seconds: float) -> list[DeviceInfo]:
        """Return the average use of each device by the node or a pod after a time, by minor."""
        return self._each(uid, since_seconds, None)

    def percentiles(self, since_seconds: float, quantile: float) -> list[DeviceInfo]:
        """Return a percentile of the use of each device of the node after a time, by minor."""
        return self._each(NODE_UID, since_seconds, quantile)

    def _each(self, uid: str, since_seconds: float, quantile: float | None) -> list[DeviceInfo]:
        devices = [(key, each) for key, each in self._devices.items() if key[0] == uid]
        if self._rings is None or not devices:
            return []
        ring = self._rings[0] if uid == NODE_UID else self._rings[1]
        core, memory = (
            ring.means(plane, since_seconds) if quantile is None else ring.percentiles(plane, since_seconds, quantile)
            for plane in (CORE, MEMORY)
        )
        found = (
            _info(each, core[text], memory[text])
            for key, each in devices
            if (text := _text(key)) in core.keys() & memory
        )
        return _by_minor(found)


def _by_minor(devices: Iterable[DeviceInfo]) -> list[DeviceInfo]:
    return sorted(devices, key=lambda each: (each.type, each.minor))


def _text(key: _Key) -> str:
    return "/".join(key)


def _info(device: DeviceSample, core_percent: float, memory_bytes: float) -> DeviceInfo:
    """Return the use as a NodeMetric tells it: whole percent of compute and memory, and bytes."""
    total = device.total_bytes
    return DeviceInfo(
        type=device.type,
        id=device.id,
        minor=device.minor,
        health=True,
        resources={
            GPU_CORE: str(int(core_percent)),
            GPU_MEMORY: str(int(memory_bytes)),
            GPU_MEMORY_RATIO: str(int(memory_bytes * 100 / total) if total else 0),
        },
    )
