"""PSI of each cgroup where the kernel keeps it (the v2 tree, also beside v1): stalled seconds by resource.

Stalls on memory and IO are exact in every tick at the cost of few reads: a thread that stalls counts in each cgroup
above its own too, so where a parent's total stands still, nothing below it grew, and no file there is read. CPU
pressure grows nearly everywhere, and probes see more; it is read in turn.
"""

import errno
from collections.abc import Iterator, Sequence

from api.cgroup_path import parent
from api.frame import CgroupInfo
from api.plugin import Unsupported
from koordlet.collectors import FileCollector, Host, PerCgroupFile, Round
from koordlet.host.files import HostError, KeptFiles
from koordlet.host.pressure import RESOURCES, parse_pressure


class Pressure(FileCollector):
    """`some` and `full` totals. A cgroup's CPU pressure includes its own throttling, so it is shown, not blamed."""

    source = "pressure"

    def __init__(self, files: Sequence[PerCgroupFile]) -> None:
        super().__init__(files)
        self._cgroups: Sequence[CgroupInfo] = ()
        self._below: dict[str, list[CgroupInfo]] = {}

    def read(self, work: Round, file: PerCgroupFile) -> None:
        """Of CPU pressure the files in turn, of the others those that may have grown; the rest did not."""
        if file is self._per_cgroup[0]:
            super().read(work, file)
            return
        file.collect(self._may_have_grown(work, file), work.now_ns)
        file.hold(work.now_ns)

    def _may_have_grown(self, work: Round, file: PerCgroupFile) -> Iterator[CgroupInfo]:
        """Parents before children, each to be read before the next is asked for."""
        if work.cgroups is not self._cgroups:
            self._cgroups, self._below = work.cgroups, _by_nearest_parent(work.cgroups)
        turn = {info.id for info in work.due}
        waiting = [(info, True) for info in self._below.get("", ())]
        while waiting:
            info, above_grew = waiting.pop()
            known, before = file.has(info.id), file.first_value(info.id)
            if known or above_grew or info.id in turn:
                yield info
            readable = file.was_read(info.id, work.now_ns)
            grew = readable and (not known or file.first_value(info.id) != before)
            # Below a cgroup without the file (no such directory in the v2 tree, or PSI switched off in it, before or
            # by now) the others that have one are read in every tick; which have one is found in turn.
            if grew or not readable:
                waiting += [(child, grew) for child in self._below.get(info.path, ())]
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


def _by_nearest_parent(cgroups: Sequence[CgroupInfo]) -> dict[str, list[CgroupInfo]]:
    """Cgroups by the path of the nearest one above that is among them; those without one by the empty path."""
    paths = {info.path for info in cgroups}
    below: dict[str, list[CgroupInfo]] = {}
    for info in cgroups:
        above = parent(info.path)
        while above and above not in paths:
            above = parent(above)
        below.setdefault(above, []).append(info)
    return below
