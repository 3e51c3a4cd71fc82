"""Where a cgroup's files are in each hierarchy, and what is said where they are not."""

from dataclasses import dataclass
from pathlib import Path

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.attribute_formats import Format, Layout
from koordlet.host.attributes import KernelFile, Place
from koordlet.host.cgroups.hierarchies import find_mounts
from koordlet.host.files import HostTree

_V1_NAMES = {"io": "blkio"}

LACKING: dict[Knob, tuple[str, str]] = {
    Knob.CPU_IDLE: ("the kernel has no cpu.idle", "needs Linux 5.15 or later"),
    Knob.CPU_BURST: ("the kernel has no CFS burst", "needs Linux 5.14 or later"),
    Knob.CPU_BVT: ("the kernel has no group identity", "use cpu.idle instead"),
    Knob.IO_LATENCY: ("there is no io.latency here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOLATENCY"),
    Knob.IO_COST_QOS: ("there is no io.cost here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOCOST"),
    Knob.IO_COST_MODEL: ("there is no io.cost here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOCOST"),
    Knob.FREEZE: ("there is no freezer here", "mount the freezer controller or boot with cgroup v2"),
    Knob.CORE_SCHED: (
        "the agent sets no core scheduling cookies: no kernel that it is tried on has CONFIG_SCHED_CORE",
        "give whole cores by cpuset, or start the container by coresched of util-linux",
    ),
    Knob.NODE_TAINT: ("taints are set at the API server", "let the controllers do it"),
    Knob.SCHED_FEATURE: ("scheduler features are not readable here", "mount debugfs on /sys/kernel/debug"),
}
"""Reason and remedy where a kernel or host lacks a knob."""
_LACKING_V1: dict[Knob, tuple[str, str]] = {
    Knob.MEMORY_MIN: ("cgroup v1 has no memory protection; its soft limit is no equivalent", "boot with cgroup v2"),
    Knob.MEMORY_LOW: ("cgroup v1 has no memory protection; its soft limit is no equivalent", "boot with cgroup v2"),
    Knob.MEMORY_HIGH: ("cgroup v1 has no memory.high; its soft limit is no equivalent", "boot with cgroup v2"),
}


@dataclass(frozen=True, slots=True)
class Assignment:
    """One place and the canonical text that it is to hold."""

    place: Place
    value: str
    by_kernel: bool = False
    """The kernel sets it as a side effect of another part: it is not written, but put back."""
    also: tuple[str, ...] = ()
    """Further texts that the kernel leaves there by itself on the way back."""


class CgroupGone(Exception):
    """The target is no cgroup any more."""


class Directories:
    """Each controller is looked up for itself: on a hybrid host one may be on v1 and another on v2."""

    def __init__(self, tree: HostTree) -> None:
        self.tree = tree
        self._v1, self._unified = find_mounts(tree)

    def is_v1(self, controller: str) -> bool:
        """Whether the controller has a v1 hierarchy."""
        return _V1_NAMES.get(controller, controller) in self._v1

    def directory(self, controller: str, target: str) -> Path:
        """The target's directory in the controller's hierarchy; raises Unsupported or CgroupGone."""
        mount = self._mount(controller)
        directory = mount / target.strip("/")
        if not directory.is_dir():
            elsewhere = self._mount("cpu") / target.strip("/")
            if elsewhere.is_dir():
                raise Unsupported(f"{target} is not in the {controller} hierarchy", f"make it below {mount}")
            raise CgroupGone(target)
        return directory

    def _mount(self, controller: str) -> Path:
        mount = self._v1.get(_V1_NAMES.get(controller, controller), self._unified)
        if mount is None:
            raise Unsupported(f"no hierarchy has the {controller} controller", f"mount the {controller} controller")
        return mount

    def file(
        self, knob: Knob, controller: str, target: str, name: str, form: Format, layout: Layout = Layout.WHOLE
    ) -> KernelFile:
        """A file of the target's; raises Unsupported where the kernel does not offer it."""
        path = self.directory(controller, target) / name
        if not path.exists():
            known = LACKING | _LACKING_V1 if self.is_v1(controller) else LACKING
            raise Unsupported(*known.get(knob, (f"there is no {path}", f"enable the {controller} controller there")))
        return KernelFile(str(path), form, layout)
