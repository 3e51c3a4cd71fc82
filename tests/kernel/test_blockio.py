"""Block IO of the running kernel: a known number of reads, their cgroup, and the cgroups ahead."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from api.frame import CGROUP, HOST, KERNEL_ID, Reading
from probes.blockio import (
    CLASS_RECORD,
    DISK_RECORD,
    IO_RECORD,
    PRUNE_EVERY_READS,
    TRACEPOINTS,
    USUAL_RECORD,
    BlockIo,
)
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

MIB = 1 << 20
REQUESTS_AT_A_TIME = 8
ENOUGH_NS = 50_000_000
"""Waits from which parts of them say something: many times what a busy CPU adds to a read that nothing is ahead of."""

# <path> <r|w> <bytes each> <count, 0 for ever> <threads>: reads or writes around the page cache, then says "done".
WORK = """
import mmap, os, sys, threading
path, mode, size, count, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
fd = os.open(path, (os.O_RDONLY if mode == "r" else os.O_WRONLY) | os.O_DIRECT)
places = os.lseek(fd, 0, os.SEEK_END) // size
def work(first):
    page = mmap.mmap(-1, size)
    position = first
    done = 0
    while not count or done < count:
        at = position % places * size
        moved = os.preadv(fd, [page], at) if mode == "r" else os.pwritev(fd, [page], at)
        assert moved == size
        position, done = position + 7, done + 1
started = [threading.Thread(target=work, args=(number * 1009,)) for number in range(threads)]
for thread in started:
    thread.start()
for thread in started:
    thread.join()
print("done", flush=True)
"""


@pytest.fixture
def probe(kernel: Kernel, disk: Path) -> Iterator[BlockIo]:
    """Opened after the disk, so that its own setting up is not counted."""
    probe = BlockIo.open(kernel, ProbeLimits())
    yield probe
    probe.close()


def device_of(disk: Path) -> int:
    number = disk.stat().st_rdev
    return (number >> 8 & 0xFFF) << 20 | (number & 0xFF)


def start(
    cgroup: TestCgroup, disk: Path, mode: str, size: int, count: int, threads: int = 1
) -> subprocess.Popen[bytes]:
    numbers = [str(number) for number in (size, count, threads)]
    return cgroup.spawn([sys.executable, "-S", "-c", WORK, str(disk), mode, *numbers], stdout=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout
    assert process.stdout.readline() == b"done\n"
    assert process.wait() == 0


def runs(process: subprocess.Popen[bytes]) -> Callable[[], str]:
    """Return a check that the process has not ended."""

    def check() -> str:
        assert process.poll() is None
        return ""

    return check


@contextmanager
def few_requests(disk: Path) -> Iterator[None]:
    """Let the disk have few IOs at a time: none of a fast one has to wait for a hundred others."""
    setting = Path("/sys/block", disk.name, "queue/nr_requests")
    before = setting.read_text()
    setting.write_text(str(REQUESTS_AT_A_TIME))
    try:
        yield
    finally:
        setting.write_text(before)


def on_disk(reading: Reading, cgroup: int, disk: Path) -> dict[str, int]:
    """Every column of one cgroup's row for one disk, histograms as their counts; zeros where there is no row."""
    table = reading.tables["blockio.device"]
    mine = (table.ids == cgroup) & (table.keys["device"] == device_of(disk))
    assert mine.sum() <= 1
    return {name.removeprefix("blockio."): int(column[mine].sum()) for name, column in table.columns.items()}


def of_host(reading: Reading, name: str) -> int:
    return int(reading.tables[HOST].columns[f"blockio.{name}"][0])


def blame(reading: Reading, victim: TestCgroup) -> dict[int, int]:
    table = reading.tables["blockio.blame"]
    mine = table.ids == victim.cgroup_id
    culprits, amounts = table.keys["culprit"][mine], table.columns["blockio.blame_ns"][mine]
    return {int(culprit): int(amount) for culprit, amount in zip(culprits.tolist(), amounts.tolist(), strict=True)}


@pytest.mark.parametrize(("mode", "size", "count"), [("r", 4096, 101), ("w", 8192, 53)])
def test_ios_are_counted_exactly(
    probe: BlockIo, tree: CgroupTree, disk: Path, mode: str, size: int, count: int
) -> None:
    with tree.make_cgroup("io") as cgroup:
        before = probe.read()
        since = time.monotonic_ns()
        finish(start(cgroup, disk, mode, size, count))
        taken_ns = time.monotonic_ns() - since
        reading = probe.read()
        row = on_disk(reading, cgroup.cgroup_id, disk)
        moved, still = ("read_bytes", "write_bytes") if mode == "r" else ("write_bytes", "read_bytes")
        assert (row["ios"], row[moved], row[still]) == (count, count * size, 0)
        assert of_host(reading, "host_ios") - of_host(before, "host_ios") >= count
        assert of_host(reading, "host_bytes") - of_host(before, "host_bytes") >= count * size
        assert row["queue_hist"] == row["device_hist"] == count
        assert 0 < row["queue_ns"] + row["device_ns"] < taken_ns
        assert row["inflight"] == 0
        assert not any(reading.lost.values())


def test_dense_sums_are_those_of_the_disks(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("sum") as cgroup:
        finish(start(cgroup, disk, "r", 4096, 31))
        reading = probe.read()
        dense, devices = reading.tables[CGROUP], reading.tables["blockio.device"]
        for name in dense.columns.keys() - {"blockio.stalled_ns"}:
            mine = dense.columns[name][dense.ids == cgroup.cgroup_id].sum()
            assert mine == devices.columns[name][devices.ids == cgroup.cgroup_id].sum()


def test_alone_nobody_is_blamed(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("alone") as cgroup:
        finish(start(cgroup, disk, "r", 4096, 211, threads=4))
        reading = probe.read()
        row = on_disk(reading, cgroup.cgroup_id, disk)
        named = {culprit: ns for culprit, ns in blame(reading, cgroup).items() if culprit != KERNEL_ID}
        assert named == {}
        assert row["self_ns"] == row["queue_ns"] + row["excess_ns"]
        assert 4 * 211 - sum(probe.missed().values()) <= row["ios"] <= 4 * 211


def test_a_large_read_is_split_and_counted_whole(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("large") as cgroup:
        finish(start(cgroup, disk, "r", 16 * MIB, 3))
        row = on_disk(probe.read(), cgroup.cgroup_id, disk)
        assert row["read_bytes"] == 48 * MIB
        assert row["ios"] > 3
        assert row["ios"] == row["queue_hist"] == row["device_hist"]
        assert row["inflight"] == 0


def test_the_neighbour_ahead_is_blamed(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    """Reads of 4 MiB are split into more IOs than the disk serves at a time, so that some are ahead at any moment."""
    with few_requests(disk), tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        finish(start(victim, disk, "r", 4096, 50))
        assert hog.cgroup_id not in blame(probe.read(), victim)
        flood = start(hog, disk, "r", 4 * MIB, 0, threads=6)
        try:
            wait_for(lambda: on_disk(probe.read(), hog.cgroup_id, disk)["ios"] >= 50, check=runs(flood))
            before = row = on_disk(probe.read(), victim.cgroup_id, disk)
            reads = waited = 0
            while waited < ENOUGH_NS:
                finish(start(victim, disk, "r", 4096, 37))
                reads += 37
                reading = probe.read()
                row = on_disk(reading, victim.cgroup_id, disk)
                waited = sum(row[name] - before[name] for name in ("queue_ns", "excess_ns"))
            runs(flood)()
        finally:
            flood.kill()
        culprits = blame(reading, victim)
        assert reads - sum(probe.missed().values()) <= row["ios"] - before["ios"] <= reads
        assert culprits[hog.cgroup_id] >= 0.95 * sum(culprits.values())
        assert culprits[hog.cgroup_id] >= 0.5 * waited
        assert sum(culprits.values()) + row["self_ns"] == row["queue_ns"] + row["excess_ns"]


def test_buffered_reads_merge_and_leave_nothing_behind(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("buffered") as cgroup:
        subprocess.run(["blockdev", "--flushbufs", str(disk)], check=True)
        reader = cgroup.spawn(["dd", f"if={disk}", "of=/dev/null", "bs=1M", "count=32"], stderr=subprocess.DEVNULL)
        assert reader.wait() == 0
        row = on_disk(probe.read(), cgroup.cgroup_id, disk)
        assert row["read_bytes"] >= 32 * MIB
        assert row["inflight"] == 0


def test_writeback_is_its_cgroups_where_the_kernel_knows(
    probe: BlockIo, tree: CgroupTree, disk: Path, tmp_path: Path
) -> None:
    """On cgroup v1 the owner of the dirty pages that the flusher writes is unknown; on v2 the bio names it."""
    size = 8 * MIB
    where = tmp_path / "mount"
    where.mkdir()
    subprocess.run(["mkfs.ext4", "-q", "-F", str(disk)], check=True)
    subprocess.run(["mount", str(disk), str(where)], check=True)
    try:
        with tree.make_cgroup("writer") as cgroup:
            before = probe.read()
            write = ["dd", "if=/dev/zero", f"of={where / 'file'}", f"bs={size}", "count=1"]
            assert cgroup.spawn(write, stderr=subprocess.DEVNULL).wait() == 0
            subprocess.run(["sync", "-f", str(where)], check=True)
            after = probe.read()
            owner = cgroup.cgroup_id if tree.version == "v2" else KERNEL_ID
            written = [on_disk(reading, owner, disk)["write_bytes"] for reading in (before, after)]
            assert written[1] - written[0] >= size
    finally:
        subprocess.run(["umount", str(where)], check=True)


def test_time_held_back_by_a_limit(kernel: Kernel, probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("limited") as cgroup:
        finish(start(cgroup, disk, "r", 4096, 1))
        cgroup.set_io_limit(str(disk), rbps=MIB)
        since = time.monotonic_ns()
        finish(start(cgroup, disk, "r", 128 << 10, 13))
        taken_ns = time.monotonic_ns() - since
        reading = probe.read()
        row = on_disk(reading, cgroup.cgroup_id, disk)
        assert taken_ns > 0.9e9
        assert row["read_bytes"] == 13 * (128 << 10) + 4096
        assert row["queue_ns"] < taken_ns / 2
        if "blockio.throttle_ns" in kernel.refusals:
            assert "throttle_ns" not in row
            pytest.xfail(f"no throttle time here: {kernel.refusals['blockio.throttle_ns']}")
        at_the_limit_ns = 13 * (128 << 10) / MIB * 1e9  # starting the reader takes time, too
        assert 0.6 * min(taken_ns, at_the_limit_ns) < row["throttle_ns"] < taken_ns


def test_forgotten_cgroup_is_gone(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    with tree.make_cgroup("gone") as cgroup:
        finish(start(cgroup, disk, "r", 4096, 503))
        identity = np.array([cgroup.cgroup_id], dtype=np.uint64)
        reading = probe.read()
        assert identity[0] in reading.tables[CGROUP].ids
        probe.forget(identity)
        again = probe.read()
        assert identity[0] not in again.tables["blockio.device"].ids
        assert of_host(again, "host_ios") >= of_host(reading, "host_ios") >= 503
        assert of_host(again, "host_bytes") >= of_host(reading, "host_bytes") >= 503 * 4096


def test_an_end_that_went_unseen_is_made_up_for_when_the_bio_is_used_again(
    kernel: Kernel, tree: CgroupTree, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no end seen at all, as many IOs count as outstanding as there are bios in turn, not as there were IOs."""
    beginnings = {name: program for name, program in TRACEPOINTS.items() if "complete" not in name}
    monkeypatch.setattr("probes.blockio.TRACEPOINTS", beginnings)
    probe = BlockIo.open(kernel, ProbeLimits())
    try:
        with tree.make_cgroup("unseen") as cgroup:
            finish(start(cgroup, disk, "r", 4096, 307))
            _, disks = probe._bpf.map("disks", np.dtype(np.uint32), DISK_RECORD).read()
            _, ios = probe._bpf.map("ios", np.dtype(np.uint64), IO_RECORD).read()
            assert 0 < disks["outstanding"].sum() == len(ios) < 100
    finally:
        probe.close()


def test_counts_begin_anew_where_an_end_went_unseen(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    """An IO that seems to be under way on an idle disk counts neither as late nor as ahead of what comes after."""
    with tree.make_cgroup("unseen") as cgroup:
        finish(start(cgroup, disk, "r", 4096, 307))
        (state,) = probe._disks.lookup(device_of(disk))
        seat = int(np.flatnonzero(state["cgroups"] == cgroup.cgroup_id)[0])
        state["outstanding"][seat] += 1
        probe._disks.update(device_of(disk), state)
        unseen = np.zeros(1, dtype=IO_RECORD)
        unseen["queued_ns"] = time.monotonic_ns() - 2_000_000_000
        unseen["cgroup"], unseen["disk"], unseen["seat"] = cgroup.cgroup_id, device_of(disk), seat
        probe._ios.update(8, unseen)
        before = on_disk(probe.read(), cgroup.cgroup_id, disk)
        finish(start(cgroup, disk, "r", 4096, 307))
        (state,) = probe._disks.lookup(device_of(disk))
        assert cgroup.cgroup_id in state["cgroups"]
        assert not state["outstanding"].any()
        after = on_disk(probe.read(), cgroup.cgroup_id, disk)
        assert after["ios"] - before["ios"] == 307
        assert after["excess_ns"] < 1_000_000_000


def test_disks_that_are_gone_are_dropped(kernel: Kernel) -> None:
    probe = BlockIo.open(kernel, ProbeLimits())
    try:
        absent = np.array([4094 << 20 | 77], dtype=np.uint32)
        key = np.array((absent[0], 3), dtype=CLASS_RECORD)
        probe._disks.update(int(absent[0]), np.zeros(1, dtype=DISK_RECORD))
        probe._usual.update(key, np.zeros(1, dtype=USUAL_RECORD))
        for _ in range(PRUNE_EVERY_READS):
            probe.read()
        assert probe._disks.lookup(int(absent[0])) is None
        assert probe._usual.lookup(key) is None
    finally:
        probe.close()
