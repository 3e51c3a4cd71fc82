"""RDMA NICs by sysfs: an entry for each physical function, with its virtual functions as one group."""

from api.kube.device import DeviceInfo, VirtualFunction, VirtualFunctionGroup
from api.plugin import Unsupported
from api.protocol import RDMA
from koordlet.devices.inventory import RDMA_TYPE, FoundDevice, numbered
from koordlet.devices.pci import class_devices, is_virtual_function, location, virtual_functions
from koordlet.host.files import HostError, HostTree

CLASS = "infiniband"
WHOLE = 100
"""Percent of a NIC."""


def rdma_devices(tree: HostTree) -> tuple[FoundDevice, ...]:
    """Return the NICs in the order of their addresses. Raises Unsupported where there is none."""
    names: dict[str, list[str]] = {}
    for name, address in class_devices(tree, CLASS):
        if not is_virtual_function(tree, address):
            names.setdefault(address, []).append(name)
    if not names:
        raise Unsupported("no RDMA device in /sys/class/infiniband", "load the NIC's RDMA driver, such as mlx5_ib")
    return numbered(_found(tree, address, ports) for address, ports in names.items())


def _found(tree: HostTree, address: str, names: list[str]) -> FoundDevice:
    ports = [VirtualFunction(minor=index, bus_id=vf) for index, vf in virtual_functions(tree, address)]
    info = DeviceInfo(
        type=RDMA_TYPE,
        id=address,
        resources={RDMA: WHOLE},
        topology=location(tree, address),
        vf_groups=[VirtualFunctionGroup(vfs=ports)] if ports else [],
    )
    down = _all_down(tree, names)
    return FoundDevice(
        info=info, fault_code="PortDown" if down else "", fault=f"no port of {', '.join(names)} is up" if down else ""
    )


def _all_down(tree: HostTree, names: list[str]) -> bool:
    """Whether every port whose state can be read is down; `4: ACTIVE` is the state of one that works."""
    states = []
    for name in names:
        folder = tree.path(f"/sys/class/{CLASS}/{name}/ports")
        for port in sorted(folder.iterdir()) if folder.is_dir() else ():
            try:
                states.append(tree.text(f"/sys/class/{CLASS}/{name}/ports/{port.name}/state") or "")
            except HostError:
                continue
    known = [state.partition(":")[0].strip() for state in states if state.strip()]
    return bool(known) and all(state == "1" for state in known)
