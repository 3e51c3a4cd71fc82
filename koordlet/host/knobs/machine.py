"""Knobs outside of cgroups: kernel settings, scheduler features, and resource groups."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from api.cgroup_path import path_text
from api.plugin import Unsupported
from koordlet.host.attribute_formats import Format, Layout, canonical, schemata_items
from koordlet.host.attributes import KernelFile, ResourceTasks
from koordlet.host.cgroups.controllers import Assignment
from koordlet.host.knobs.spec import KnobFile, KnobHost, KnobSpec, assign_nothing
from koordlet.host.resctrl_groups import group_directory

SYSCTLS = (KnobFile("/proc/sys", Format.TEXT), KnobFile("/sys/kernel/mm", Format.TEXT))
FEATURES = (
    KnobFile("/sys/kernel/debug/sched/features", Format.INTEGER),
    KnobFile("/sys/kernel/debug/sched_features", Format.INTEGER),
)
"""The name differs between kernels."""


def assign_sysctl(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """`vm.swappiness`, or a path below /proc/sys or /sys/kernel/mm."""
    name = target.strip("/") if "/" in target else target.replace(".", "/")
    for root in spec.v2:
        path = host.tree.path(f"{root.name}/{name}")
        if path.is_file():
            return (
                Assignment(
                    KernelFile(path_text(str(path)), root.format, is_cgroup=False), canonical(root.format, value)
                ),
            )
    raise Unsupported(f"the kernel has no setting {target}")


def assign_feature(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """A scheduler feature by its name."""
    for file in spec.v2:
        path = host.tree.path(file.name)
        if path.is_file():
            if not {target, f"NO_{target}"} & set(path.read_text().split()):
                raise Unsupported(f"the scheduler has no feature {target}")
            attribute = KernelFile(path_text(str(path)), file.format, Layout.WORD, target, is_cgroup=False)
            return (Assignment(attribute, canonical(file.format, value)),)
    return assign_nothing(host, spec, target, value)


def assign_group(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:
    """The threads of a cgroup in a resource group."""
    _require_resctrl(host.resctrl)
    group_directory(host.resctrl, value)
    directory = host.directories.directory(spec.controller, target)
    return (Assignment(ResourceTasks(path_text(str(directory)), str(host.resctrl)), value),)


def assign_schemata(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:  # noqa: ARG001
    """Each domain of each line; domains that are not named stay as they are."""
    _require_resctrl(host.resctrl)
    path = path_text(str(group_directory(host.resctrl, target) / "schemata"))
    assigned = []
    for item, text in _on_halves(host.resctrl, schemata_items(value)):
        is_bandwidth = item.startswith("MB")
        text_format = Format.INTEGER if is_bandwidth else Format.MASK
        attribute = KernelFile(path, text_format, Layout.DOMAIN, item, is_cgroup=False)
        assigned.append(
            Assignment(attribute, _rounded(host.resctrl, text) if is_bandwidth else canonical(text_format, text))
        )
    if not assigned:
        raise ValueError("a schemata needs lines like L3:0=ff")
    return tuple(assigned)


def _on_halves(resctrl: Path, items: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the items as the host names them: with code and data apart (CDP) a cache's mask goes to both halves."""
    present = {line.partition(":")[0].strip() for line in (resctrl / "schemata").read_text().splitlines()}
    for item, text in items.items():
        resource, _, domain = item.partition(":")
        halves = [f"{resource}{half}" for half in ("CODE", "DATA")]
        for name in halves if resource not in present and present.issuperset(halves) else [resource]:
            yield f"{name}:{domain}", text


def _require_resctrl(resctrl: Path) -> None:
    if not (resctrl / "schemata").exists():
        raise Unsupported(f"resctrl is not mounted at {resctrl}", f"mount -t resctrl resctrl {resctrl}")


def _rounded(resctrl: Path, bandwidth: str) -> str:
    """The kernel rounds a percentage up to the hardware's steps."""
    path = resctrl / "info/MB/bandwidth_gran"
    step = int(path.read_text()) if path.exists() else 1
    return str(-(-int(bandwidth) // step) * step)
