"""All sources together: what each finds, what is absent, and what comes later."""

import json
from pathlib import Path

from koordlet.devices.settings import DeviceSettings
from koordlet.devices.sources import FPGAS, GPUS, NICS, RETRY_LOOKS, XPUS, DeviceSources
from koordlet.host.files import HostTree
from tests.koordlet.devices.conftest import GIB, Standin
from tests.koordlet.devices.pci_trees import add_pci, add_rdma, gpu_tree


def test_every_source(standin: Standin, tmp_path: Path) -> None:
    standin.process(1, 7, 30, GIB, stamp_us=5)
    tree = gpu_tree(tmp_path)
    add_pci(tmp_path, "0000:1a:00.0")
    add_rdma(tmp_path, "mlx5_0", "0000:1a:00.0", {})
    add_pci(tmp_path, "0000:af:00.0", driver="xclmgmt")
    files = tmp_path / "var/run/koordlet/xpu-device-infos"
    files.mkdir(parents=True)
    infos = [{"uuid": f"X-{minor}", "minor": str(minor), "vendor": "x"} for minor in (3, 8)]
    (files / "ic-device").write_text(json.dumps(infos))
    sources = DeviceSources(DeviceSettings(), tree)
    inventory = sources.look()
    assert inventory.unsupported == {}
    found = [(device.info.type, device.minor) for device in inventory.devices]
    assert found == [*(("gpu", minor) for minor in range(8)), ("gpu", 8), ("rdma", 0), ("fpga", 0)]
    assert sources.usage().gpus[1].total_bytes == 8 * GIB
    sources.close()
    sources.close()


def test_nothing_at_all(standin: Standin, tmp_path: Path) -> None:
    standin.without_driver()
    sources = DeviceSources(DeviceSettings(), HostTree(tmp_path))
    inventory = sources.look()
    assert inventory.devices == ()
    assert set(inventory.unsupported) == {GPUS, XPUS, NICS, FPGAS}
    assert sources.usage().gpus == ()


def test_what_the_settings_turn_off_is_not_looked_for(tmp_path: Path) -> None:
    settings = DeviceSettings(gpus=False, xpu_directory="", rdma=False, fpgas=False)
    assert DeviceSources(settings, HostTree(tmp_path)).look().unsupported == {}


def test_a_driver_that_is_loaded_later(standin: Standin, tmp_path: Path) -> None:
    standin.without_driver()
    sources = DeviceSources(DeviceSettings(), HostTree(tmp_path))
    sources.look()
    standin.reset(gpus=2)
    counts = [len(sources.look().devices) for _ in range(RETRY_LOOKS + 1)]
    sources.close()
    assert counts == [0] * RETRY_LOOKS + [2]
