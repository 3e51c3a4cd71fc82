"""Interrupt time: vectors against the kernel's own counts, cgroups against vectors, idle against no cgroup."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from api.frame import CGROUP, Reading
from probes.irq import VECTORS, Irq
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.kernel.loads import FLOOD

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def probe(module_kernel: Kernel) -> Iterator[Irq]:
    opened = Irq.open(module_kernel, ProbeLimits())
    yield opened
    opened.close()


@pytest.fixture
def victim(tree: CgroupTree, probe: Irq) -> Iterator[TestCgroup]:
    with tree.make_cgroup("victim") as cgroup:
        yield cgroup


def flood(cgroup: TestCgroup, seconds: float) -> None:
    assert cgroup.spawn([sys.executable, "-c", FLOOD, str(seconds)]).wait() == 0


def softirq_counts() -> dict[str, int]:
    """Soft interrupts since boot, by vector, as the kernel counts them."""
    rows = [line.split() for line in Path("/proc/softirqs").read_text().splitlines()[1:]]
    return {row[0].rstrip(":").lower(): sum(map(int, row[1:])) for row in rows}


def vector(reading: Reading, field: str) -> dict[str, int]:
    table = reading.tables["irq.vector"]
    values = np.asarray(table.columns[f"irq.vector_{field}"]).tolist()
    return dict(zip(table.keys["vector"].tolist(), values, strict=True))


def of_cgroup(reading: Reading, cgroup: TestCgroup, column: str) -> int:
    table = reading.tables[CGROUP]
    return int(np.asarray(table.columns[column])[table.ids == cgroup.cgroup_id].sum())


def test_vectors_are_named_as_the_kernel_names_them() -> None:
    kernel_names = list(softirq_counts())
    assert list(VECTORS[: len(kernel_names)]) == kernel_names


def test_soft_interrupts_are_counted_exactly(probe: Irq, victim: TestCgroup) -> None:
    outer_before = softirq_counts()
    before = vector(probe.read(), "count")
    inner_before = softirq_counts()
    flood(victim, 0.3)
    inner_after = softirq_counts()
    after = vector(probe.read(), "count")
    outer_after = softirq_counts()
    for name in ("net_rx", "timer", "sched"):
        counted = after[name] - before[name]
        # A soft interrupt is counted on entry by the kernel and on exit here: each CPU can be inside one.
        slack = os.cpu_count() or 1
        assert inner_after[name] - inner_before[name] - slack <= counted
        assert counted <= outer_after[name] - outer_before[name] + slack
    assert after["net_rx"] - before["net_rx"] > 1000


def test_cgroups_and_vectors_tell_the_same_loss(probe: Irq, victim: TestCgroup) -> None:
    lost = probe.read().lost
    flood(victim, 0.3)
    first, second = probe.read(), probe.read()
    hard_kinds = ("hard", "local_timer")
    stolen = vector(first, "stolen_ns")
    for column, kinds in (
        ("cpu.irq_ns", hard_kinds),
        ("cpu.softirq_ns", tuple(name for name in VECTORS if name not in hard_kinds)),
    ):
        low, high = (int(np.asarray(r.tables[CGROUP].columns[column]).sum()) for r in (first, second))
        assert low <= sum(stolen[name] for name in kinds) <= high
    assert second.lost == lost


def test_the_interrupted_cgroup_loses_and_the_sleeping_one_does_not(
    probe: Irq, tree: CgroupTree, victim: TestCgroup
) -> None:
    with tree.make_cgroup("sleeper") as sleeper:
        sleeping = sleeper.spawn(["sleep", "60"])
        while "nanosleep" not in Path(f"/proc/{sleeping.pid}/wchan").read_text():
            time.sleep(0.01)
        started, began_ns = probe.read(), time.monotonic_ns()
        flood(victim, 0.5)
        reading, passed_ns = probe.read(), time.monotonic_ns() - began_ns
        lost = of_cgroup(reading, victim, "cpu.softirq_ns")
        assert 5_000_000 < lost < passed_ns
        slept = of_cgroup(reading, sleeper, "cpu.softirq_ns") - of_cgroup(started, sleeper, "cpu.softirq_ns")
        assert slept < lost / 100


def test_totals_are_of_the_order_the_kernel_samples(probe: Irq, victim: TestCgroup) -> None:
    def kernel_seconds() -> float:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return (int(fields[6]) + int(fields[7])) / os.sysconf("SC_CLK_TCK")

    began, before, ours_before = time.monotonic(), kernel_seconds(), sum(vector(probe.read(), "ns").values())
    flood(victim, 1.5)
    kernels, wall = kernel_seconds() - before, time.monotonic() - began
    ours = (sum(vector(probe.read(), "ns").values()) - ours_before) / 1e9
    assert 0.4 * kernels - 0.1 <= ours <= 2.5 * kernels + 0.1  # the kernel charges whole ticks
    assert ours < wall * (os.cpu_count() or 1)
