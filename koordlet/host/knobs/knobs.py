"""What a knob means on this host: the places it sets and the texts they are to hold, on cgroup v1, hybrid and v2.

Knobs are spoken in the syntax of cgroup v2. In another hierarchy a cgroup has the same path below the mount.
"""

from collections.abc import Callable
from pathlib import Path

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.attribute_formats import MAX, Format, canonical, shares_of_weight
from koordlet.host.attributes import ProcessFiles, ResourceGroup
from koordlet.host.cgroups.controllers import LACKING, Assignment, CgroupGone, Directories
from koordlet.host.files import HostTree
from koordlet.host.knobs import io as io_knobs
from koordlet.host.knobs import machine as machine_knobs
from koordlet.host.knobs.traffic import TrafficKnob, TrafficLink
from koordlet.host.resctrl_groups import group_directory

__all__ = ["Assignment", "CgroupGone", "Knobs"]

RESCTRL_MOUNT = "/sys/fs/resctrl"
_IDLE_SHARES, _IDLE_WEIGHT = "3", "1"
"""What the kernel shows for an idle cgroup (WEIGHT_IDLEPRIO)."""
_FRESH_SHARES, _FRESH_WEIGHT = ("1024",), ("0", "100")
"""What it shows afterwards; and 0, which some show for an idle one."""

_WHOLE_FILES: dict[Knob, tuple[str, Format]] = {
    Knob.CPU_BVT: ("cpu", Format.INTEGER),
    Knob.CPUSET_CPUS: ("cpuset", Format.CPUS),
    Knob.CPUSET_MEMS: ("cpuset", Format.CPUS),
    Knob.MEMORY_MIN: ("memory", Format.BYTES),
    Knob.MEMORY_LOW: ("memory", Format.BYTES),
    Knob.MEMORY_HIGH: ("memory", Format.BYTES),
    Knob.MEMORY_WMARK_RATIO: ("memory", Format.INTEGER),
    Knob.MEMORY_WMARK_SCALE_FACTOR: ("memory", Format.INTEGER),
    Knob.MEMORY_WMARK_MIN_ADJ: ("memory", Format.INTEGER),
    Knob.MEMORY_PRIORITY: ("memory", Format.INTEGER),
    Knob.MEMORY_USE_PRIORITY_OOM: ("memory", Format.INTEGER),
    Knob.MEMORY_OOM_GROUP: ("memory", Format.INTEGER),
    Knob.PAGE_CACHE_ENABLE: ("memory", Format.INTEGER),
    Knob.PAGE_CACHE_LIMIT: ("memory", Format.BYTES),
    Knob.PAGE_CACHE_SYNC: ("memory", Format.INTEGER),
}
"""Knobs whose file has the same name and text on every version that has it: controller and form."""


class Knobs:
    """Translates for one host. `resctrl` is where resctrl is mounted, `traffic` the link that has traffic classes."""

    def __init__(self, tree: HostTree, resctrl: Path | None = None, traffic: TrafficLink | None = None) -> None:
        self._tree = tree
        self._directories = directories = Directories(tree)
        self.resctrl = resctrl or tree.path(RESCTRL_MOUNT)
        self._special: dict[Knob, Callable[[str, str], tuple[Assignment, ...]]] = {
            Knob.CPU_WEIGHT: self._cpu_weight,
            Knob.CPU_MAX: self._cpu_max,
            Knob.CPU_BURST: self._cpu_burst,
            Knob.CPU_IDLE: self._cpu_idle,
            Knob.FREEZE: self._freeze,
            Knob.MEMORY_MAX: self._memory_max,
            Knob.IO_WEIGHT: lambda target, value: io_knobs.weight_parts(directories, target, value),
            Knob.IO_MAX: lambda target, value: io_knobs.limit_parts(directories, target, value),
            Knob.OOM_SCORE_ADJ: self._oom_score_adj,
            Knob.RESCTRL_GROUP: lambda target, value: machine_knobs.task_parts(
                directories, self.resctrl, target, value
            ),
            Knob.RESCTRL_SCHEMATA: lambda target, value: machine_knobs.schemata_parts(self.resctrl, target, value),
            Knob.NET_CLASS: TrafficKnob(tree, directories, traffic or TrafficLink()).parts,
            Knob.SYSCTL: lambda target, value: machine_knobs.sysctl_parts(tree, target, value),
            Knob.SCHED_FEATURE: lambda target, value: machine_knobs.feature_parts(tree, target, value),
        }

    def parts(self, knob: Knob, target: str, value: str) -> tuple[Assignment, ...]:
        """What to set, in no particular order.

        Raises Unsupported where the host has no such thing, CgroupGone where it has no such cgroup, and ValueError
        for a value or target that is not one.
        """
        if ".." in target.split("/"):
            raise ValueError(f"target {target!r} leaves its hierarchy")
        special = self._special.get(knob)
        if special is not None:
            return special(target, value)
        if knob in (Knob.IO_LATENCY, Knob.IO_COST_QOS, Knob.IO_COST_MODEL):
            return io_knobs.keyed_parts(self._directories, knob, target, value)
        if knob not in _WHOLE_FILES:
            raise Unsupported(*LACKING[knob])
        controller, form = _WHOLE_FILES[knob]
        place = self._directories.file(knob, controller, target, knob.value, form)
        return (Assignment(place, canonical(form, value)),)

    def directory(self, controller: str, target: str) -> Path:
        """The target's directory in the controller's hierarchy; raises Unsupported or CgroupGone."""
        return self._directories.directory(controller, target)

    def controls_resources(self) -> bool:
        """Whether resctrl is mounted."""
        return (self.resctrl / "schemata").exists()

    def group(self, name: str) -> ResourceGroup:
        """The control group of that name."""
        return ResourceGroup(str(group_directory(self.resctrl, name)))

    def _cpu_weight(self, target: str, value: str) -> tuple[Assignment, ...]:
        weight = int(value)
        if self._directories.is_v1("cpu"):
            place = self._directories.file(Knob.CPU_WEIGHT, "cpu", target, "cpu.shares", Format.INTEGER)
            return (Assignment(place, str(shares_of_weight(weight))),)
        place = self._directories.file(Knob.CPU_WEIGHT, "cpu", target, "cpu.weight", Format.INTEGER)
        return (Assignment(place, str(weight)),)

    def _cpu_max(self, target: str, value: str) -> tuple[Assignment, ...]:
        quota, _, period = value.strip().partition(" ")
        if not self._directories.is_v1("cpu"):
            place = self._directories.file(Knob.CPU_MAX, "cpu", target, "cpu.max", Format.CPU_MAX)
            kept = period or (next(iter(place.read() or ()), f"{MAX} 100000").partition(" ")[2])
            return (Assignment(place, canonical(Format.CPU_MAX, f"{quota} {kept}")),)
        first = self._directories.file(Knob.CPU_MAX, "cpu", target, "cpu.cfs_quota_us", Format.QUOTA_US)
        parts = [Assignment(first, canonical(Format.QUOTA_US, quota))]
        if period:
            second = self._directories.file(Knob.CPU_MAX, "cpu", target, "cpu.cfs_period_us", Format.INTEGER)
            parts.append(Assignment(second, canonical(Format.INTEGER, period)))
        return tuple(parts)

    def _cpu_burst(self, target: str, value: str) -> tuple[Assignment, ...]:
        name = "cpu.cfs_burst_us" if self._directories.is_v1("cpu") else "cpu.max.burst"
        place = self._directories.file(Knob.CPU_BURST, "cpu", target, name, Format.INTEGER)
        return (Assignment(place, canonical(Format.INTEGER, value)),)

    def _cpu_idle(self, target: str, value: str) -> tuple[Assignment, ...]:
        """With the weight, which the kernel replaces while a cgroup is idle and forgets afterwards."""
        idle = self._directories.file(Knob.CPU_IDLE, "cpu", target, "cpu.idle", Format.INTEGER)
        part = Assignment(idle, canonical(Format.INTEGER, value))
        if part.value != "1" or idle.read() != frozenset(("0",)):
            return (part,)
        is_v1 = self._directories.is_v1("cpu")
        name, low, fresh = (
            ("cpu.shares", _IDLE_SHARES, _FRESH_SHARES) if is_v1 else ("cpu.weight", _IDLE_WEIGHT, _FRESH_WEIGHT)
        )
        weight = self._directories.file(Knob.CPU_WEIGHT, "cpu", target, name, Format.INTEGER)
        return (Assignment(weight, low, by_kernel=True, also=fresh), part)

    def _freeze(self, target: str, value: str) -> tuple[Assignment, ...]:
        if self._directories.is_v1("freezer"):
            place = self._directories.file(Knob.FREEZE, "freezer", target, "freezer.state", Format.FREEZER)
        else:
            place = self._directories.file(Knob.FREEZE, "cgroup", target, "cgroup.freeze", Format.INTEGER)
        return (Assignment(place, canonical(place.form, value)),)

    def _memory_max(self, target: str, value: str) -> tuple[Assignment, ...]:
        if self._directories.is_v1("memory"):
            name, form = "memory.limit_in_bytes", Format.LIMIT_BYTES
        else:
            name, form = "memory.max", Format.BYTES
        place = self._directories.file(Knob.MEMORY_MAX, "memory", target, name, form)
        return (Assignment(place, canonical(form, value)),)

    def _oom_score_adj(self, target: str, value: str) -> tuple[Assignment, ...]:
        proc = self._tree.path("/proc")
        place = ProcessFiles(str(self._directories.directory("cpu", target)), str(proc), "oom_score_adj")
        return (Assignment(place, canonical(Format.INTEGER, value)),)
