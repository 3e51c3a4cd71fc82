"""Device-info files: Koordinator's format, and files that are torn or hostile."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from api.kube.device import DeviceTopology
from api.plugin import Unsupported
from api.protocol import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordlet.devices.inventory import LinkGroup
from koordlet.devices.xpu_files import MAX_FILE_BYTES, parse_xpu_infos, xpu_devices


def entry(uuid: str = "XPU-0", minor: str = "0", **more: Any) -> dict[str, Any]:
    return {"vendor": "huawei", "model": "Ascend-910B", "uuid": uuid, "minor": minor, **more}


def test_an_entry(tmp_path: Path) -> None:
    infos = [
        entry(
            "XPU-1",
            "1",
            resources={"huawei.com/npu-core": "32", "gpu-core": "100", "gpu-memory": "32Gi"},
            topology={
                "p2pLinks": [{"peerMinor": "0,1,2,3", "type": "HCCS"}, {"peerMinor": "x", "type": "HCCS"}],
                "mustHonorPartition": True,
                "socketID": "0",
                "nodeID": "0",
                "pcieID": "0000:00:08.0",
                "busID": "0000:01:00.0",
            },
            status={"healthy": True},
        ),
        entry("XPU-0", status={"healthy": False, "errCode": "0x80", "errMessage": "too hot"}),
    ]
    (tmp_path / "ic-device").write_text(json.dumps(infos))
    found = xpu_devices(tmp_path)
    assert found.refused == ()
    hot, good = found.devices
    assert (hot.info.id, hot.healthy, hot.fault_code, hot.fault) == ("XPU-0", False, "0x80", "too hot")
    assert good.info.resources == {
        "huawei.com/npu-core": "32", GPU_CORE: "100", GPU_MEMORY: "32Gi", GPU_MEMORY_RATIO: 100,
    }  # fmt: skip
    assert good.info.topology == DeviceTopology(socket_id=0, node_id=0, pcie_id="0000:00:08.0", bus_id="0000:01:00.0")
    assert good.groups == (LinkGroup("HCCS", frozenset({0, 1, 2, 3})),)
    assert good.must_honor_partition
    assert (good.vendor, good.model) == ("huawei", "Ascend-910B")


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        pytest.param({"uuid": "a"}, "no JSON array", id="object"),
        pytest.param([3], "entry 0", id="number"),
        pytest.param([{"minor": "0"}], "no uuid", id="no-uuid"),
        pytest.param([entry(minor="-1")], "minor", id="negative-minor"),
        pytest.param([entry(minor="9" * 5000)], "", id="endless-minor"),
        pytest.param([entry(minor="\u0663")], "minor", id="digits-of-another-script"),
        pytest.param([entry(resources={"gpu-core": "much"})], "quantity", id="quantity"),
        pytest.param([entry(resources={"gpu-core": "-5"})], "negative", id="negative"),
        pytest.param([entry(status={"healthy": "yes"})], "entry 0", id="status"),
    ],
)
def test_an_entry_that_makes_no_sense_is_passed_over(document: Any, problem: str) -> None:
    text = json.dumps([*document, entry("good")] if isinstance(document, list) else document).encode()
    devices, refused = parse_xpu_infos(text, "file")
    assert [device.info.id for device in devices] == (["good"] if isinstance(document, list) else [])
    assert len(refused) == 1
    assert problem in refused[0]


def test_torn_and_hostile_files_leave_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(json.dumps([entry("first", "0")]))
    (tmp_path / "b-torn").write_text(json.dumps([entry("second", "1")])[:30])
    (tmp_path / "c-large").write_bytes(b"[" * (MAX_FILE_BYTES + 1))
    (tmp_path / "d-folder").mkdir()
    (tmp_path / "e-bytes").write_bytes(b"\xff\xfe[]")
    (tmp_path / "f-again").write_text(json.dumps([entry("first", "2"), entry("third", "0")]))
    (tmp_path / "g-deep").write_text("[" * 100_000)
    (tmp_path / ".hidden").write_text("nonsense")
    os.mkfifo(tmp_path / "h-pipe")
    found = xpu_devices(tmp_path)
    assert [device.info.id for device in found.devices] == ["first"]
    assert len(found.refused) == 8


def test_without_files(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "absent"):
        with pytest.raises(Unsupported, match="no device-info files"):
            xpu_devices(directory)
