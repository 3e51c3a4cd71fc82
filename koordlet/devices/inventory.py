"""Devices as sources find them: values that the Device object and the usage report are made from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from api.kube.device import DeviceInfo

GPU_TYPE = "gpu"
RDMA_TYPE = "rdma"
FPGA_TYPE = "fpga"


@dataclass(frozen=True, slots=True)
class LinkGroup:
    """Devices that are linked among themselves."""

    type: str
    """Kind of link: NVLink, HCCS."""
    minors: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """One device; `info` has neither health nor conditions, which follow from the fault."""

    info: DeviceInfo
    fault_code: str = ""
    """Vendor's code of the fault, as `XID-79`."""
    fault: str = ""
    """Why the device cannot be used; empty while it can."""
    vendor: str = ""
    model: str = ""
    driver_version: str = ""
    peers: frozenset[int] = frozenset()
    """Minors of the devices of its type with a direct link to it."""
    groups: tuple[LinkGroup, ...] = ()
    """Sets of linked devices, itself included, where the vendor's tool names them."""
    must_honor_partition: bool = False
    """Only the sets of the partition table may be given out."""

    @property
    def healthy(self) -> bool:
        """Whether the device can be used."""
        return not self.fault and not self.fault_code

    @property
    def minor(self) -> int:
        """Number from 0 within its type."""
        return self.info.minor


def numbered(devices: Iterable[FoundDevice]) -> tuple[FoundDevice, ...]:
    """Return devices without minors of their own, numbered from 0 in the order of their ids."""
    ordered = sorted(devices, key=lambda device: device.info.id)
    return tuple(
        replace(device, info=msgspec.structs.replace(device.info, minor=minor)) for minor, device in enumerate(ordered)
    )
