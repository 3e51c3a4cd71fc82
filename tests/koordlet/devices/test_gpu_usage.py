"""Use of GPUs by pod."""

from pathlib import Path

import pytest

from api.kube.device_use import DeviceSample
from koordlet.devices.gpu_usage import GpuShare, Owner, device_use, owner_of, read_usage, usage_of
from koordlet.devices.nvml import Nvml, ProcessUse
from koordlet.host.files import HostTree
from tests.koordlet.devices.conftest import GIB, Standin
from tests.trees import make_tree

UID = "11111111-2222-3333-4444-555555555555"
CONTAINER = "ab" * 32
V1 = f"4:memory:/x\n3:cpu,cpuacct:/kubepods/burstable/pod{UID}/{CONTAINER}\n"
V2 = f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope\n"


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        pytest.param(V1, Owner(UID, CONTAINER), id="v1"),
        pytest.param(V2, Owner(UID, CONTAINER), id="v2-systemd"),
        pytest.param(V2.replace("0::/", "0::/../../"), Owner(UID, CONTAINER), id="agent-in-a-cgroup-namespace"),
        pytest.param("0::/system.slice/x.service\n", None, id="service"),
        pytest.param("nonsense\n::\n", None, id="torn"),
        pytest.param("", None, id="empty"),
    ],
)
def test_owner(tmp_path: Path, text: str, owner: Owner | None) -> None:
    tree = HostTree(make_tree(tmp_path, {"/proc/7/cgroup": text}))
    assert owner_of(tree, 7) == owner
    assert owner_of(tree, 8) is None


def test_processes_of_a_pod_are_summed() -> None:
    owners = {1: Owner("a", "c1"), 2: Owner("a", "c2"), 3: Owner("b")}
    uses = [ProcessUse(1, 0, 10.0, 100), ProcessUse(2, 0, 5.0, 50), ProcessUse(1, 1, 1.0, 1), ProcessUse(3, 0, 2.0, 2)]
    usage = usage_of([], [*uses, ProcessUse(99, 0, 50.0, 5)], owners.get)
    assert usage.pods == {"a": (GpuShare(0, 15.0, 150), GpuShare(1, 1.0, 1)), "b": (GpuShare(0, 2.0, 2),)}
    assert usage.containers == {"c1": (GpuShare(0, 10.0, 100), GpuShare(1, 1.0, 1)), "c2": (GpuShare(0, 5.0, 50),)}


def test_from_nvml_to_pods(standin: Standin, tmp_path: Path) -> None:
    standin.busy(0, 60, 4 * GIB)
    standin.process(0, 7, 60, 3 * GIB, stamp_us=5)
    standin.process(0, 8, 0, GIB, stamp_us=5)
    tree = HostTree(make_tree(tmp_path, {"/proc/7/cgroup": V2, "/proc/8/cgroup": "0::/user.slice\n"}))
    nvml = Nvml(tree)
    usage = read_usage(nvml, tree)
    nvml.close()
    assert usage.pods == {UID: (GpuShare(0, 60.0, 3 * GIB),)}
    told = device_use(usage)
    assert told[""][0] == DeviceSample("gpu", usage.gpus[0].uuid, 0, 60.0, 4 * GIB, 8 * GIB)
    assert told[UID] == [DeviceSample("gpu", usage.gpus[0].uuid, 0, 60.0, 3 * GIB, 8 * GIB)]
    assert (len(told[""]), set(told)) == (8, {"", UID})
    assert (usage.gpus[0].core_percent, usage.gpus[0].memory_bytes) == (60.0, 4 * GIB)
