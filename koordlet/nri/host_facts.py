"""What the plugin reads of the host for a container that starts: its pod's cgroup, and RDMA device nodes."""

import os
from pathlib import Path

from api.cpuset import parse_cpuset
from api.intents import Knob
from api.plugin import Unsupported
from koordlet.hooks.resources import DeviceNode
from koordlet.host.files import HostTree
from koordlet.host.knobs.current import current
from koordlet.host.knobs.knobs import CgroupGone, Knobs
from koordlet.nri.bounds import PodBounds
from koordlet.strategies.cpuquota import parse_quota

_PCI = "/sys/bus/pci/devices"
_INFINIBAND = "/dev/infiniband"


def pod_bounds(knobs: Knobs, path: str) -> PodBounds:
    """Return the CPUs and the quota of a cgroup; what cannot be read is not known."""
    cpus = quota = None
    try:
        cpus = parse_cpuset(current(knobs, Knob.CPUSET_CPUS, path)) or None
    except (Unsupported, CgroupGone, OSError, ValueError):
        cpus = None
    try:
        quota = parse_quota(current(knobs, Knob.CPU_MAX, path))
    except (Unsupported, CgroupGone, OSError, ValueError):
        quota = None
    return PodBounds(cpus, quota)


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
