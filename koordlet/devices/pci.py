"""Location of PCI devices by sysfs: NUMA node, PCIe root, physical and virtual functions."""

import re
from collections.abc import Iterator
from pathlib import Path

from api.cpuset import parse_cpuset
from api.kube.device import DeviceTopology
from koordlet.host.files import HostError, HostTree

_DEVICES = "/sys/bus/pci/devices"
_NODES = "/sys/devices/system/node/online"
_BUS_ID = re.compile(r"^(?:([0-9a-fA-F]+):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])$")
_ROOT = re.compile(r"^pci[0-9a-fA-F]+:[0-9a-fA-F]{2}$")


def bus_id(text: str) -> str:
    """Return a PCI address as sysfs writes it: `00000000:3B:00.0` becomes `0000:3b:00.0`; empty for anything else."""
    match = _BUS_ID.match(text.strip())
    if not match:
        return ""
    domain, bus, slot, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"


def location(tree: HostTree, address: str) -> DeviceTopology | None:
    """Return NUMA node, PCIe root and address of a device; None unless all three are known.

    The socket is not told by sysfs and stays unknown. A machine with one NUMA node reports none for its devices.
    """
    node, root = numa_node(tree, address), pcie_root(tree, address)
    if node < 0 or not root:
        return None
    return DeviceTopology(node_id=node, pcie_id=root, bus_id=address)


def numa_node(tree: HostTree, address: str) -> int:
    """Return the NUMA node of a device; -1 where it is not known."""
    text = attribute(tree, address, "numa_node")
    try:
        node = int(text)
    except ValueError:
        return -1
    if node >= 0:
        return node
    nodes = parse_cpuset(tree.text(_NODES) or "0")
    return next(iter(nodes)) if len(nodes) == 1 else -1


def pcie_root(tree: HostTree, address: str) -> str:
    """Return the root complex above a device, as `pci0000:3a`; empty where it is not known."""
    try:
        target = tree.path(f"{_DEVICES}/{address}").readlink()
    except OSError:
        return ""
    return next((part for part in target.parts if _ROOT.match(part)), "")


def addresses(tree: HostTree) -> list[str]:
    """Return the addresses of all PCI devices in order."""
    return sorted(filter(None, (bus_id(entry.name) for entry in _entries(tree.path(_DEVICES)))))


def attribute(tree: HostTree, address: str, name: str) -> str:
    """Return an attribute of a device without white space around it; empty where there is none."""
    try:
        return (tree.text(f"{_DEVICES}/{address}/{name}") or "").strip()
    except HostError:
        return ""


def link_name(path: Path) -> str:
    """Return the last part of a symbolic link's target; empty where there is none."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def driver(tree: HostTree, address: str) -> str:
    """Return the driver of a device; empty for none."""
    return link_name(tree.path(f"{_DEVICES}/{address}/driver"))


def is_virtual_function(tree: HostTree, address: str) -> bool:
    """Return whether a device is a virtual function of another one."""
    return tree.path(f"{_DEVICES}/{address}/physfn").is_symlink()


def virtual_functions(tree: HostTree, address: str) -> list[tuple[int, str]]:
    """Return index and address of the virtual functions of a device, by address."""
    found = []
    for entry in _entries(tree.path(f"{_DEVICES}/{address}")):
        index, target = entry.name.removeprefix("virtfn"), bus_id(link_name(entry))
        if entry.name.startswith("virtfn") and index.isdecimal() and target:
            found.append((int(index), target))
    return sorted(found, key=lambda pair: pair[1])


def class_devices(tree: HostTree, name: str) -> list[tuple[str, str]]:
    """Return name and PCI address of the entries of /sys/class/`name`, by name; those of no PCI device are left out."""
    found = ((entry.name, bus_id(link_name(entry / "device"))) for entry in _entries(tree.path(f"/sys/class/{name}")))
    return sorted((device, address) for device, address in found if address)


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from sorted(folder.iterdir())
    except OSError:
        return
