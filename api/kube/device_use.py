"""Use of a node's devices at one moment, from the agent's devices to its NodeMetric."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """Use of one device by the whole node or by one pod."""

    type: str
    id: str
    minor: int
    core_percent: float
    memory_bytes: int
    total_bytes: int
    """Memory of the device; 0 is not known."""


DeviceUse = Mapping[str, Sequence[DeviceSample]]
"""By uid of the pod in cgroup names; under the empty uid that of the whole node."""
