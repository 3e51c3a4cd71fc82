"""Settings of [devices]: which devices are looked for, and whether the scheduler is told."""

from typing import Annotated

import msgspec


class DeviceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[devices]: GPUs, NICs and FPGAs for the scheduler; off by default."""

    report: bool = False
    """Write the node's Device object; needs `[cluster] enabled`."""
    gpus: bool = True
    """Look for GPUs through NVML, which needs the extra `koord[gpu]`."""
    xpu_directory: str = "/var/run/koordlet/xpu-device-infos"
    """Directory, below `root`, of device-info files of other accelerators; empty looks for none."""
    rdma: bool = True
    """Look for RDMA NICs in sysfs."""
    fpgas: bool = True
    """Look for FPGA cards in sysfs."""
    interval_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 10.0
    """Time between two looks at health and use; the object is written on change only."""
