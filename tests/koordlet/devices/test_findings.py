"""What the doctor says of devices."""

from pathlib import Path

from koordlet.devices.settings import DeviceSettings
from koordlet.doctor import device_findings
from koordlet.host.files import HostTree
from tests.koordlet.devices.conftest import Standin
from tests.koordlet.devices.pci_trees import add_pci, add_rdma, gpu_tree


def test_gpus_and_nics(standin: Standin, tmp_path: Path) -> None:
    add_pci(tmp_path, "0000:1a:00.0")
    add_rdma(tmp_path, "mlx5_0", "0000:1a:00.0", {1: "1: DOWN"})
    findings = {finding.name: finding for finding in device_findings(DeviceSettings(), gpu_tree(tmp_path))}
    gpus, nics = findings["gpu-devices"], findings["rdma-devices"]
    assert (gpus.available, gpus.reason) == (True, "8 found; NVIDIA A100-SXM4-80GB (nvidia)")
    assert (nics.available, nics.reason) == (False, "1 found; 0000:1a:00.0: no port of mlx5_0 is up")


def test_their_absence_has_a_reason(standin: Standin, tmp_path: Path) -> None:
    standin.without_driver()
    findings = device_findings(DeviceSettings(), HostTree(tmp_path))
    assert [(finding.name, finding.available) for finding in findings] == [("gpus", False), ("rdma", False)]
    assert all(finding.reason and finding.remedy for finding in findings)
