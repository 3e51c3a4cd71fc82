"""FPGA cards by fake sysfs trees."""

from pathlib import Path

import pytest

from api.plugin import Unsupported
from api.protocol import FPGA
from koordlet.devices.fpga import fpga_devices
from koordlet.host.files import HostTree
from tests.koordlet.devices.pci_trees import add_pci


def test_cards_by_driver_and_by_vendor(tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:af:00.0", driver="xclmgmt", vendor="0x10ee")
    add_pci(tmp_path, "0000:af:00.1", driver="xocl", vendor="0x10ee")  # the same card's second function
    add_pci(tmp_path, "0000:3b:00.0", driver="dfl-pci", vendor="0x8086", virtual=["0000:3b:00.1"])
    add_pci(tmp_path, "0000:d8:00.0", vendor="0x10ee", **{"class": "0x120000"})
    add_pci(tmp_path, "0000:19:00.0", vendor="0x1da3", **{"class": "0x120000"})  # an accelerator that is no FPGA
    found = fpga_devices(HostTree(tmp_path))
    assert [(card.minor, card.info.id) for card in found] == [
        (0, "0000:3b:00.0"),
        (1, "0000:af:00.0"),
        (2, "0000:d8:00.0"),
    ]
    assert found[0].info.resources == {FPGA: 100}


def test_without_cards(tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:00:01.0", vendor="0x1af4", **{"class": "0x020000"})
    with pytest.raises(Unsupported, match="no FPGA card"):
        fpga_devices(HostTree(tmp_path))
