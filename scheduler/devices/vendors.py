"""Annotations by which device plugins of vendors learn which devices a pod was given, and their locks on nodes.

The kubelet tells a device plugin of no pod. Plugins of these vendors look for the pod of the node that was bound first
and has no devices yet, and take its devices from annotations, in keys and units of their own. Some cannot tell apart
two pods that come at once: the scheduler locks the node with an annotation, and the plugin removes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from api.kube.times import epoch_seconds, rfc3339
from api.protocol import ANNOTATION_BIND_TIMESTAMP, ANNOTATION_GPU_MINORS, GPU_CORE, GPU_MEMORY
from scheduler.devices.candidates import DeviceError
from scheduler.devices.inventory import Grant

HUAWEI, CAMBRICON, METAX = "huawei", "cambricon", "metax"
"""Values of the label `gpu-vendor` whose device plugins read annotations."""
HUAWEI_TIME = "predicate-time"
HUAWEI_DEVICES = "huawei.com/npu-core"
HUAWEI_310P = "huawei.com/Ascend310P"
MODEL_310P = "Ascend-310P3-300I-DUO"
CAMBRICON_ASSIGNED = "CAMBRICON_DSMLU_ASSIGHED"
CAMBRICON_PROFILE = "CAMBRICON_DSMLU_PROFILE"
CAMBRICON_UNIT_BYTES = 256 << 20
"""Least memory that Cambricon's plugin gives, its argument `min-dsmlu-unit`."""
METAX_DEVICES = "metax-tech.com/gpu-devices-allocated"
METAX_UNIT_BYTES = 1 << 20
LOCKS: Mapping[str, str] = {CAMBRICON: "cambricon.com/dsmlu.lock", METAX: "hami.io/mutex.lock"}
"""Annotations that lock a node, by vendor."""
LOCK_SECONDS = 300.0
"""A lock that is older was forgotten."""
LABEL_HAMI_NODE = "hami.io/vgpu-node"
"""Label of pods that HAMi-core isolates: their node."""
HAMI_CORE = "HAMi-core"


@dataclass(frozen=True, slots=True)
class GivenGpu:
    """One GPU that a pod was given; `id` is that of the device."""

    grant: Grant
    id: str = ""


def gpu_annotations(gpus: Sequence[GivenGpu], vendor: str, model: str) -> dict[str, str]:
    """Return what the plugin of a vendor is told of a pod's GPUs. Raises DeviceError where it cannot give them."""
    told = {ANNOTATION_GPU_MINORS: _minors(gpus)}
    if vendor == HUAWEI:
        return told | _huawei(gpus, model)
    if vendor == CAMBRICON:
        return told | _cambricon(gpus)
    if vendor == METAX:
        return told | _metax(gpus)
    return told


def time_annotations(vendor: str, at_ns: int) -> dict[str, str]:
    """Return the time of the binding, nanoseconds since the epoch, by which a plugin tells pods apart."""
    told = {ANNOTATION_BIND_TIMESTAMP: str(at_ns)}
    return told | {HUAWEI_TIME: str(at_ns)} if vendor == HUAWEI else told


def _minors(gpus: Sequence[GivenGpu], prefix: str = "") -> str:
    return ",".join(f"{prefix}{gpu.grant.minor}" for gpu in gpus)


def _huawei(gpus: Sequence[GivenGpu], model: str) -> dict[str, str]:
    if model == MODEL_310P:
        return {HUAWEI_310P: _minors(gpus, "Ascend310P-")}
    first = gpus[0].grant
    return {HUAWEI_DEVICES: f"{first.minor}-{first.template}" if first.template else _minors(gpus)}


def _cambricon(gpus: Sequence[GivenGpu]) -> dict[str, str]:
    if len(gpus) > 1:
        raise DeviceError(f"Cambricon's device plugin shares one card with a pod, not {len(gpus)}")
    core, units = _share(gpus[0], CAMBRICON_UNIT_BYTES)
    return {CAMBRICON_ASSIGNED: "false", CAMBRICON_PROFILE: f"{gpus[0].grant.minor}_{core}_{units}"}


def _metax(gpus: Sequence[GivenGpu]) -> dict[str, str]:
    given = []
    for gpu in gpus:
        core, units = _share(gpu, METAX_UNIT_BYTES)
        given.append({"uuid": gpu.id, "compute": core, "vRam": units})
    return {METAX_DEVICES: msgspec.json.encode([given]).decode()}


def _share(gpu: GivenGpu, unit_bytes: int) -> tuple[int, int]:
    """Core in percent, and memory in units."""
    amounts = gpu.grant.amounts
    if GPU_CORE not in amounts:
        raise DeviceError(f"the node's device plugin needs a request of {GPU_CORE}")
    if amounts.get(GPU_MEMORY, 0) < unit_bytes:
        raise DeviceError(f"the node's device plugin gives no less than {unit_bytes} bytes of {GPU_MEMORY}")
    return amounts[GPU_CORE], amounts[GPU_MEMORY] // unit_bytes


@dataclass(frozen=True, slots=True)
class NodeLock:
    """A node's lock: when it was taken, seconds since the epoch, and for which pod (`namespace/name`)."""

    at_seconds: float
    pod: str

    @classmethod
    def read(cls, text: str) -> "NodeLock":
        """Read an annotation. Raises DeviceError for one that is no lock."""
        parts = text.split(",")
        at_seconds = epoch_seconds(parts[0])
        if len(parts) != 3 or at_seconds is None:
            raise DeviceError(f"its value is {text[:64]!r}, expected time,namespace,pod; remove the annotation")
        return cls(at_seconds, f"{parts[1]}/{parts[2]}")

    @property
    def text(self) -> str:
        """The annotation's value."""
        return f"{rfc3339(self.at_seconds)},{self.pod.replace('/', ',')}"


class NodeLocks:
    """Locks of nodes: those that their objects show, and those that were taken and are not shown yet."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], NodeLock] = {}
        """By node and annotation."""

    def seen(self, node: str, annotations: Mapping[str, str]) -> None:
        """Take a node's annotations: of a lock that they show, they say from here on whether it is held."""
        for key in LOCKS.values():
            taken = self._taken.get((node, key))
            if taken is not None and annotations.get(key) == taken.text:
                del self._taken[node, key]

    def forget(self, node: str) -> None:
        """The node is gone."""
        for key in LOCKS.values():
            self._taken.pop((node, key), None)

    def held(self, node: str, key: str, annotations: Mapping[str, str]) -> NodeLock | None:
        """Return the lock of a node, None without one. Raises DeviceError for one that cannot be read."""
        taken = self._taken.get((node, key))
        if taken is not None or not annotations.get(key):
            return taken
        return NodeLock.read(annotations[key])

    def take(self, node: str, key: str, lock: NodeLock) -> None:
        """Note a lock that is being written."""
        self._taken[node, key] = lock
