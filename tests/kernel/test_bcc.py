"""Programs that BCC compiles against the CO-RE programs: both measure the same load, and must report the same.

At one event programs run one after the other, and an emulated CPU may stand still between them. Where single waits are
compared, the compiled program runs between two copies of the CO-RE one, which show how far apart equal programs are.
"""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from api.frame import CGROUP, Reading
from api.metrics import MEMORY_CAUSES
from api.plugin import Unsupported
from probes.bcc import loader
from probes.bcc.blockio import BccBlockIo
from probes.bcc.cpu import MARK_EVERY_READS, UNMEASURED, BccCpu
from probes.bcc.memory import BccMemory
from probes.blockio import BlockIo
from probes.cpu import Cpu
from probes.memory import HELD_BACK, Memory
from probes.probe import Kernel, Probe, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup

pytestmark = pytest.mark.kernel

CPU = "0"
BUSY_SECONDS = 3
BUSY = ["timeout", str(BUSY_SECONDS), "sh", "-c", "while :; do :; done"]
TOLERANCE = 0.03
SLACK_NS = 2e6
HIDE_BTF = "mount -t tmpfs none /sys/kernel/btf"
HIDE_HEADERS = "mkdir -p /usr/src && mount -t tmpfs none /usr/src"


@pytest.fixture(scope="module")
def host(running_kernel: Kernel) -> Kernel:
    """The kernel of all tests here, which share what is compiled: that takes a minute of an emulated CPU each time."""
    fresh = copy.copy(running_kernel)
    fresh.refusals = {}
    return fresh


@pytest.fixture(scope="module")
def bcc(host: Kernel) -> None:
    """Skip with the reason where BCC or the kernel's headers are missing."""
    try:
        loader.require()
        _ = host.btf
    except Unsupported as reason:
        pytest.skip(reason.reason)


@pytest.fixture(scope="module")
def cpu_pair(bcc: None, host: Kernel) -> Iterator[tuple[Cpu, Cpu]]:
    yield from opened(Cpu.open(host, ProbeLimits()), BccCpu.open(host, ProbeLimits()))


@pytest.fixture(scope="module")
def memory_trio(bcc: None, host: Kernel) -> Iterator[tuple[Memory, Memory, Memory]]:
    first, compiled = Memory.open(host, ProbeLimits()), BccMemory.open(host, ProbeLimits())
    yield from opened(first, compiled, Memory.open(host, ProbeLimits()))


def opened(*probes: Any) -> Iterator[Any]:
    yield probes
    for probe in probes:
        probe.close()


def total(reading: Reading, cgroup: TestCgroup, column: str) -> int:
    table = reading.tables[CGROUP]
    return int(table.columns[column][table.ids == cgroup.cgroup_id].sum())


def blamed(reading: Reading, table: str, victim: TestCgroup, culprit: TestCgroup) -> int:
    pairs = reading.tables[f"{table}.blame"]
    rows = (pairs.ids == victim.cgroup_id) & (pairs.keys["culprit"] == np.uint64(culprit.cgroup_id))
    return int(pairs.columns[f"{table}.blame_ns"][rows].sum())


def nearly(amount: float, slack_ns: float = SLACK_NS) -> Any:
    return pytest.approx(amount, rel=TOLERANCE, abs=slack_ns)


def alike(first: float, last: float) -> Any:
    """Expected value between two copies of the CO-RE program: their mean, with the tolerance by which they differ."""
    return nearly((first + last) / 2, max(SLACK_NS, abs(last - first) / 2))


def readings(probes: tuple[Probe, ...]) -> tuple[Reading, ...]:
    """Read all once the load is over, so that no moment of reading matters."""
    return tuple(probe.read() for probe in probes)


def test_cpu_contention_is_measured_alike(cpu_pair: tuple[Cpu, Cpu], tree: CgroupTree) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        running = [victim.spawn(BUSY, cpus=CPU), victim.spawn(BUSY, cpus=CPU), hog.spawn(BUSY, cpus=CPU)]
        for process in running:
            process.wait(timeout=60)
        core, compiled = readings(cpu_pair)
        assert total(core, victim, "cpu.wait_neighbour_ns") > 0.3 * BUSY_SECONDS * 1e9
        assert total(core, victim, "cpu.wait_self_ns") > 0.3 * BUSY_SECONDS * 1e9
        for column in core.tables[CGROUP].columns:
            if column in UNMEASURED:
                assert column not in compiled.tables[CGROUP].columns
            elif column.endswith("_ns"):
                # one wait that an emulated CPU interrupts between the two programs is a large part of a small cause
                slack_ns = 0.005 * total(core, victim, "cpu.wait_ns")
                assert total(compiled, victim, column) == nearly(total(core, victim, column), slack_ns), column
        for column in ("cpu.wait_count", "cpu.involuntary_switches"):
            assert total(compiled, victim, column) == pytest.approx(total(core, victim, column), rel=TOLERANCE, abs=2)
        assert blamed(compiled, "cpu", victim, hog) == nearly(blamed(core, "cpu", victim, hog))
        assert compiled.lost["cpu.task"] == 0


def test_cpu_wait_under_a_quota_is_of_unknown_cause(cpu_pair: tuple[Cpu, Cpu], tree: CgroupTree, host: Kernel) -> None:
    with tree.make_cgroup("limited") as limited, limited.make_cgroup("worker") as worker:
        limited.set_cpu_quota(20_000, 100_000)
        for _ in range(MARK_EVERY_READS):
            readings(cpu_pair)
        worker.spawn(BUSY, cpus=CPU).wait(timeout=60)
        core, compiled = readings(cpu_pair)
        wait = total(core, worker, "cpu.wait_ns")
        assert total(core, worker, "cpu.wait_ancestor_quota_ns") > 0.5 * wait > 0.3 * BUSY_SECONDS * 1e9
        assert total(compiled, worker, "cpu.wait_ns") == nearly(wait)
        assert total(compiled, worker, "cpu.wait_unknown_ns") == total(compiled, worker, "cpu.wait_ns")
        assert set(UNMEASURED) <= host.refusals.keys()


MIB = 1 << 20
LIMIT_BYTES = 32 * MIB
READ_TWICE = """
import sys
for _ in range(2):
    with open(sys.argv[1], "rb", buffering=0) as stream:
        while stream.read(1 << 20):
            pass
"""
WRITE = """
import sys
with open(sys.argv[1], "w") as stream:
    stream.write(sys.argv[2])
"""
TAKE = "data = bytearray(64 << 20)"


def python(cgroup: TestCgroup, program: str, *arguments: str) -> int:
    return cgroup.spawn([sys.executable, "-S", "-c", program, *arguments]).wait(timeout=120)


@pytest.fixture
def hole(tmp_path: Path) -> Path:
    """A hole: reading it fills the page cache of the reader, and nothing is cached before."""
    path = tmp_path / "hole"
    with path.open("wb") as stream:
        stream.truncate(5 * LIMIT_BYTES)
    return path


@pytest.mark.parametrize("level", ["own", "ancestor"])
def test_memory_stalls_are_measured_alike(
    memory_trio: tuple[Memory, Memory, Memory], tree: CgroupTree, hole: Path, level: str
) -> None:
    with tree.make_cgroup("outer") as outer, outer.make_cgroup("inner") as inner:
        (inner if level == "own" else outer).set_memory_limit(LIMIT_BYTES)
        assert python(inner, READ_TWICE, str(hole)) == 0
        first, compiled, last = readings(memory_trio)
        cause = f"memory.stall_{level}_limit"
        assert total(first, inner, f"{cause}_count") > 100
        for column in first.tables[CGROUP].columns:
            before, compiled_total, after = (total(reading, inner, column) for reading in (first, compiled, last))
            if column.endswith("_ns"):
                assert compiled_total == alike(before, after), column
            elif column.endswith("_count"):
                assert before == compiled_total == after, column
        assert not any(compiled.lost.values())


def test_what_is_asked_for_is_no_stall(memory_trio: tuple[Memory, ...], tree: CgroupTree, hole: Path) -> None:
    with tree.make_cgroup("cache") as cache, tree.make_cgroup("asker") as asker:
        if not (cache.memory_dir / "memory.reclaim").exists():
            pytest.skip("this kernel has no memory.reclaim")
        assert python(cache, READ_TWICE, str(hole)) == 0
        python(asker, WRITE, str(cache.memory_dir / "memory.reclaim"), str(LIMIT_BYTES))
        assert python(asker, WRITE, "/proc/sys/vm/compact_memory", "1") == 0
        for reading in readings(memory_trio):
            assert sum(total(reading, asker, f"memory.stall_{cause}_count") for cause in MEMORY_CAUSES) == 0


def test_oom_kills_are_measured_alike(memory_trio: tuple[Memory, ...], tree: CgroupTree) -> None:
    with tree.make_cgroup("greedy") as greedy:
        greedy.set_memory_limit(LIMIT_BYTES)
        for _ in range(3):
            assert python(greedy, TAKE) < 0
        for reading in readings(memory_trio):
            assert total(reading, greedy, "memory.oom_kills") == 3


@pytest.fixture
def blockio_trio(bcc: None, host: Kernel, disk: Path) -> Iterator[tuple[BlockIo, BlockIo, BlockIo]]:
    first, compiled = BlockIo.open(host, ProbeLimits()), BccBlockIo.open(host, ProbeLimits())
    yield from opened(first, compiled, BlockIo.open(host, ProbeLimits()))


def transfer(cgroup: TestCgroup, disk: Path, way: str, count: int) -> subprocess.Popen[bytes]:
    ends = [f"if={disk}", "of=/dev/null", "iflag=direct"] if way == "read" else ["if=/dev/zero", f"of={disk}"]
    direct = [] if way == "read" else ["oflag=direct"]
    return cgroup.spawn(["dd", *ends, *direct, "bs=1M", f"count={count}", "status=none"])


def block_io_ns(reading: Reading, cgroup: TestCgroup) -> int:
    return sum(total(reading, cgroup, f"blockio.{part}_ns") for part in ("queue", "device"))


def test_block_io_is_measured_alike(
    blockio_trio: tuple[BlockIo, BlockIo, BlockIo], tree: CgroupTree, disk: Path, host: Kernel
) -> None:
    with tree.make_cgroup("reader") as reader, tree.make_cgroup("writer") as writer:
        running = [
            transfer(reader, disk, "read", 211),
            transfer(reader, disk, "read", 101),
            transfer(writer, disk, "write", 151),
        ]
        assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
        first, compiled, last = readings(blockio_trio)
        assert total(first, reader, "blockio.read_bytes") == 312 * MIB
        assert total(first, writer, "blockio.write_bytes") == 151 * MIB
        for cgroup in (reader, writer):
            for column in ("blockio.ios", "blockio.read_bytes", "blockio.write_bytes"):
                assert len({total(reading, cgroup, column) for reading in (first, compiled, last)}) == 1, column
            assert block_io_ns(compiled, cgroup) == alike(block_io_ns(first, cgroup), block_io_ns(last, cgroup))
            before, compiled_total, after = (
                total(reading, cgroup, "blockio.device_ns") for reading in (first, compiled, last)
            )
            assert compiled_total == alike(before, after)
            parts = [total(compiled, cgroup, f"blockio.{part}_ns") for part in ("queue", "excess", "self")]
            pairs = compiled.tables["blockio.blame"]
            blame = pairs.columns["blockio.blame_ns"][pairs.ids == cgroup.cgroup_id].sum()
            assert parts[0] + parts[1] == parts[2] + blame
        assert not any(compiled.lost.values())
        assert "blockio.throttle_ns" in host.refusals


def koordlet(hide: str, *arguments: str) -> dict[str, Any]:
    """JSON that the agent prints where `hide` (shell commands) has been done to a private view of the files."""
    command = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh", sys.executable, "-m", "koordlet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=840)
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(900)  # a probe to compile: an emulated machine on a busy host takes minutes
def test_without_btf_the_agent_picks_bcc_and_says_so(bcc: None, tmp_path: Path) -> None:
    settings = tmp_path / "koordlet.toml"
    settings.write_text('[probes]\ndisabled = ["memory", "blockio"]\n')
    rows = koordlet(HIDE_BTF, "doctor", "--config", str(settings), "--json")["capabilities"]
    found = {row["name"]: row for row in rows}
    assert found["btf"]["available"] is False
    assert found["cpu"]["available"] is True
    assert "compiled by BCC: the kernel offers no BTF" in found["cpu"]["reason"]
    assert not any(found[column]["available"] for column in UNMEASURED)
    assert found["irq"]["available"] is False


def test_bcc_can_be_forced(bcc: None, tmp_path: Path) -> None:
    settings = tmp_path / "koordlet.toml"
    settings.write_text('[probes]\nbackend = "bcc"\ndisabled = ["cpu", "blockio"]\n')
    rows = koordlet("true", "doctor", "--config", str(settings), "--json")["capabilities"]
    why = {row["name"]: row["reason"] for row in rows}
    assert "compiled by BCC as set" in why["memory"]
    assert not next(row["available"] for row in rows if row["name"] == HELD_BACK)
    assert "BCC compiles only" in why["irq"]


def test_with_neither_the_kernels_counters_remain(kernel: Kernel) -> None:
    found = koordlet(f"{HIDE_BTF} && {HIDE_HEADERS}", "snapshot", "--seconds", "1", "--json")
    refused = found["host"]["unsupported"]["cpu"]
    assert "no BTF" in refused
    assert "BCC" in refused
    root = next(row for row in found["cgroups"] if row["path"] == "/")
    assert root["cpu"]["wait_seconds"] is None
    assert root["cpu"]["oncpu_seconds"] is not None
    assert any(row["memory"] and row["memory"]["usage_bytes"] for row in found["cgroups"])
