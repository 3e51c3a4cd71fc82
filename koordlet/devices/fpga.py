"""FPGA cards by sysfs: by their driver, or by vendor and class where none is bound."""

from api.kube.device import DeviceInfo
from api.plugin import Unsupported
from api.protocol import FPGA
from koordlet.devices.inventory import FPGA_TYPE, FoundDevice, numbered
from koordlet.devices.pci import addresses, attribute, driver, is_virtual_function, location
from koordlet.host.files import HostTree

WHOLE = 100
"""Percent of a card."""
DRIVERS = frozenset({"dfl-pci", "intel-fpga-pci", "xclmgmt", "xocl", "xrt"})
"""Drivers of FPGA cards only: Intel's and Xilinx' shells."""
VENDORS = frozenset({"0x10ee", "0x1172"})
"""PCI vendors whose accelerators are FPGAs: Xilinx, Altera."""
ACCELERATOR_CLASS = "0x1200"
"""PCI class and subclass of processing accelerators; GPUs and NPUs of other vendors have it too."""


def fpga_devices(tree: HostTree) -> tuple[FoundDevice, ...]:
    """Return the cards in the order of their addresses. Raises Unsupported where there is none.

    A card may show several functions (one to manage, one to use); it counts once, by its first.
    """
    cards: dict[str, str] = {}
    for address in addresses(tree):
        if _is_fpga(tree, address) and not is_virtual_function(tree, address):
            cards.setdefault(address.rpartition(".")[0], address)
    if not cards:
        raise Unsupported("no FPGA card on the PCI bus")
    return numbered(
        FoundDevice(
            info=DeviceInfo(type=FPGA_TYPE, id=address, resources={FPGA: WHOLE}, topology=location(tree, address))
        )
        for address in cards.values()
    )


def _is_fpga(tree: HostTree, address: str) -> bool:
    if driver(tree, address) in DRIVERS:
        return True
    kind, vendor = attribute(tree, address, "class"), attribute(tree, address, "vendor")
    return kind.startswith(ACCELERATOR_CLASS) and vendor in VENDORS
