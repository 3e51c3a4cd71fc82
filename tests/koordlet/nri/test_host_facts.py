"""What is read of the host for a container that starts."""

from pathlib import Path

from koordlet.hooks.resources import DeviceNode
from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from koordlet.nri.bounds import PodBounds
from koordlet.nri.host_facts import pod_bounds, rdma_nodes


def host(root: Path, mounts: str) -> HostTree:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    return HostTree(root)


def test_bounds_of_a_pod_on_v1(tmp_path: Path) -> None:
    tree = host(
        tmp_path,
        "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "2 0 0:2 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
    )
    for controller, name, text in (
        ("cpu", "cpu.cfs_quota_us", "50000"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("cpuset", "cpuset.cpus", "0-1"),
    ):
        folder = tmp_path / "sys/fs/cgroup" / controller / "pod"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert pod_bounds(Knobs(tree), "/pod") == PodBounds(frozenset({0, 1}), 50_000)
    assert pod_bounds(Knobs(tree), "/gone") == PodBounds()
    (tmp_path / "sys/fs/cgroup/cpuset/pod/cpuset.cpus").write_text("torn-")
    assert pod_bounds(Knobs(tree), "/pod").cpus is None


def test_rdma_device_nodes(tmp_path: Path) -> None:
    (tmp_path / "sys/bus/pci/devices/0000:81:00.0/infiniband_verbs/uverbs0").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices/0000:82:00.0/infiniband_verbs/uverbs1").mkdir(parents=True)
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/uverbs0").write_text("")
    found = rdma_nodes(HostTree(tmp_path))
    assert found == {"0000:81:00.0": (DeviceNode("/dev/infiniband/uverbs0", 0, 0),), "0000:82:00.0": ()}
    assert rdma_nodes(HostTree(tmp_path / "elsewhere")) == {}
