"""What a knob means on this host: the places it sets and the texts they are to hold, on cgroup v1, hybrid and v2.

Knobs are spoken in the syntax of cgroup v2. Each controller is looked up for itself, because on a hybrid host one may
be on v1 and another on v2. In another hierarchy a cgroup has the same path below the mount.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.forms import MAX, Form, Layout, canonical, device_items, schemata_items, shares_of_weight
from koordlet.host.hierarchies import find_mounts
from koordlet.host.places import PRESENT, KernelFile, Place, ProcessFiles, ResourceGroup, ResourceTasks
from koordlet.host.resctrl_groups import group_directory
from koordlet.host.tree import HostTree

RESCTRL_MOUNT = "/sys/fs/resctrl"
_BFQ_MOST = 1000
_IDLE_SHARES, _IDLE_WEIGHT = "3", "0"
_FRESH_SHARES, _FRESH_WEIGHT = "1024", "100"

_WHOLE_FILES: dict[Knob, tuple[str, Form]] = {
    Knob.CPU_BVT: ("cpu", Form.INTEGER),
    Knob.CPUSET_CPUS: ("cpuset", Form.CPUS),
    Knob.CPUSET_MEMS: ("cpuset", Form.CPUS),
    Knob.MEMORY_MIN: ("memory", Form.BYTES),
    Knob.MEMORY_LOW: ("memory", Form.BYTES),
    Knob.MEMORY_HIGH: ("memory", Form.BYTES),
    Knob.MEMORY_WMARK_RATIO: ("memory", Form.INTEGER),
    Knob.MEMORY_WMARK_SCALE_FACTOR: ("memory", Form.INTEGER),
    Knob.MEMORY_WMARK_MIN_ADJ: ("memory", Form.INTEGER),
    Knob.MEMORY_PRIORITY: ("memory", Form.INTEGER),
    Knob.MEMORY_USE_PRIORITY_OOM: ("memory", Form.INTEGER),
    Knob.MEMORY_OOM_GROUP: ("memory", Form.INTEGER),
    Knob.PAGE_CACHE_ENABLE: ("memory", Form.INTEGER),
    Knob.PAGE_CACHE_LIMIT: ("memory", Form.BYTES),
    Knob.PAGE_CACHE_SYNC: ("memory", Form.INTEGER),
}
"""Knobs whose file has the same name and text on every version that has it: controller and form."""

_IO_MAX_V1 = {
    "rbps": "blkio.throttle.read_bps_device",
    "wbps": "blkio.throttle.write_bps_device",
    "riops": "blkio.throttle.read_iops_device",
    "wiops": "blkio.throttle.write_iops_device",
}
_DEVICE_KEY_FORMS = {Knob.IO_MAX: Form.RATE, Knob.IO_LATENCY: Form.RATE}

_LACKING: dict[Knob, tuple[str, str]] = {
    Knob.CPU_IDLE: ("the kernel has no cpu.idle", "needs Linux 5.15 or later"),
    Knob.CPU_BURST: ("the kernel has no CFS burst", "needs Linux 5.14 or later"),
    Knob.CPU_BVT: ("the kernel has no group identity", "use cpu.idle instead"),
    Knob.IO_LATENCY: ("there is no io.latency here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOLATENCY"),
    Knob.IO_COST_QOS: ("there is no io.cost here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOCOST"),
    Knob.IO_COST_MODEL: ("there is no io.cost here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOCOST"),
    Knob.FREEZE: ("there is no freezer here", "mount the freezer controller or boot with cgroup v2"),
    Knob.CORE_SCHED: ("core scheduling cookies are set by prctl, not by a file, and the agent sets none", ""),
    Knob.NET_CLASS: ("traffic classes are not set by this agent", ""),
    Knob.NODE_TAINT: ("taints are set at the API server", "let the controllers do it"),
    Knob.SCHED_FEATURE: ("scheduler features are not readable here", "mount debugfs on /sys/kernel/debug"),
}
_LACKING_V1: dict[Knob, tuple[str, str]] = {
    Knob.MEMORY_MIN: ("cgroup v1 has no memory protection; its soft limit is no equivalent", "boot with cgroup v2"),
    Knob.MEMORY_LOW: ("cgroup v1 has no memory protection; its soft limit is no equivalent", "boot with cgroup v2"),
    Knob.MEMORY_HIGH: ("cgroup v1 has no memory.high; its soft limit is no equivalent", "boot with cgroup v2"),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One place and the canonical text that it is to hold."""

    place: Place
    value: str
    by_kernel: bool = False
    """The kernel sets it as a side effect of another part: it is not written, but put back."""
    also: tuple[str, ...] = ()
    """Further texts that the kernel leaves there by itself on the way back."""


class CgroupGone(Exception):
    """The target is no cgroup any more."""


class Knobs:
    """Translates for one host. `resctrl` is where resctrl is mounted."""

    def __init__(self, tree: HostTree, resctrl: Path | None = None) -> None:
        self._tree = tree
        self._v1, self._unified = find_mounts(tree)
        self.resctrl = resctrl or tree.path(RESCTRL_MOUNT)
        self._special: dict[Knob, Callable[[str, str], tuple[Part, ...]]] = {
            Knob.CPU_WEIGHT: self._cpu_weight,
            Knob.CPU_MAX: self._cpu_max,
            Knob.CPU_BURST: self._cpu_burst,
            Knob.CPU_IDLE: self._cpu_idle,
            Knob.FREEZE: self._freeze,
            Knob.MEMORY_MAX: self._memory_max,
            Knob.IO_WEIGHT: self._io_weight,
            Knob.IO_MAX: self._io_max,
            Knob.IO_LATENCY: lambda target, value: self._device_keys(Knob.IO_LATENCY, target, value),
            Knob.IO_COST_QOS: lambda target, value: self._device_keys(Knob.IO_COST_QOS, target, value),
            Knob.IO_COST_MODEL: lambda target, value: self._device_keys(Knob.IO_COST_MODEL, target, value),
            Knob.OOM_SCORE_ADJ: self._oom_score_adj,
            Knob.RESCTRL_GROUP: self._resource_tasks,
            Knob.RESCTRL_SCHEMATA: self._schemata,
            Knob.SYSCTL: self._sysctl,
            Knob.SCHED_FEATURE: self._scheduler_feature,
        }

    def parts(self, knob: Knob, target: str, value: str) -> tuple[Part, ...]:
        """What to set, in no particular order.

        Raises Unsupported where the host has no such thing, CgroupGone where it has no such cgroup, and ValueError
        for a value or target that is not one.
        """
        if ".." in target.split("/"):
            raise ValueError(f"target {target!r} leaves its hierarchy")
        special = self._special.get(knob)
        if special is not None:
            return special(target, value)
        if knob not in _WHOLE_FILES:
            raise Unsupported(*_LACKING[knob])
        controller, form = _WHOLE_FILES[knob]
        return (Part(self._file(knob, controller, target, knob.value, form), canonical(form, value)),)

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

    def controls_resources(self) -> bool:
        """Whether resctrl is mounted."""
        return (self.resctrl / "schemata").exists()

    def group(self, name: str) -> ResourceGroup:
        """The control group of that name."""
        return ResourceGroup(str(group_directory(self.resctrl, name)))

    def _mount(self, controller: str) -> Path:
        mount = self._v1.get({"io": "blkio"}.get(controller, controller), self._unified)
        if mount is None:
            raise Unsupported(f"no hierarchy has the {controller} controller", f"mount the {controller} controller")
        return mount

    def _is_v1(self, controller: str) -> bool:
        return {"io": "blkio"}.get(controller, controller) in self._v1

    def _file(
        self, knob: Knob, controller: str, target: str, name: str, form: Form, layout: Layout = Layout.WHOLE
    ) -> KernelFile:
        path = self.directory(controller, target) / name
        if not path.exists():
            known = _LACKING | _LACKING_V1 if self._is_v1(controller) else _LACKING
            raise Unsupported(*known.get(knob, (f"there is no {path}", f"enable the {controller} controller there")))
        return KernelFile(str(path), form, layout)

    def _cpu_weight(self, target: str, value: str) -> tuple[Part, ...]:
        weight = int(value)
        if self._is_v1("cpu"):
            place = self._file(Knob.CPU_WEIGHT, "cpu", target, "cpu.shares", Form.INTEGER)
            return (Part(place, str(shares_of_weight(weight))),)
        return (Part(self._file(Knob.CPU_WEIGHT, "cpu", target, "cpu.weight", Form.INTEGER), str(weight)),)

    def _cpu_max(self, target: str, value: str) -> tuple[Part, ...]:
        quota, _, period = value.strip().partition(" ")
        if not self._is_v1("cpu"):
            place = self._file(Knob.CPU_MAX, "cpu", target, "cpu.max", Form.CPU_MAX)
            kept = period or (next(iter(place.read() or ()), f"{MAX} 100000").partition(" ")[2])
            return (Part(place, canonical(Form.CPU_MAX, f"{quota} {kept}")),)
        first = self._file(Knob.CPU_MAX, "cpu", target, "cpu.cfs_quota_us", Form.QUOTA_US)
        parts = [Part(first, canonical(Form.QUOTA_US, quota))]
        if period:
            second = self._file(Knob.CPU_MAX, "cpu", target, "cpu.cfs_period_us", Form.INTEGER)
            parts.append(Part(second, canonical(Form.INTEGER, period)))
        return tuple(parts)

    def _cpu_burst(self, target: str, value: str) -> tuple[Part, ...]:
        name = "cpu.cfs_burst_us" if self._is_v1("cpu") else "cpu.max.burst"
        return (Part(self._file(Knob.CPU_BURST, "cpu", target, name, Form.INTEGER), canonical(Form.INTEGER, value)),)

    def _cpu_idle(self, target: str, value: str) -> tuple[Part, ...]:
        """With the weight, which the kernel replaces while a cgroup is idle and forgets afterwards."""
        idle = self._file(Knob.CPU_IDLE, "cpu", target, "cpu.idle", Form.INTEGER)
        part = Part(idle, canonical(Form.INTEGER, value))
        if part.value != "1" or idle.read() != frozenset(("0",)):
            return (part,)
        is_v1 = self._is_v1("cpu")
        name, low, fresh = (
            ("cpu.shares", _IDLE_SHARES, _FRESH_SHARES) if is_v1 else ("cpu.weight", _IDLE_WEIGHT, _FRESH_WEIGHT)
        )
        weight = self._file(Knob.CPU_WEIGHT, "cpu", target, name, Form.INTEGER)
        return (Part(weight, low, by_kernel=True, also=(fresh,)), part)

    def _freeze(self, target: str, value: str) -> tuple[Part, ...]:
        if self._is_v1("freezer"):
            place = self._file(Knob.FREEZE, "freezer", target, "freezer.state", Form.FREEZER)
            return (Part(place, canonical(Form.FREEZER, value)),)
        place = self._file(Knob.FREEZE, "cgroup", target, "cgroup.freeze", Form.INTEGER)
        return (Part(place, canonical(Form.INTEGER, value)),)

    def _memory_max(self, target: str, value: str) -> tuple[Part, ...]:
        if self._is_v1("memory"):
            place = self._file(Knob.MEMORY_MAX, "memory", target, "memory.limit_in_bytes", Form.LIMIT_BYTES)
        else:
            place = self._file(Knob.MEMORY_MAX, "memory", target, "memory.max", Form.BYTES)
        return (Part(place, canonical(place.form, value)),)

    def _io_weight(self, target: str, value: str) -> tuple[Part, ...]:
        directory = self.directory("io", target)
        names = ("blkio.bfq.weight", "blkio.weight") if self._is_v1("io") else ("io.weight", "io.bfq.weight")
        name = next((name for name in names if (directory / name).exists()), None)
        if name is None:
            raise Unsupported(f"no weight file in {directory}", "use the bfq scheduler or io.cost (see io.cost.qos)")
        most = 10_000 if name == "io.weight" else _BFQ_MOST
        parts = []
        for line in value.strip().splitlines():
            device, _, text = line.strip().rpartition(" ")
            weight = str(min(int(text), most))
            parts.append(Part(self._weight_place(directory / name, device), weight))
        return tuple(parts)

    def _weight_place(self, path: Path, device: str) -> KernelFile:
        if device in ("", "default"):
            if self._is_v1("io"):
                return KernelFile(str(path), Form.INTEGER)
            return KernelFile(str(path), Form.DEVICE_WEIGHT, Layout.DEVICE, "default")
        named = path.with_name(f"{path.name}_device") if self._is_v1("io") else path
        if not named.exists():
            raise Unsupported(f"there is no {named}", "set a weight for all devices")
        return KernelFile(str(named), Form.DEVICE_WEIGHT, Layout.DEVICE, device)

    def _io_max(self, target: str, value: str) -> tuple[Part, ...]:
        if not self._is_v1("io"):
            return self._device_keys(Knob.IO_MAX, target, value)
        parts = []
        for item, text in device_items(value).items():
            device, key = item.split()
            if key not in _IO_MAX_V1:
                raise ValueError(f"io.max has no key {key!r}")
            place = self._file(Knob.IO_MAX, "io", target, _IO_MAX_V1[key], Form.THROTTLE, Layout.DEVICE)
            rule = KernelFile(place.path, place.form, place.layout, device)
            parts.append(Part(rule, canonical(Form.THROTTLE, text)))
        return tuple(parts)

    def _device_keys(self, knob: Knob, target: str, value: str) -> tuple[Part, ...]:
        if self._is_v1("io"):
            raise Unsupported(*_LACKING[knob])
        place = self._file(knob, "io", target, knob.value, _DEVICE_KEY_FORMS.get(knob, Form.TEXT), Layout.DEVICE_KEY)
        parts = []
        for item, text in device_items(value).items():
            form = place.form
            if form == Form.TEXT and item.split()[1] not in ("ctrl", "enable"):
                form = Form.DECIMAL
            parts.append(Part(KernelFile(place.path, form, place.layout, item), canonical(form, text)))
        return tuple(parts)

    def _oom_score_adj(self, target: str, value: str) -> tuple[Part, ...]:
        proc = self._tree.path("/proc")
        place = ProcessFiles(str(self.directory("cpu", target)), str(proc), "oom_score_adj")
        return (Part(place, canonical(Form.INTEGER, value)),)

    def _need_resctrl(self) -> None:
        if not self.controls_resources():
            raise Unsupported(f"resctrl is not mounted at {self.resctrl}", f"mount -t resctrl resctrl {self.resctrl}")

    def _resource_tasks(self, target: str, value: str) -> tuple[Part, ...]:
        self._need_resctrl()
        group_directory(self.resctrl, value)
        return (Part(ResourceTasks(str(self.directory("cpu", target)), str(self.resctrl)), value),)

    def _schemata(self, target: str, value: str) -> tuple[Part, ...]:
        self._need_resctrl()
        path = str(group_directory(self.resctrl, target) / "schemata")
        parts = []
        for item, text in schemata_items(value).items():
            is_bandwidth = item.startswith("MB")
            form = Form.INTEGER if is_bandwidth else Form.MASK
            place = KernelFile(path, form, Layout.DOMAIN, item, is_cgroup=False)
            parts.append(Part(place, self._rounded(text) if is_bandwidth else canonical(form, text)))
        if not parts:
            raise ValueError("a schemata needs lines like L3:0=ff")
        return tuple(parts)

    def _rounded(self, bandwidth: str) -> str:
        """The kernel rounds a percentage up to the hardware's steps."""
        step = int(self._info("bandwidth_gran") or 1)
        return str(-(-int(bandwidth) // step) * step)

    def _info(self, name: str) -> str:
        path = self.resctrl / "info/MB" / name
        return path.read_text().strip() if path.exists() else ""

    def _sysctl(self, target: str, value: str) -> tuple[Part, ...]:
        name = target.strip("/") if "/" in target else target.replace(".", "/")
        for root in ("/proc/sys", "/sys/kernel/mm"):
            path = self._tree.path(f"{root}/{name}")
            if path.is_file():
                return (Part(KernelFile(str(path), Form.TEXT, is_cgroup=False), canonical(Form.TEXT, value)),)
        raise Unsupported(f"the kernel has no setting {target}")

    def _scheduler_feature(self, target: str, value: str) -> tuple[Part, ...]:
        for name in ("/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features"):
            path = self._tree.path(name)
            if path.is_file():
                place = KernelFile(str(path), Form.INTEGER, Layout.WORD, target, is_cgroup=False)
                if place.read() == frozenset(("0",)) and f"NO_{target}" not in path.read_text().split():
                    raise Unsupported(f"the scheduler has no feature {target}")
                return (Part(place, canonical(Form.INTEGER, value)),)
        raise Unsupported(*_LACKING[Knob.SCHED_FEATURE])


def present(group: ResourceGroup) -> Part:
    """That the group is to be there."""
    return Part(group, PRESENT)
