"""Reporter of devices: looks at an interval, writes the Device object on change, keeps the newest use of GPUs."""

import logging
import time
from collections.abc import Callable, Mapping

from api.crds import DEVICE
from api.kube.objects import Node
from cluster import Backoff, Client, Document, KeptObject, Key, Repeating, custom
from koordlet.devices.device_object import device_object, merged, read_spec
from koordlet.devices.gpu_usage import GpuUsage
from koordlet.devices.settings import DeviceSettings
from koordlet.devices.sources import DeviceSources
from koordlet.host.files import HostTree

_log = logging.getLogger(__name__)


class DeviceReporter:
    """Thread that reports the devices of one node; `usage` and `counters` never wait."""

    def __init__(
        self,
        client: Client,
        name: str,
        node: Callable[[], Node | None],
        settings: DeviceSettings,
        tree: HostTree,
        retry: Backoff,
    ) -> None:
        """`node` is the newest object of the node called `name`; nothing is written before it is known."""
        self._name = name
        self._node = node
        self._sources = DeviceSources(settings, tree)
        self._kept = KeptObject(client, custom(DEVICE), Key("", name))
        self._usage = GpuUsage()
        self._unsupported: frozenset[str] = frozenset()
        self._devices = 0
        self._repeating = Repeating("device-reporter", self.step, settings.interval_seconds, retry)

    def start(self) -> None:
        """Start the thread."""
        self._repeating.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop; the object stays: its devices are there without this agent."""
        self._repeating.stop(timeout_seconds)
        self._sources.close()

    def usage(self) -> GpuUsage:
        """Return the newest use of the GPUs."""
        return self._usage

    def counters(self) -> Mapping[str, int]:
        """Return the counters since the start, and the number of devices."""
        return {"devices": self._devices, "writes": self._kept.writes, "failures": self._repeating.failures}

    def step(self) -> None:
        """Look, and write what changed. Raises ClusterError where the API server refuses."""
        inventory = self._sources.look()
        self._usage = self._sources.usage()
        self._devices = len(inventory.devices)
        for source in sorted(inventory.unsupported.keys() - self._unsupported):
            _log.info("no devices from %s: %s", source, inventory.unsupported[source].reason)
        self._unsupported = frozenset(inventory.unsupported)
        node = self._node()
        if node is None or not node.metadata.uid:
            return
        now_seconds = time.time()

        def change(stored: Document | None) -> Document | None:
            told = read_spec(stored)
            wanted = device_object(inventory.devices, self._name, node.metadata.uid, told, now_seconds)
            return merged(stored, wanted)

        self._kept.sync(change, time.monotonic())
