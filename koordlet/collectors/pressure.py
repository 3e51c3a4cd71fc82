"""PSI of each cgroup where the kernel keeps it (the v2 tree, also beside v1): stalled seconds by resource.

Stalls on memory and IO are exact in every tick at the cost of few reads: a thread that stalls counts in each cgroup
above its own too, so where a parent's total stands still, nothing below it grew, and no file there is read. CPU
pressure grows nearly everywhere, and probes see more; it is read in turn.
"""

import errno
from collections.abc import Iterator, Sequence

from api.frame import CgroupInfo
from api.plugin import Unsupported
from koordlet.collectors import FileCollector, GrowthWalk, Host, PerCgroupFile, Round
from koordlet.host.files import HostError, KeptFiles
from koordlet.host.pressure import RESOURCES, parse_pressure


class Pressure(FileCollector):
    """`some` and `full` totals. A cgroup's CPU pressure includes its own throttling, so it is shown, not blamed."""

    source = "pressure"

    def __init__(self, files: Sequence[PerCgroupFile]) -> None:
        super().__init__(files)
        self._growth = GrowthWalk()

    def read(self, work: Round, file: PerCgroupFile) -> None:
        """Of CPU pressure the files in turn, of the others those that may have grown; the rest did not."""
        if file is self._per_cgroup[0]:
            super().read(work, file)
            return
        file.collect(self._may_have_grown(work, file), work.now_ns)
        file.hold(work.now_ns)

    def _may_have_grown(self, work: Round, file: PerCgroupFile) -> Iterator[CgroupInfo]:
        yield from self._growth.walk(work, file)
        yield from (info for info in work.due if not file.has(info.id))

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
