"""GPUs through NVIDIA's Python library and a stand-in for its driver library."""

import sys
from pathlib import Path

import pytest

from api.kube.device import DeviceTopology
from api.plugin import Unsupported
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordlet.devices.nvml import GpuUse, Nvml, ProcessUse
from koordlet.host.files import HostTree
from tests.koordlet.devices.conftest import GIB, Standin
from tests.koordlet.devices.pci_trees import gpu_tree


def test_eight_gpus(standin: Standin, tmp_path: Path) -> None:
    nvml = Nvml(gpu_tree(tmp_path))
    found = nvml.found()
    nvml.close()
    assert [gpu.minor for gpu in found] == list(range(8))
    last = found[7]
    assert last.info.id == "GPU-00000007-0000-0000-0000-000000000000"
    assert last.info.resources == {GPU_CORE: 100, GPU_MEMORY: 8 * GIB, GPU_MEMORY_RATIO: 100}
    assert last.info.topology == DeviceTopology(node_id=1, pcie_id="pci0000:33", bus_id="0000:41:00.0")
    assert (last.vendor, last.model, last.driver_version) == ("nvidia", "NVIDIA A100-SXM4-80GB", "550.54.15")
    assert all(gpu.healthy and not gpu.peers for gpu in found)


def test_a_place_that_is_not_known_in_full_is_left_out(standin: Standin, tmp_path: Path) -> None:
    nvml = Nvml(HostTree(tmp_path))
    assert [gpu.info.topology for gpu in nvml.found()] == [None] * 8
    nvml.close()


def test_links(standin: Standin, tmp_path: Path) -> None:
    standin.link((0, 1), (2, 3, 4))
    nvml = Nvml(HostTree(tmp_path))
    assert [set(gpu.peers) for gpu in nvml.found()][:6] == [{1}, {0}, {3, 4}, {2, 4}, {2, 3}, set()]
    nvml.close()


def test_a_lost_gpu_stays_and_is_at_fault_until_it_answers(standin: Standin, tmp_path: Path) -> None:
    nvml = Nvml(HostTree(tmp_path))
    standin.lose(3)
    lost = nvml.found()
    assert [gpu.minor for gpu in lost if not gpu.healthy] == [3]
    assert (lost[3].fault_code, lost[3].fault) == ("NVML-15", "GPU is lost")
    assert lost[3].info.resources[GPU_MEMORY] == 8 * GIB
    assert len(nvml.use()) == 7
    standin.lose(3, lost=False)
    assert all(gpu.healthy for gpu in nvml.found())
    nvml.close()


def test_a_critical_xid_stays_a_fault(standin: Standin, tmp_path: Path) -> None:
    nvml = Nvml(HostTree(tmp_path))
    standin.xid(1, 31)  # a page fault, which a program causes
    standin.xid(2, 79)  # fallen off the bus
    standin.xid(2, 48)
    for _ in range(2):
        faults = {gpu.minor: gpu.fault_code for gpu in nvml.found() if not gpu.healthy}
        assert faults == {2: "XID-79"}
    nvml.close()


def test_use_of_gpus_and_processes(standin: Standin, tmp_path: Path) -> None:
    standin.busy(0, 70, 3 * GIB)
    standin.process(0, 4711, 50, 2 * GIB, stamp_us=1_000_000)
    standin.process(0, 4712, 20, GIB, stamp_us=1_000_000)
    nvml = Nvml(HostTree(tmp_path))
    uuid = nvml.found()[0].info.id
    assert nvml.use()[0] == GpuUse(0, uuid, 70.0, 3 * GIB, 8 * GIB)
    assert nvml.processes() == (ProcessUse(4711, 0, 50.0, 2 * GIB), ProcessUse(4712, 0, 20.0, GIB))
    assert [use.core_percent for use in nvml.processes()] == [0.0, 0.0], "samples count once"
    nvml.close()


def test_processes_without_utilization_have_memory(standin: Standin, tmp_path: Path) -> None:
    standin.without_process_utilization()
    standin.process(5, 99, 50, GIB, stamp_us=1)
    nvml = Nvml(HostTree(tmp_path))
    assert nvml.processes() == (ProcessUse(99, 5, 0.0, GIB),)
    nvml.close()


def test_without_driver(standin: Standin, tmp_path: Path) -> None:
    standin.without_driver()
    with pytest.raises(Unsupported, match="Driver Not Loaded") as refused:
        Nvml(HostTree(tmp_path))
    assert "driver" in refused.value.remedy


def test_without_gpus(standin: Standin, tmp_path: Path) -> None:
    standin.reset(gpus=0)
    with pytest.raises(Unsupported, match="no GPU"):
        Nvml(HostTree(tmp_path))


def test_without_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unsupported, match="not installed") as refused:
        Nvml(HostTree(tmp_path))
    assert refused.value.remedy == "pip install 'koord[gpu]'"


def test_close_twice(standin: Standin, tmp_path: Path) -> None:
    nvml = Nvml(HostTree(tmp_path))
    nvml.close()
    nvml.close()
    assert nvml.use() == ()
