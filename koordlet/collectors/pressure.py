"""PSI of each cgroup where the kernel keeps it (the v2 tree, also beside v1): stalled seconds by resource."""

import errno

from api.plugin import Unsupported
from koordlet.collectors import FileCollector, Host, PerCgroupFile
from koordlet.host.files import HostError, KeptFiles
from koordlet.host.pressure import RESOURCES, parse_pressure


class Pressure(FileCollector):
    """`some` and `full` totals. A cgroup's CPU pressure includes its own throttling, so it is shown, not blamed."""

    source = "pressure"

    @classmethod
    def open(cls, host: Host) -> "Pressure":
        """Raises Unsupported without a v2 tree or with PSI switched off."""
        mount = host.hierarchies.unified
        if mount is None:
            raise Unsupported("no cgroup2 tree is mounted, so there is no PSI for each cgroup", "mount cgroup2")
        if host.tree.text("/proc/pressure/cpu") is None:
            raise Unsupported("the kernel has PSI switched off", "boot with psi=1")
        try:
            (mount / "cpu.pressure").read_text()
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise Unsupported("cgroup PSI is switched off", "boot with psi=1") from error
            if error.errno != errno.ENOENT:
                raise HostError(mount / "cpu.pressure", "read", error.errno or errno.EIO) from error
        return cls(
            [
                PerCgroupFile(
                    KeptFiles(mount, f"{resource}.pressure"),
                    (f"pressure.{resource}_some_us", f"pressure.{resource}_full_us"),
                    parse_pressure,
                )
                for resource in RESOURCES
            ]
        )
