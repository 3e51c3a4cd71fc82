"""RDMA NICs by fake sysfs trees."""

from pathlib import Path

import pytest

from api.kube.device import VirtualFunction
from api.plugin import Unsupported
from api.protocol import RDMA
from koordlet.devices.rdma import rdma_devices
from koordlet.host.files import HostTree
from tests.koordlet.devices.pci_trees import add_pci, add_rdma

ACTIVE, DOWN = "4: ACTIVE", "1: DOWN"


def test_physical_functions_with_their_virtual_ones(tmp_path: Path) -> None:
    add_pci(
        tmp_path, "0000:5e:00.0", complex_name="pci0000:5d", virtual=["0000:5e:00.3", "0000:5e:00.2"], numa_node="0"
    )
    add_pci(tmp_path, "0000:1a:00.0", complex_name="pci0000:19", numa_node="1")
    add_rdma(tmp_path, "mlx5_0", "0000:5e:00.0", {1: ACTIVE})
    add_rdma(tmp_path, "mlx5_1", "0000:1a:00.0", {1: ACTIVE})
    add_rdma(tmp_path, "mlx5_2", "0000:5e:00.2", {1: ACTIVE})  # a virtual function is no device of its own
    first, second = rdma_devices(HostTree(tmp_path))
    assert (first.info.id, first.minor, first.info.vf_groups) == ("0000:1a:00.0", 0, [])
    assert (second.info.id, second.minor) == ("0000:5e:00.0", 1)
    assert second.info.resources == {RDMA: 100}
    assert second.info.topology is not None
    assert second.info.topology.pcie_id == "pci0000:5d"
    ports = [VirtualFunction(minor=1, bus_id="0000:5e:00.2"), VirtualFunction(minor=0, bus_id="0000:5e:00.3")]
    assert second.info.vf_groups[0].vfs == ports


@pytest.mark.parametrize(
    ("states", "healthy"),
    [
        pytest.param({1: ACTIVE, 2: DOWN}, True, id="one-port-up"),
        pytest.param({1: DOWN, 2: DOWN}, False, id="all-down"),
        pytest.param({1: "2: INIT"}, True, id="coming-up"),
        pytest.param({1: ""}, True, id="torn"),
        pytest.param({}, True, id="no-ports-told"),
    ],
)
def test_health_is_that_of_the_ports(tmp_path: Path, states: dict[int, str], healthy: bool) -> None:
    add_pci(tmp_path, "0000:5e:00.0")
    add_rdma(tmp_path, "mlx5_0", "0000:5e:00.0", states)
    (device,) = rdma_devices(HostTree(tmp_path))
    assert device.healthy is healthy
    assert device.fault == ("" if healthy else "no port of mlx5_0 is up")


def test_two_rdma_devices_of_one_function_are_one_nic(tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:5e:00.0")
    add_rdma(tmp_path, "mlx5_0", "0000:5e:00.0", {1: DOWN})
    add_rdma(tmp_path, "mlx5_bond_0", "0000:5e:00.0", {1: ACTIVE})
    (device,) = rdma_devices(HostTree(tmp_path))
    assert device.healthy


def test_without_nics(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="no RDMA device"):
        rdma_devices(HostTree(tmp_path))
