"""PCI devices by fake sysfs trees."""

from pathlib import Path

import pytest

from api.kube.device import DeviceTopology
from koordlet.devices.pci import addresses, bus_id, driver, is_virtual_function, location, virtual_functions
from koordlet.host.files import HostTree
from tests.koordlet.devices.pci_trees import add_pci


@pytest.mark.parametrize(
    ("text", "address"),
    [
        pytest.param("00000000:3B:00.0", "0000:3b:00.0", id="nvml"),
        pytest.param("0000:3b:00.1", "0000:3b:00.1", id="sysfs"),
        pytest.param("3b:00.1", "0000:3b:00.1", id="lspci"),
        pytest.param("10000:01:00.0", "10000:01:00.0", id="long-domain"),
        pytest.param("virtio0", "", id="other-bus"),
        pytest.param("", "", id="empty"),
    ],
)
def test_bus_id(text: str, address: str) -> None:
    assert bus_id(text) == address


@pytest.mark.parametrize(
    ("online", "numa_node", "node"),
    [
        pytest.param("0-1", "1", 1, id="told"),
        pytest.param("0", "-1", 0, id="one-node"),
        pytest.param("0-1", "-1", None, id="not-told"),
        pytest.param("0-1", "", None, id="torn"),
    ],
)
def test_location(tmp_path: Path, online: str, numa_node: str, node: int | None) -> None:
    add_pci(tmp_path, "0000:3a:00.0", complex_name="pci0000:30", numa_node=numa_node)
    (tmp_path / "sys/devices/system/node").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/online").write_text(online)
    expected = None if node is None else DeviceTopology(node_id=node, pcie_id="pci0000:30", bus_id="0000:3a:00.0")
    assert location(HostTree(tmp_path), "0000:3a:00.0") == expected


def test_functions(tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:05:00.0", driver="mlx5_core", virtual=["0000:05:00.3", "0000:05:00.2"])
    tree = HostTree(tmp_path)
    assert addresses(tree) == ["0000:05:00.0", "0000:05:00.2", "0000:05:00.3"]
    assert virtual_functions(tree, "0000:05:00.0") == [(1, "0000:05:00.2"), (0, "0000:05:00.3")]
    assert [is_virtual_function(tree, address) for address in addresses(tree)] == [False, True, True]
    assert driver(tree, "0000:05:00.0") == "mlx5_core"


def test_a_host_without_a_pci_bus(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    assert addresses(tree) == []
    assert location(tree, "0000:05:00.0") is None
    assert virtual_functions(tree, "0000:05:00.0") == []
