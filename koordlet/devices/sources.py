"""All sources of devices as the settings ask for them; one that is absent is tried again later."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.plugin import Unsupported
from koordlet.devices.fpga import fpga_devices
from koordlet.devices.gpu_usage import GpuUsage, read_usage
from koordlet.devices.inventory import FoundDevice
from koordlet.devices.nvml import Nvml
from koordlet.devices.rdma import rdma_devices
from koordlet.devices.settings import DeviceSettings
from koordlet.devices.xpu_files import xpu_devices
from koordlet.host.files import HostError, HostTree

_log = logging.getLogger(__name__)

GPUS, XPUS, NICS, FPGAS = "gpus", "xpu-files", "rdma", "fpga"
"""Names of the sources."""
RETRY_LOOKS = 6
"""Looks between two tries to start NVML."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Devices of all sources at one moment."""

    devices: tuple[FoundDevice, ...] = ()
    unsupported: Mapping[str, Unsupported] = field(default_factory=dict)
    """Sources that found nothing, with the reason."""


class DeviceSources:
    """The sources of one host; used by one thread. `close` releases NVML."""

    def __init__(self, settings: DeviceSettings, tree: HostTree) -> None:
        self._settings = settings
        self._tree = tree
        self._nvml: Nvml | None = None
        self._nvml_refused: Unsupported | None = None
        self._looks_to_retry = 0
        self._complained: tuple[str, ...] = ()

    def look(self) -> Inventory:
        """Return the devices of all sources."""
        readers: dict[str, Callable[[], tuple[FoundDevice, ...]]] = {}
        if self._settings.gpus:
            readers[GPUS] = self._gpus
        if self._settings.xpu_directory:
            readers[XPUS] = self._xpus
        if self._settings.rdma:
            readers[NICS] = lambda: rdma_devices(self._tree)
        if self._settings.fpgas:
            readers[FPGAS] = lambda: fpga_devices(self._tree)
        found: list[FoundDevice] = []
        unsupported: dict[str, Unsupported] = {}
        for name, read in readers.items():
            try:
                found += _not_taken(read(), found)
            except Unsupported as reason:
                unsupported[name] = reason
            except HostError as error:
                unsupported[name] = Unsupported(str(error))
        return Inventory(devices=tuple(found), unsupported=unsupported)

    def usage(self) -> GpuUsage:
        """Return the use of the GPUs that NVML knows."""
        return read_usage(self._nvml, self._tree) if self._nvml else GpuUsage()

    def close(self) -> None:
        """Release NVML; idempotent."""
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None

    def _gpus(self) -> tuple[FoundDevice, ...]:
        if self._nvml is None:
            if self._nvml_refused is not None and self._looks_to_retry > 0:
                self._looks_to_retry -= 1
                raise self._nvml_refused
            try:
                self._nvml = Nvml(self._tree)
            except Unsupported as reason:
                self._nvml_refused, self._looks_to_retry = reason, RETRY_LOOKS
                raise
        return self._nvml.found()

    def _xpus(self) -> tuple[FoundDevice, ...]:
        found = xpu_devices(self._tree.path(self._settings.xpu_directory))
        if found.refused and found.refused != self._complained:
            _log.warning("device-info files: %s", "; ".join(found.refused[:8]))
        self._complained = found.refused
        return found.devices


def _not_taken(devices: tuple[FoundDevice, ...], before: list[FoundDevice]) -> list[FoundDevice]:
    """Devices whose minor no earlier source gave to another one: a tool may list the GPUs that NVML shows, too."""
    taken = {(device.info.type, device.minor) for device in before}
    return [device for device in devices if (device.info.type, device.minor) not in taken]
