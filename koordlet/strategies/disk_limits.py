"""Limits and weights of block devices, in Koordinator's fields and cgroup v2 syntax.

A rate of 0 means not limited, as in its protocol; it is left out, never written.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from msgspec import Meta, field

from koordlet.strategies.strategy import StrategySettings

Rate = Annotated[int, Meta(ge=0)]
Latency = Annotated[int, Meta(ge=1, le=10_000_000)]
Percentile = Annotated[int, Meta(ge=0, le=100)]


class BlkioDevice(StrategySettings, frozen=True):
    """ioCfg: rates by second, latencies in microseconds."""

    read_iops: Rate = field(default=0, name="readIOPS")
    write_iops: Rate = field(default=0, name="writeIOPS")
    read_bps: Rate = field(default=0, name="readBPS")
    write_bps: Rate = field(default=0, name="writeBPS")
    io_weight_percent: Annotated[int, Meta(ge=1, le=100)] = 100
    read_latency: Latency = 3000
    write_latency: Latency = 3000
    read_latency_percent: Percentile = 95
    write_latency_percent: Percentile = 95
    enable_user_model: bool = False
    model_read_bps: Rate = field(default=0, name="modelReadBPS")
    model_write_bps: Rate = field(default=0, name="modelWriteBPS")
    model_read_seq_iops: Rate = field(default=0, name="modelReadSeqIOPS")
    model_write_seq_iops: Rate = field(default=0, name="modelWriteSeqIOPS")
    model_read_rand_iops: Rate = field(default=0, name="modelReadRandIOPS")
    model_write_rand_iops: Rate = field(default=0, name="modelWriteRandIOPS")

    @property
    def limits(self) -> str:
        """Return the limits in the syntax of `io.max`; empty where nothing is limited."""
        rates = {"rbps": self.read_bps, "wbps": self.write_bps, "riops": self.read_iops, "wiops": self.write_iops}
        return " ".join(f"{key}={rate or 'max'}" for key, rate in rates.items()) if any(rates.values()) else ""

    @property
    def quality(self) -> str:
        """Return the latency targets in the syntax of `io.cost.qos`."""
        reads = f"rpct={self.read_latency_percent} rlat={self.read_latency}"
        return f"enable=1 ctrl=user {reads} wpct={self.write_latency_percent} wlat={self.write_latency}"

    @property
    def model(self) -> str:
        """Return the cost model in the syntax of `io.cost.model`."""
        if not self.enable_user_model:
            return "ctrl=auto"
        return " ".join(["ctrl=user model=linear", *(f"{key}={amount}" for key, amount in self._modelled.items())])

    @property
    def _modelled(self) -> dict[str, int]:
        return {
            "rbps": self.model_read_bps,
            "rseqiops": self.model_read_seq_iops,
            "rrandiops": self.model_read_rand_iops,
            "wbps": self.model_write_bps,
            "wseqiops": self.model_write_seq_iops,
            "wrandiops": self.model_write_rand_iops,
        }

    def __post_init__(self) -> None:
        if self.enable_user_model and not all(self._modelled.values()):
            raise ValueError("enableUserModel needs all six model figures above 0; set them or leave it out")


class Block(StrategySettings, frozen=True):
    """One device, volume group or pod volume."""

    name: str = ""
    type: Literal["device", "volumegroup", "podvolume"] = "device"
    io_cfg: BlkioDevice = BlkioDevice()


class BlkioBlock(StrategySettings, frozen=True):
    """blkioQOS of one class or of a pod's annotation."""

    enable: bool = False
    blocks: tuple[Block, ...] = ()


def chosen_devices(
    block: BlkioBlock, disks: Mapping[str, str], problems: dict[str, str]
) -> list[tuple[str, BlkioDevice]]:
    """Return the configured devices by major:minor, and note those that the node lacks."""
    if not block.enable:
        return []
    for named in block.blocks:
        if named.name not in disks:
            problems[named.name] = f"the node has no {named.type} {named.name!r}; correct blocks.name"
    return [(disks[named.name], named.io_cfg) for named in block.blocks if named.name in disks]


def rates_text(devices: Sequence[tuple[str, BlkioDevice]]) -> str:
    """Return the limits in the syntax of `io.max`; empty where nothing is limited."""
    return "\n".join(f"{number} {device.limits}" for number, device in devices if device.limits)


def weights_text(devices: Sequence[tuple[str, BlkioDevice]]) -> str:
    """Return the weights in the syntax of `io.weight`; empty where none is below 100."""
    return "\n".join(
        f"{number} {device.io_weight_percent}" for number, device in devices if device.io_weight_percent < 100
    )
