"""RDMA device nodes of the host, by the PCI addresses that the scheduler names."""

import os
from pathlib import Path

from koordlet.hooks.resources import DeviceNode
from koordlet.host.files import HostTree

_PCI = "/sys/bus/pci/devices"
_INFINIBAND = "/dev/infiniband"


def rdma_nodes(tree: HostTree) -> dict[str, tuple[DeviceNode, ...]]:
    """Return the device nodes of each RDMA function by PCI address, and under the empty one the connection manager."""
    found: dict[str, tuple[DeviceNode, ...]] = {}
    for folder in sorted(tree.path(_PCI).glob("*/infiniband_verbs")):
        nodes = [_device_node(tree, f"{_INFINIBAND}/{entry.name}") for entry in sorted(folder.iterdir())]
        found[folder.parent.name] = tuple(node for node in nodes if node is not None)
    manager = _device_node(tree, f"{_INFINIBAND}/rdma_cm")
    if found and manager is not None:
        found[""] = (manager,)
    return found


def _device_node(tree: HostTree, name: str) -> DeviceNode | None:
    path: Path = tree.path(name)
    try:
        number = path.stat().st_rdev
    except OSError:
        return None
    return DeviceNode(name, os.major(number), os.minor(number))
