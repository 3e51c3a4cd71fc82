"""Block device limits and weights for best-effort work and single pods, and the cost model of the whole disk.

Koordinator's fields in cgroup v2 syntax. A rate of 0 means not limited, as in its protocol; it is left out, never
written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field

from api.intents import Intent, Knob, Strength
from api.protocol import ANNOTATION_BLKIO_QOS
from koordlet.strategies.qos_settings import in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import KubeQoS, NodeView

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


class BlkioClass(StrategySettings, frozen=True):
    """One class."""

    blkio_qos: BlkioBlock = field(default=BlkioBlock(), name="blkioQOS")


class BlkioQosSettings(StrategySettings, frozen=True):
    """blkioQOS of resourceQOSStrategy."""

    be_class: BlkioClass = BlkioClass()
    cgroup_root: BlkioClass = BlkioClass()


class BlkioQos(Strategy[BlkioQosSettings]):
    """Limits and weights of the best-effort directory, of annotated pods but protected ones, and of the root cgroup.

    Reads: devices and volumes
    Intents: `io.max`, `io.weight`, `io.cost.*`
    Pods: annotation
    Default: off, gate closed
    Source: Koordinator
    """

    section: ClassVar[str] = "resourceQOSStrategy"
    features: ClassVar[Mapping[str, bool]] = {"BlkIOReconcile": False}
    settings_type = BlkioQosSettings
    is_protocol_state: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Any]] = in_each_class(
        {
            "blkioQOS": {
                "enable": True,
                "blocks": [{"name": "vda", "ioCfg": {"readBPS": 1000, "ioWeightPercent": 40}}],
            }
        }
    )

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        """Return the same on every tick in which pods and settings stay."""
        if not self.gates["BlkIOReconcile"]:
            return []
        disks = view.node.disks
        intents = list(self._root(self._devices(self.settings.cgroup_root.blkio_qos, disks)))
        directory = view.qos_dir(KubeQoS.BEST_EFFORT)
        if directory is not None:
            intents += self._limits(directory.path, self._devices(self.settings.be_class.blkio_qos, disks))
        for pod in view.pods:
            if pod.active and not pod.protected and ANNOTATION_BLKIO_QOS in pod.annotations:
                asked = read_annotation(pod, ANNOTATION_BLKIO_QOS, BlkioBlock(enable=True), self.problems)
                intents += self._limits(pod.path, self._devices(asked, {**disks, **pod.volumes}))
        return intents

    def _devices(self, block: BlkioBlock, disks: Mapping[str, str]) -> list[tuple[str, BlkioDevice]]:
        """Return the configured devices by major:minor, and note those that the node lacks."""
        if not block.enable:
            return []
        for named in block.blocks:
            if named.name not in disks:
                self.problems[named.name] = f"the node has no {named.type} {named.name!r}; correct blocks.name"
        return [(disks[named.name], named.io_cfg) for named in block.blocks if named.name in disks]

    def _limits(self, path: str, devices: Sequence[tuple[str, BlkioDevice]]) -> Iterator[Intent]:
        limited = "\n".join(f"{number} {device.limits}" for number, device in devices if device.limits)
        weighted = "\n".join(
            f"{number} {device.io_weight_percent}" for number, device in devices if device.io_weight_percent < 100
        )
        if limited:
            yield self.set_knob(path, Knob.IO_MAX, limited, "its configured rates", Strength.HARD)
        if weighted:
            yield self.set_knob(path, Knob.IO_WEIGHT, weighted, "its configured share", Strength.INVISIBLE)

    def _root(self, devices: Sequence[tuple[str, BlkioDevice]]) -> Iterator[Intent]:
        if devices:
            quality = "\n".join(f"{number} {device.quality}" for number, device in devices)
            model = "\n".join(f"{number} {device.model}" for number, device in devices)
            yield self.set_knob("/", Knob.IO_COST_QOS, quality, "weights count from these latencies on")
            yield self.set_knob("/", Knob.IO_COST_MODEL, model, "what a request costs the disk")
