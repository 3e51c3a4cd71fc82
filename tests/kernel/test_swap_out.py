"""Writes to swap of the running kernel: whose they are under a limit, through a worker, and when the node is short."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from api.frame import CGROUP, KERNEL_ID, Reading
from probes.blockio import BlockIo
from probes.memory import Memory
from probes.probe import Kernel, ProbeLimits
from probes.swap_out import SWAP_OUT_ID
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

MIB = 1 << 20
SMALL_NODE_KIB = 3 << 20
SLEEPERS_BYTES = 48 * MIB

# <bytes> <bytes at a time> <pause>: takes memory that no page of is all alike, says "done" and sleeps.
TAKER = """
import mmap, os, sys, time
size, step, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
kept = mmap.mmap(-1, size)
noise = os.urandom(step)
for at in range(0, size, step):
    kept[at : at + step] = noise
    time.sleep(pause)
print("done", flush=True)
sys.stdin.readline()
"""
# Reads a disk around the page cache, for ever.
READER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
at = 0
while True:
    os.preadv(fd, [page], at % (64 << 20))
    at += 7 * 4096
"""


def device_of(disk: Path) -> int:
    number = disk.stat().st_rdev
    return (number >> 8 & 0xFFF) << 20 | (number & 0xFF)


@contextlib.contextmanager
def swap_on(disk: Path) -> Iterator[None]:
    """Swap to the disk, before any other."""
    subprocess.run(["mkswap", str(disk)], check=True, capture_output=True)
    done = subprocess.run(["swapon", "--priority", "32767", str(disk)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no swap here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["swapoff", str(disk)], check=True)


@pytest.fixture
def delayed(disk: Path) -> Iterator[Path]:
    """A disk above the other one, whose worker passes on what is written."""
    subprocess.run(["modprobe", "-q", "dm-delay"], check=False)
    sectors = int(subprocess.run(["blockdev", "--getsz", str(disk)], check=True, capture_output=True).stdout)
    name = "koord-test-delay"
    create = ["dmsetup", "create", name, "--table", f"0 {sectors} delay {disk} 0 5"]
    done = subprocess.run(create, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no dm-delay here: {done.stderr.strip()}")
    number = ["dmsetup", "info", "--columns", "--noheadings", "-o", "minor", name]
    try:
        minor = subprocess.run(number, check=True, capture_output=True, text=True).stdout.strip()
        yield Path(f"/dev/dm-{minor}")
    finally:
        subprocess.run(["dmsetup", "remove", "--retry", name], check=True)


@pytest.fixture
def memory(kernel: Kernel) -> Iterator[Memory]:
    probe = Memory.open(kernel, ProbeLimits())
    yield probe
    probe.close()


@pytest.fixture
def probe(kernel: Kernel, disk: Path, memory: Memory) -> Iterator[BlockIo]:
    """Opened after the disk, so that its own setting up is not counted."""
    probe = BlockIo.open(kernel, ProbeLimits())
    probe.follow_pages(memory.page_shares)
    yield probe
    probe.close()


def take(cgroup: TestCgroup, size: int, *, pause: float = 0.0) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-S", "-c", TAKER, str(size), str(MIB), str(pause)]
    return cgroup.spawn(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def is_done(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout
    return process.stdout.readline() == b"done\n"


def written(reading: Reading, cgroup: int, disk: Path) -> int:
    """Bytes that the cgroup wrote to the disk."""
    table = reading.tables["blockio.device"]
    mine = (table.ids == cgroup) & (table.keys["device"] == device_of(disk))
    return int(table.columns["blockio.write_bytes"][mine].sum())


def swapped(reading: Reading, cgroup: TestCgroup) -> int:
    """Bytes written to swap for the cgroup while the node was short."""
    table = reading.tables[CGROUP]
    return int(table.columns["blockio.swapped_bytes"][table.ids == cgroup.cgroup_id].sum())


def blame(reading: Reading, victim: TestCgroup) -> dict[int, int]:
    table = reading.tables["blockio.blame"]
    mine = table.ids == victim.cgroup_id
    culprits, amounts = table.keys["culprit"][mine], table.columns["blockio.blame_ns"][mine]
    return dict(zip(culprits.tolist(), amounts.tolist(), strict=True))


class PushedOut(NamedTuple):
    """Bytes written to the disk by each of two cgroups, and for them while the node was short."""

    by_sleeper: int
    by_taker: int
    swapped: int


def push_out_a_neighbour(tree: CgroupTree, probe: BlockIo, disk: Path, swap: Path) -> PushedOut:
    """Under one pod's limit, a taker has a sleeper's pages written to swap."""
    with swap_on(swap), tree.make_cgroup("pod") as pod:
        sleeper, taker = pod.make_cgroup("sleeper"), pod.make_cgroup("taker")
        assert is_done(take(sleeper, SLEEPERS_BYTES))
        pod.set_memory_limit(SLEEPERS_BYTES + 48 * MIB)
        assert is_done(take(taker, SLEEPERS_BYTES + 16 * MIB))
        wait_for(lambda: written(probe.read(), taker.cgroup_id, disk) >= 8 * MIB)
        reading = probe.read()
        both = (written(reading, cgroup.cgroup_id, disk) for cgroup in (sleeper, taker))
        return PushedOut(*both, swapped(reading, sleeper) + swapped(reading, taker))


def test_under_a_limit_the_taker_bears_what_it_pushes_out(probe: BlockIo, tree: CgroupTree, disk: Path) -> None:
    found = push_out_a_neighbour(tree, probe, disk, disk)
    assert found.by_sleeper <= found.by_taker // 10
    assert found.swapped == 0, "the node is not short"


def test_a_worker_passes_on_what_the_taker_pushes_out(
    probe: BlockIo, tree: CgroupTree, disk: Path, delayed: Path
) -> None:
    found = push_out_a_neighbour(tree, probe, disk, delayed)
    assert found.by_sleeper <= found.by_taker // 10


def memory_kib(field: str) -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def test_on_a_short_node_those_who_take_pages_bear_it(
    probe: BlockIo, memory: Memory, tree: CgroupTree, disk: Path
) -> None:
    """Needs a node small enough to be pressed without harm to others: a virtual machine."""
    if memory_kib("MemTotal") > SMALL_NODE_KIB:
        pytest.skip("this node has too much memory to press it all: run in a small virtual machine")
    with (
        swap_on(disk),
        tree.make_cgroup("sleeper") as sleeper,
        tree.make_cgroup("hog") as hog,
        tree.make_cgroup("reader") as reader,
    ):
        assert is_done(take(sleeper, SLEEPERS_BYTES))
        reader.spawn([sys.executable, "-S", "-c", READER, str(disk)])
        time.sleep(2)
        memory.read()
        before = blame(probe.read(), reader)
        flood = take(hog, (memory_kib("MemAvailable") << 10) + 96 * MIB, pause=0.005)
        readings = []

        def is_pushed() -> bool:
            memory.read()
            readings.append(probe.read())
            return swapped(readings[-1], hog) >= 32 * MIB and hog.cgroup_id in blame(readings[-1], reader)

        wait_for(is_pushed, 180.0, interval_seconds=0.5, check=lambda: str(flood.poll()))
        reading = readings[-1]
        every = int(reading.tables[CGROUP].columns["blockio.swapped_bytes"].sum())
        assert swapped(reading, hog) >= 0.7 * every
        assert written(reading, sleeper.cgroup_id, disk) <= every // 10
        assert written(reading, SWAP_OUT_ID, disk) == 0, "shared out before it reaches a table"
        grown = {who: amount - before.get(who, 0) for who, amount in blame(reading, reader).items()}
        neighbours = {who: amount for who, amount in grown.items() if who != KERNEL_ID}
        assert max(neighbours, key=neighbours.__getitem__) == hog.cgroup_id
        assert SWAP_OUT_ID not in grown
