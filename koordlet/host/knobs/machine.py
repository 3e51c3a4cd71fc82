"""Knobs of the whole machine: kernel settings, scheduler features, and resource groups."""

from pathlib import Path

from api.intents import Knob
from api.plugin import Unsupported
from koordlet.host.attribute_formats import Format, Layout, canonical, schemata_items
from koordlet.host.attributes import KernelFile, ResourceTasks
from koordlet.host.cgroups.controllers import LACKING, Assignment, Directories
from koordlet.host.files import HostTree
from koordlet.host.resctrl_groups import group_directory


def sysctl_parts(tree: HostTree, target: str, value: str) -> tuple[Assignment, ...]:
    """`vm.swappiness`, or a path below /proc/sys or /sys/kernel/mm."""
    name = target.strip("/") if "/" in target else target.replace(".", "/")
    for root in ("/proc/sys", "/sys/kernel/mm"):
        path = tree.path(f"{root}/{name}")
        if path.is_file():
            return (Assignment(KernelFile(str(path), Format.TEXT, is_cgroup=False), canonical(Format.TEXT, value)),)
    raise Unsupported(f"the kernel has no setting {target}")


def feature_parts(tree: HostTree, target: str, value: str) -> tuple[Assignment, ...]:
    """A scheduler feature; the file's place differs between kernels."""
    for name in ("/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched_features"):
        path = tree.path(name)
        if path.is_file():
            if not {target, f"NO_{target}"} & set(path.read_text().split()):
                raise Unsupported(f"the scheduler has no feature {target}")
            place = KernelFile(str(path), Format.INTEGER, Layout.WORD, target, is_cgroup=False)
            return (Assignment(place, canonical(Format.INTEGER, value)),)
    raise Unsupported(*LACKING[Knob.SCHED_FEATURE])


def task_parts(directories: Directories, resctrl: Path, target: str, group: str) -> tuple[Assignment, ...]:
    """The threads of a cgroup in a resource group."""
    _need(resctrl)
    group_directory(resctrl, group)
    return (Assignment(ResourceTasks(str(directories.directory("cpu", target)), str(resctrl)), group),)


def schemata_parts(resctrl: Path, group: str, value: str) -> tuple[Assignment, ...]:
    """Each domain of each line; domains that are not named stay as they are."""
    _need(resctrl)
    path = str(group_directory(resctrl, group) / "schemata")
    parts = []
    for item, text in schemata_items(value).items():
        is_bandwidth = item.startswith("MB")
        form = Format.INTEGER if is_bandwidth else Format.MASK
        place = KernelFile(path, form, Layout.DOMAIN, item, is_cgroup=False)
        parts.append(Assignment(place, _rounded(resctrl, text) if is_bandwidth else canonical(form, text)))
    if not parts:
        raise ValueError("a schemata needs lines like L3:0=ff")
    return tuple(parts)


def _need(resctrl: Path) -> None:
    if not (resctrl / "schemata").exists():
        raise Unsupported(f"resctrl is not mounted at {resctrl}", f"mount -t resctrl resctrl {resctrl}")


def _rounded(resctrl: Path, bandwidth: str) -> str:
    """The kernel rounds a percentage up to the hardware's steps."""
    path = resctrl / "info/MB/bandwidth_gran"
    step = int(path.read_text()) if path.exists() else 1
    return str(-(-int(bandwidth) // step) * step)
