"""Device demands of a pod: number of devices of each kind, and the amount of each one.

The accepted combinations and their canonical form are Koordinator's; anything else is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from api.protocol import DEPRECATED_RESOURCES, FPGA, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, RDMA

WHOLE_PERCENT = 100
"""Percent of one whole device."""

NPU_CORE = "huawei.com/npu-core"
NPU_CPU = "huawei.com/npu-cpu"
NPU_DVPP = "huawei.com/npu-dvpp"
CARDS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
"""Native device-plugin resources that count whole cards."""

_PERCENTAGES = (GPU_CORE, GPU_MEMORY_RATIO, RDMA, FPGA, GPU)
_COMBINATIONS: frozenset[frozenset[str]] = frozenset(
    frozenset(names)
    for names in (
        (GPU_MEMORY,),
        (GPU_MEMORY_RATIO,),
        (GPU_CORE, GPU_MEMORY),
        (GPU_CORE, GPU_MEMORY_RATIO),
        (GPU,),
        *((card,) for card in CARDS),
        (GPU_SHARED, GPU_MEMORY),
        (GPU_SHARED, GPU_MEMORY_RATIO),
        (GPU_SHARED, GPU_CORE, GPU_MEMORY),
        (GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO),
        (NPU_CORE, GPU_MEMORY_RATIO),
        (NPU_CORE, NPU_CPU, GPU_MEMORY),
        (NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY),
    )
)
_GPU_NAMES = frozenset().union(*_COMBINATIONS)


class DeviceKind(StrEnum):
    """Kinds of devices the protocol allocates."""

    GPU = "gpu"
    RDMA = "rdma"
    FPGA = "fpga"


class DeviceRequestError(ValueError):
    """A pod's device requests contradict the protocol; no node can serve them."""


@dataclass(frozen=True, slots=True)
class DeviceDemand:
    """`count` devices of one kind, each with the amounts of `each` (percent, bytes or vendor units)."""

    kind: DeviceKind
    count: int
    each: Mapping[str, int]

    @property
    def shared(self) -> bool:
        """True when a GPU may serve others beside this pod: less than its whole memory, or memory in bytes."""
        return GPU_MEMORY in self.each or self.each.get(GPU_MEMORY_RATIO, WHOLE_PERCENT) < WHOLE_PERCENT


def device_names(requests: Mapping[str, int]) -> dict[str, int]:
    """The device resources of a request above zero, older spellings translated."""
    named: dict[str, int] = {}
    for name, amount in requests.items():
        current = DEPRECATED_RESOURCES.get(name, name)
        if amount > 0 and (current in _GPU_NAMES or current in (RDMA, FPGA)):
            named[current] = named.get(current, 0) + amount
    return named


def device_demands(requests: Mapping[str, int]) -> dict[DeviceKind, DeviceDemand]:
    """Demand by kind for a pod's summed requests; empty when it asks for no device.

    Raises DeviceRequestError for a combination or amount that the protocol does not know.
    """
    named = device_names(requests)
    demands: dict[DeviceKind, DeviceDemand] = {}
    gpu = {name: amount for name, amount in named.items() if name in _GPU_NAMES}
    for name, amount in named.items():
        if name in _PERCENTAGES and amount > WHOLE_PERCENT and amount % WHOLE_PERCENT and GPU_SHARED not in gpu:
            raise DeviceRequestError(f"{name}: {amount} is above {WHOLE_PERCENT} and no multiple of it")
    if gpu:
        demands[DeviceKind.GPU] = _gpu_demand(gpu)
    for kind, name in ((DeviceKind.RDMA, RDMA), (DeviceKind.FPGA, FPGA)):
        if name in named:
            demands[kind] = _percent_demand(kind, name, named[name])
    return demands


def _percent_demand(kind: DeviceKind, name: str, amount: int) -> DeviceDemand:
    count = max(1, amount // WHOLE_PERCENT)
    return DeviceDemand(kind, count, {name: amount // count})


def _gpu_demand(asked: Mapping[str, int]) -> DeviceDemand:
    if frozenset(asked) not in _COMBINATIONS:
        raise DeviceRequestError(f"GPU resources that do not go together: {', '.join(sorted(asked))}")
    amounts = _canonical(asked)
    count = amounts.pop(GPU_SHARED, 0) or max(1, amounts.get(GPU_MEMORY_RATIO, 0) // WHOLE_PERCENT)
    if GPU_SHARED in asked:
        _check_shares(amounts, count)
    if NPU_CPU in asked and asked.get(NPU_DVPP, 0) > WHOLE_PERCENT:
        raise DeviceRequestError(f"{NPU_DVPP}: {asked[NPU_DVPP]} is above {WHOLE_PERCENT}")
    return DeviceDemand(DeviceKind.GPU, count, {name: amount // count for name, amount in amounts.items()})


def _canonical(asked: Mapping[str, int]) -> dict[str, int]:
    """Cards and the `gpu` shorthand as core and memory percent; all else unchanged."""
    for name, scale in ((GPU, 1), *((card, WHOLE_PERCENT) for card in CARDS)):
        if name in asked:
            return {GPU_CORE: asked[name] * scale, GPU_MEMORY_RATIO: asked[name] * scale}
    return dict(asked)


def _check_shares(amounts: Mapping[str, int], count: int) -> None:
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        amount = amounts.get(name, 0)
        if amount % count or amount // count > WHOLE_PERCENT:
            raise DeviceRequestError(f"{name}: {amount} does not split into {count} shares of at most {WHOLE_PERCENT}")
