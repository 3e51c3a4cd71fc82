"""Reporter of devices: looks at an interval, writes the Device object on change, keeps the newest use of GPUs."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from api.crds import DEVICE
from api.kube.device_use import DeviceUse
from api.kube.objects import Node
from cluster import Backoff, Client, Document, KeptObject, Key, Repeating, custom
from koordlet.devices.device_object import device_object, merged, read_spec
from koordlet.devices.gpu_usage import device_use
from koordlet.devices.settings import DeviceSettings
from koordlet.devices.sources import DeviceSources
from koordlet.host.files import HostTree

_log = logging.getLogger(__name__)

NO_USE: DeviceUse = {}
USE_SECONDS = 1.0
"""Time between two readings of the GPUs' use, of which NodeMetric tells averages and percentiles."""


class DeviceReporter:
    """Threads that report the devices of one node, and read their use; `use` and `counters` never wait."""

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
        self._use = NO_USE
        self._one_at_a_time = threading.Lock()
        self._unsupported: frozenset[str] = frozenset()
        self._devices = 0
        self._repeating = Repeating("device-reporter", self.step, settings.interval_seconds, retry)
        self._reading = Repeating("device-use", self.read_use, USE_SECONDS, retry)

    def start(self) -> None:
        """Start the threads."""
        self._repeating.start()
        self._reading.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop; the object stays: its devices are there without this agent."""
        self._repeating.stop(timeout_seconds)
        self._reading.stop(timeout_seconds)
        with self._one_at_a_time:
            self._sources.close()

    def use(self) -> DeviceUse:
        """Return the newest use of the GPUs: the same object until it is read again."""
        return self._use

    def counters(self) -> Mapping[str, int]:
        """Return the counters since the start, and the number of devices."""
        return {"devices": self._devices, "writes": self._kept.writes, "failures": self._repeating.failures}

    def read_use(self) -> None:
        """Read the use of the GPUs that the last look found."""
        with self._one_at_a_time:
            usage = self._sources.usage()
        # Nothing where there is none: most nodes have no GPU, and a reading that is empty is no change.
        self._use = device_use(usage) if usage.gpus else NO_USE

    def step(self) -> None:
        """Look, and write what changed. Raises ClusterError where the API server refuses."""
        with self._one_at_a_time:
            inventory = self._sources.look()
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
