"""Behaviour of the running kernel's cgroup files, by direct access: facts that strategies and probes rely on."""

import ctypes
import errno
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cgroups import CgroupTree, TestCgroup
from tests.disks import NoDiskError, scratch_disk
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

MIB = 1 << 20
PATIENCE_SECONDS = 60.0
# A shell, because it spins at once: an interpreter that still loads its library sleeps now and then.
SPIN = ["/bin/sh", "-c", "while :; do :; done"]


@pytest.fixture
def tree() -> CgroupTree:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    return CgroupTree.detect()


@pytest.fixture
def v2_tree(tree: CgroupTree) -> CgroupTree:
    if tree.version != "v2":
        pytest.skip("the controllers are on cgroup v1")
    return tree


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        # A block device's page cache goes with its last opener.
        with scratch_disk(tmp_path) as device, device.open("rb"):
            yield device
    except NoDiskError as error:
        pytest.skip(str(error))


def stat_of(path: Path) -> dict[str, int]:
    """Read a flat keyed file such as cpu.stat or memory.events."""
    return {key: int(value) for key, value in (line.split() for line in path.read_text().splitlines())}


def pressure_total_us(path: Path, kind: str = "some") -> int:
    line = next(line for line in path.read_text().splitlines() if line.startswith(kind))
    return int(line.rpartition("total=")[2])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def needs(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"this kernel has no {path.name} here")
    return path


def read_through_cache(cgroup: TestCgroup, device: Path, size_bytes: int) -> None:
    """Read from the device inside the cgroup, which is charged for the page cache."""
    Path("/proc/sys/vm/drop_caches").write_text("1")
    count = size_bytes // MIB
    reader = cgroup.spawn(["dd", f"if={device}", "of=/dev/null", "bs=1M", f"count={count}"], stderr=subprocess.PIPE)
    _, message = reader.communicate(timeout=60)
    assert reader.returncode == 0, message.decode()


class _FileHandle(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128))


def file_handle_id(path: Path) -> int:
    """Return the 64-bit id in the directory's file handle, which is the id that BPF programs see."""
    handle, mount_id = _FileHandle(bytes=128), ctypes.c_int()
    libc = ctypes.CDLL(None, use_errno=True)
    at_fdcwd = -100
    failed = libc.name_to_handle_at(at_fdcwd, bytes(path), ctypes.byref(handle), ctypes.byref(mount_id), 0)
    assert not failed, os.strerror(ctypes.get_errno())
    return int(struct.unpack_from("Q", bytes(handle.handle))[0])


def test_inode_number_is_the_cgroup_id(tree: CgroupTree) -> None:
    with tree.make_cgroup("id") as cgroup:
        for directory in cgroup.dirs:
            assert file_handle_id(directory) == directory.stat().st_ino


def test_pressure_per_cgroup_grows_where_its_threads_wait(tree: CgroupTree) -> None:
    with tree.make_cgroup("busy") as busy, tree.make_cgroup("quiet") as quiet:
        if busy.unified_dir is None or quiet.unified_dir is None:
            pytest.skip("no unified hierarchy: PSI per cgroup needs one")
        pressure, other = needs(busy.unified_dir / "cpu.pressure"), quiet.unified_dir / "cpu.pressure"
        for _ in range(2):
            busy.spawn(SPIN, cpus="0")
        wait_for(lambda: pressure_total_us(pressure) >= 300_000)
        assert pressure_total_us(other) == 0
        for kind in ("io", "memory"):
            assert pressure_total_us(busy.unified_dir / f"{kind}.pressure", "full") >= 0


def test_quota_throttles_and_counts(tree: CgroupTree) -> None:
    with tree.make_cgroup("quota") as cgroup:
        cgroup.set_cpu_quota(20_000, 100_000)
        before, began = stat_of(cgroup.cpu_dir / "cpu.stat"), time.monotonic()
        cgroup.spawn(SPIN, cpus="0")
        key, per_second = ("throttled_usec", 1e6) if tree.version == "v2" else ("throttled_time", 1e9)
        throttled_seconds = 0.0
        while throttled_seconds < 0.5:
            passed = time.monotonic() - began
            assert passed < PATIENCE_SECONDS, f"throttled for {throttled_seconds} s"
            time.sleep(0.1)
            after = stat_of(cgroup.cpu_dir / "cpu.stat")
            throttled_seconds = (after[key] - before[key]) / per_second
        passed = time.monotonic() - began
    periods = after["nr_periods"] - before["nr_periods"]
    throttled = after["nr_throttled"] - before["nr_throttled"]
    assert 0 < throttled <= periods
    assert throttled_seconds < passed


def test_burst_above_quota_is_refused_and_so_is_quota_below_burst(tree: CgroupTree) -> None:
    with tree.make_cgroup("burst") as cgroup:
        cgroup.set_cpu_quota(50_000, 100_000)
        name = "cpu.max.burst" if tree.version == "v2" else "cpu.cfs_burst_us"
        burst = needs(cgroup.cpu_dir / name)
        burst.write_text("50000")
        with pytest.raises(OSError) as refused:
            burst.write_text("60000")
        assert refused.value.errno == errno.EINVAL
        with pytest.raises(OSError) as refused:
            cgroup.set_cpu_quota(40_000, 100_000)
        assert refused.value.errno == errno.EINVAL
        burst.write_text("40000")
        cgroup.set_cpu_quota(40_000, 100_000)


BESIDE = """
import os, sys, time
def used():
    with open(f"/proc/{sys.argv[1]}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
before, begun = used(), time.process_time()
while time.process_time() - begun < 0.8:
    pass
print(used() - before)
"""
"""Uses 0.8 s of CPU and prints what a process used meanwhile. A look from outside would preempt it: in an emulated
guest, whose timer is late, the other one runs then for tens of milliseconds."""


def test_idle_cgroup_leaves_the_cpu_to_others(tree: CgroupTree) -> None:
    with tree.make_cgroup("idle") as idle, tree.make_cgroup("normal") as normal:
        needs(idle.cpu_dir / "cpu.idle").write_text("1")
        low = idle.spawn(SPIN, cpus="0")
        wait_for(lambda: cpu_seconds(low.pid) >= 0.1)
        high = normal.spawn([sys.executable, "-c", BESIDE, str(low.pid)], cpus="0", stdout=subprocess.PIPE)
        low_used = float(high.communicate(timeout=60)[0])
    assert low_used < 0.2 * 0.8


def test_idle_cgroup_refuses_a_weight(tree: CgroupTree) -> None:
    with tree.make_cgroup("weight") as cgroup:
        idle = needs(cgroup.cpu_dir / "cpu.idle")
        weight = cgroup.cpu_dir / ("cpu.weight" if tree.version == "v2" else "cpu.shares")
        normal = weight.read_text()
        idle.write_text("1")
        with pytest.raises(OSError) as refused:
            weight.write_text("200")
        assert refused.value.errno == errno.EINVAL
        idle.write_text("0")
        assert weight.read_text() == normal


def test_reclaim_on_request(v2_tree: CgroupTree, disk: Path) -> None:
    with v2_tree.make_cgroup("reclaim") as cgroup:
        reclaim = needs(cgroup.memory_dir / "memory.reclaim")
        read_through_cache(cgroup, disk, 48 * MIB)
        before = int((cgroup.memory_dir / "memory.current").read_text())
        assert before > 40 * MIB
        reclaim.write_text(str(24 * MIB))
        assert int((cgroup.memory_dir / "memory.current").read_text()) < before - 20 * MIB


def test_memory_high_reclaims_instead_of_killing(v2_tree: CgroupTree, disk: Path) -> None:
    with v2_tree.make_cgroup("high") as cgroup:
        (cgroup.memory_dir / "memory.high").write_text(str(16 * MIB))
        read_through_cache(cgroup, disk, 64 * MIB)
        events = stat_of(cgroup.memory_dir / "memory.events")
        assert events["high"] > 0
        assert events["oom_kill"] == 0
        assert int((cgroup.memory_dir / "memory.current").read_text()) < 32 * MIB


def test_memory_limit_kills_what_cannot_be_reclaimed(tree: CgroupTree) -> None:
    with tree.make_cgroup("limit") as cgroup:
        cgroup.set_memory_limit(32 * MIB)
        # Where there is swap the kernel swaps instead; anonymous memory far above both decides.
        child = cgroup.spawn([sys.executable, "-S", "-c", "b = bytearray(1 << 30)"], stderr=subprocess.DEVNULL)
        child.wait(60)
        if child.returncode == 1:
            pytest.skip("this host refuses to overcommit 1 GiB")
        assert child.returncode == -9
        if tree.version == "v2":
            assert stat_of(cgroup.memory_dir / "memory.events")["oom_kill"] == 1


def test_io_limit_slows_reads(tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("io") as cgroup:
        rate = 4 * MIB
        try:
            cgroup.set_io_limit(str(disk), rbps=rate)
        except OSError as error:
            pytest.skip(f"no bandwidth limit for {disk}: {error.strerror}")
        started = time.monotonic()
        reader = cgroup.spawn(
            ["dd", f"if={disk}", "of=/dev/null", "bs=256k", "count=32", "iflag=direct"], stderr=subprocess.DEVNULL
        )
        assert reader.wait(60) == 0
        assert time.monotonic() - started > 0.7 * 8 * MIB / rate


def test_kill_file_ends_the_whole_subtree(tree: CgroupTree) -> None:
    with tree.make_cgroup("kill") as outer, outer.make_cgroup("inner") as inner:
        if outer.unified_dir is None:
            pytest.skip("no unified hierarchy")
        kill = needs(outer.unified_dir / "cgroup.kill")
        child = inner.spawn(["sleep", "600"])
        while child.pid not in inner.pids():
            time.sleep(0.01)
        kill.write_text("1")
        assert child.wait(10) == -9
