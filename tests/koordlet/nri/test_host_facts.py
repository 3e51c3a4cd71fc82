"""What is read of the host for a container that starts."""

from pathlib import Path

from koordlet.host.files import HostTree
from koordlet.host.knobs.knobs import Knobs
from koordlet.nri.bounds import PodBounds
from koordlet.nri.host_facts import pod_bounds


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
        folder = tmp_path / "sys/fs/cgroup" / controller / "best/pod"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    assert pod_bounds(Knobs(tree), "/best/pod") == PodBounds(frozenset({0, 1}), 50_000)
    assert pod_bounds(Knobs(tree), "/gone") == PodBounds()
    (tmp_path / "sys/fs/cgroup/cpuset/best/pod/cpuset.cpus").write_text("torn-")
    assert pod_bounds(Knobs(tree), "/best/pod").cpus is None


def test_the_least_quota_above_binds(tmp_path: Path) -> None:
    tree = host(tmp_path, "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    for path, quota in (("", "1000 100000"), ("best", "20000 100000"), ("best/pod", "max 100000")):
        folder = tmp_path / "sys/fs/cgroup" / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.max").write_text(quota)
    assert pod_bounds(Knobs(tree), "/best/pod").quota_us == 20_000
