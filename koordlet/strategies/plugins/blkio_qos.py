"""Block device limits and weights for best-effort work and single pods, and the cost model of the whole disk.

Koordinator's fields in cgroup v2 syntax. A rate of 0 means not limited, as in its protocol; it is left out, never
written.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import field

from api.intents import Intent, Knob, Strength
from api.protocol import ANNOTATION_BLKIO_QOS
from koordlet.strategies.disk_limits import BlkioBlock, BlkioDevice, chosen_devices, rates_text, weights_text
from koordlet.strategies.qos_settings import in_each_class
from koordlet.strategies.settings import read_annotation
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import KubeQoS, NodeView


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
        return chosen_devices(block, disks, self.problems)

    def _limits(self, path: str, devices: Sequence[tuple[str, BlkioDevice]]) -> Iterator[Intent]:
        limited, weighted = rates_text(devices), weights_text(devices)
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
