"""Fake PCI buses: devices with their root complex, attributes, drivers and virtual functions."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from koordlet.host.files import HostTree


def add_pci(
    root: Path,
    address: str,
    *,
    complex_name: str = "pci0000:00",
    driver: str = "",
    virtual: Sequence[str] = (),
    **attributes: str,
) -> Path:
    """Add a device below a root complex, as sysfs lays it out; returns its directory."""
    device = root / "sys/devices" / complex_name / address
    device.mkdir(parents=True)
    for name, text in attributes.items():
        (device / name).write_text(f"{text}\n")
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True, exist_ok=True)
    (bus / address).symlink_to(Path("../../../devices") / complex_name / address)
    if driver:
        (device / "driver").symlink_to(Path("../../../bus/pci/drivers") / driver)
    for index, function in enumerate(virtual):
        other = add_pci(root, function, complex_name=complex_name, **attributes)
        (device / f"virtfn{index}").symlink_to(Path("..") / function)
        (other / "physfn").symlink_to(Path("..") / address)
    return device


def add_rdma(root: Path, name: str, address: str, states: Mapping[int, str]) -> None:
    """Add an RDMA device of a PCI function, with the states of its ports."""
    target = (root / "sys/bus/pci/devices" / address).resolve()
    device = target / "infiniband" / name
    for port, state in states.items():
        folder = device / "ports" / str(port)
        folder.mkdir(parents=True)
        (folder / "state").write_text(f"{state}\n")
    device.mkdir(parents=True, exist_ok=True)
    (device / "device").symlink_to(Path("../../../") / address)
    kind = root / "sys/class/infiniband"
    kind.mkdir(parents=True, exist_ok=True)
    (kind / name).symlink_to(device)


def gpu_tree(root: Path, gpus: int = 8) -> HostTree:
    """Return a machine with two NUMA nodes, and GPUs at 0000:3a:00.0 and on: two to a root, half of them to a node."""
    (root / "sys/devices/system/node").mkdir(parents=True)
    (root / "sys/devices/system/node/online").write_text("0-1\n")
    for gpu in range(gpus):
        complex_name = f"pci0000:{0x30 + gpu // 2:02x}"
        add_pci(root, f"0000:{0x3A + gpu:02x}:00.0", complex_name=complex_name, numa_node=str(2 * gpu // gpus))
    return HostTree(root)
