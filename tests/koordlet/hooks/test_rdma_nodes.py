"""RDMA device nodes of the host."""

from pathlib import Path

from koordlet.hooks.rdma_nodes import rdma_nodes
from koordlet.hooks.resources import DeviceNode
from koordlet.host.files import HostTree


def test_rdma_device_nodes(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:81:00.0/infiniband_verbs/uverbs0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:82:00.0/infiniband_verbs/uverbs1").mkdir(parents=True)
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/uverbs0").write_text("")
    found = rdma_nodes(HostTree(tmp_path))
    assert found == {"0000:81:00.0": (DeviceNode("/dev/infiniband/uverbs0", 0, 0),), "0000:82:00.0": ()}
    assert rdma_nodes(HostTree(tmp_path / "elsewhere")) == {}
