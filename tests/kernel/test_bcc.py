"""What BCC compiles against the CO-RE programs: both watch the same load, and must tell the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from api.frame import CGROUP, Reading
from api.plugin import Unsupported
from probes.bcc import loader
from probes.bcc.cpu import UNTOLD, BccCpu
from probes.cpu import Cpu
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


@pytest.fixture
def bcc(kernel: Kernel) -> None:
    """Skips with the reason where BCC or the kernel's headers are missing."""
    try:
        loader.require()
        _ = kernel.btf
    except Unsupported as reason:
        pytest.skip(reason.reason)


@pytest.fixture
def cpu_pair(bcc: None, kernel: Kernel) -> Iterator[tuple[Cpu, Cpu]]:
    yield from opened(Cpu.open(kernel, ProbeLimits()), BccCpu.open(kernel, ProbeLimits()))


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


def nearly(amount: float) -> Any:
    return pytest.approx(amount, rel=TOLERANCE, abs=SLACK_NS)


def readings(pair: tuple[Probe, Probe]) -> tuple[Reading, Reading]:
    """Read both once the load is over, so that no moment of reading matters."""
    return pair[0].read(), pair[1].read()


def test_cpu_contention_is_told_alike(cpu_pair: tuple[Cpu, Cpu], tree: CgroupTree) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        running = [victim.spawn(BUSY, cpus=CPU), victim.spawn(BUSY, cpus=CPU), hog.spawn(BUSY, cpus=CPU)]
        for process in running:
            process.wait(timeout=60)
        core, compiled = readings(cpu_pair)
        assert total(core, victim, "cpu.wait_neighbour_ns") > 0.3 * BUSY_SECONDS * 1e9
        assert total(core, victim, "cpu.wait_self_ns") > 0.3 * BUSY_SECONDS * 1e9
        for column in core.tables[CGROUP].columns:
            if column in UNTOLD:
                assert column not in compiled.tables[CGROUP].columns
            elif column.endswith("_ns"):
                assert total(compiled, victim, column) == nearly(total(core, victim, column)), column
        for column in ("cpu.wait_count", "cpu.involuntary_switches"):
            assert total(compiled, victim, column) == pytest.approx(total(core, victim, column), rel=TOLERANCE, abs=2)
        assert blamed(compiled, "cpu", victim, hog) == nearly(blamed(core, "cpu", victim, hog))
        assert compiled.lost["cpu.task"] == 0


def test_cpu_wait_under_a_quota_is_of_unknown_cause(
    cpu_pair: tuple[Cpu, Cpu], tree: CgroupTree, kernel: Kernel
) -> None:
    with tree.make_cgroup("limited") as limited, limited.make_cgroup("worker") as worker:
        limited.set_cpu_quota(20_000, 100_000)
        readings(cpu_pair)
        worker.spawn(BUSY, cpus=CPU).wait(timeout=60)
        core, compiled = readings(cpu_pair)
        wait = total(core, worker, "cpu.wait_ns")
        assert total(core, worker, "cpu.wait_ancestor_quota_ns") > 0.5 * wait > 0.3 * BUSY_SECONDS * 1e9
        assert total(compiled, worker, "cpu.wait_ns") == nearly(wait)
        assert total(compiled, worker, "cpu.wait_unknown_ns") == total(compiled, worker, "cpu.wait_ns")
        assert set(UNTOLD) <= kernel.refusals.keys()


def koordlet(hide: str, *arguments: str) -> dict[str, Any]:
    """What the agent prints as JSON where `hide` (shell commands) has been done to a private view of the files."""
    command = ["unshare", "-m", "sh", "-c", f'{hide} && exec "$@"', "sh", sys.executable, "-m", "koordlet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_without_btf_the_agent_picks_bcc_and_says_so(bcc: None) -> None:
    found = {row["name"]: row for row in koordlet(HIDE_BTF, "doctor", "--json")["capabilities"]}
    assert found["btf"]["able"] is False
    assert found["cpu"]["able"] is True
    assert "compiled by BCC: the kernel offers no BTF" in found["cpu"]["why"]
    for column in UNTOLD:
        assert found[column]["able"] is False
    assert found["irq"]["able"] is False


def test_with_neither_the_kernels_counters_remain(kernel: Kernel) -> None:
    found = koordlet(f"{HIDE_BTF} && {HIDE_HEADERS}", "snapshot", "--seconds", "1", "--json")
    refused = found["host"]["unsupported"]["cpu"]
    assert "no BTF" in refused
    assert "BCC" in refused
    root = next(row for row in found["cgroups"] if row["path"] == "/")
    assert root["cpu"]["wait_seconds"] is None
    assert root["cpu"]["oncpu_seconds"] is not None
    assert any(row["memory"] and row["memory"]["usage_bytes"] for row in found["cgroups"])
