"""The test cgroups themselves: children land inside, and nothing stays behind."""

import os
import subprocess
from pathlib import Path

import pytest

from koordlet.demo.layout import Layout
from koordlet.demo.stage import staged
from tests.cgroups import CgroupTree

pytestmark = [pytest.mark.kernel, pytest.mark.beside]


@pytest.fixture
def tree() -> CgroupTree:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    return CgroupTree.detect()


def test_spawned_child_is_in_every_hierarchy_and_all_is_removed(tree: CgroupTree) -> None:
    with tree.make_cgroup("spawn") as outer, outer.make_cgroup("inner") as inner:
        child = inner.spawn(["sleep", "60"], cpus="0")
        for directory in inner.dirs:
            while child.poll() is None and str(child.pid) not in (directory / "cgroup.procs").read_text().split():
                os.sched_yield()
        assert child.poll() is None
        assert inner.pids() == [child.pid]
        assert inner.path == f"/koord-test-{os.getpid()}-spawn/inner"
        dirs = [*inner.dirs, *outer.dirs]
    assert not [directory for directory in dirs if directory.exists()]
    assert child.returncode == -9


def test_own_process_goes_back_where_it_was(tree: CgroupTree) -> None:
    before = Path("/proc/self/cgroup").read_text()
    with tree.make_cgroup("visit") as cgroup:
        cgroup.add(os.getpid())
        assert cgroup.pids() == [os.getpid()]
    assert Path("/proc/self/cgroup").read_text() == before


def test_limits_read_back(tree: CgroupTree) -> None:
    with tree.make_cgroup("limits") as cgroup:
        cgroup.set_cpu_quota(20_000, 50_000)
        cgroup.set_memory_limit(64 << 20)
        if tree.version == "v2":
            assert (cgroup.cpu_dir / "cpu.max").read_text() == "20000 50000\n"
            assert (cgroup.memory_dir / "memory.max").read_text() == f"{64 << 20}\n"
        else:
            assert (cgroup.cpu_dir / "cpu.cfs_quota_us").read_text() == "20000\n"
            assert (cgroup.memory_dir / "memory.limit_in_bytes").read_text() == f"{64 << 20}\n"
        cgroup.set_cpu_quota(None)
        cgroup.set_memory_limit(None)


def test_cgroup_id_is_the_kernels(tree: CgroupTree) -> None:
    with tree.make_cgroup("one") as one, tree.make_cgroup("two") as two:
        assert one.cgroup_id != two.cgroup_id
        assert one.cgroup_id == one.cpu_dir.stat().st_ino


def test_a_stage_leaves_no_directory_and_no_controller_behind(tree: CgroupTree) -> None:
    with tree.make_cgroup("staged") as outer:
        root = f"{outer.path}/demo"
        layout = Layout("siblings", root, f"{root}/online", f"{root}/batch", f"{root}/batch", {f"{root}/batch": 2})
        enabled = [directory / "cgroup.subtree_control" for directory in outer.dirs]
        before = [file.read_text() for file in enabled if file.exists()]
        with staged(0.001, layout) as stage:
            assert all(directory.is_dir() for directory in (*stage.online.directories, *stage.batch.directories))
            if tree.version == "v2":
                assert "cpu" in enabled[0].read_text().split()
        assert [file.read_text() for file in enabled if file.exists()] == before
        assert not any((directory / "demo").exists() for directory in outer.dirs)
        found = {path.resolve() for path in Path("/sys/fs/cgroup").glob(f"*{outer.path}")}
        stray = found - {directory.resolve() for directory in outer.dirs}
        assert not stray, "directories of hierarchies where there was none above the stage"


def test_detect_names_the_version_of_the_cpu_controller(tmp_path: Path) -> None:
    hybrid = tmp_path / "mounts"
    hybrid.write_text(
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    )
    tree = CgroupTree.detect(hybrid)
    assert (tree.version, tree.is_hybrid) == ("v1", True)
    assert tree.mount_of("cpuacct") == Path("/sys/fs/cgroup/cpu,cpuacct")
    with pytest.raises(LookupError):
        tree.mount_of("memory")


def test_what_was_made_below_goes_too(tree: CgroupTree) -> None:
    with tree.make_cgroup("outer") as outer:
        made_by_others = outer.cpu_dir / "one" / "two"
        made_by_others.mkdir(parents=True)
        child = outer.spawn(["sleep", "60"])
        while child.pid not in outer.pids():
            os.sched_yield()
        (made_by_others / "cgroup.procs").write_text(str(child.pid))
    assert not outer.cpu_dir.exists()
    assert child.returncode == -9


def test_orphans_of_a_killed_run_are_removed(tree: CgroupTree) -> None:
    with subprocess.Popen(["true"]) as gone:
        pass
    orphan = tree.mount_of("cpu") / f"koord-test-{gone.pid}-left" / "below"
    orphan.mkdir(parents=True)
    with tree.make_cgroup("next"):
        assert not orphan.parent.exists()
