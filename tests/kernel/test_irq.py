"""Interrupt time: vectors against the kernel's own counts, cgroups against vectors, idle against no cgroup."""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from api.frame import CGROUP, Reading
from probes.irq import VECTORS, Irq
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.kernel.loads import FLOOD
from tests.tracepoints import Record, recorded_on_host

pytestmark = pytest.mark.kernel

INTERRUPTS = (
    *(f"irq/{name}" for name in ("irq_handler_entry", "irq_handler_exit", "softirq_entry", "softirq_exit")),
    "irq_vectors/local_timer_entry",
    "irq_vectors/local_timer_exit",
)


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


def test_totals_are_what_the_kernels_tracer_records(probe: Irq, victim: TestCgroup) -> None:
    """The probe comes first at both ends: it counts the tracer's work at the beginning, not its own at the end."""
    with recorded_on_host(*INTERRUPTS) as hits:
        before, began_ns = sum(vector(probe.read(), "ns").values()), time.monotonic_ns()
        flood(victim, 0.1)
        ours, ended_ns = sum(vector(probe.read(), "ns").values()) - before, time.monotonic_ns()
        traced = traced_ns([hit for hit in hits() if began_ns <= hit.at_ns <= ended_ns])
    assert 0.75 * traced <= ours <= 1.25 * traced


def traced_ns(hits: list[Record]) -> int:
    """Return the time inside of interrupts; one that is interrupted by another counts once."""
    total_ns, depth, since_ns = 0, Counter[int](), dict[int, int]()
    for hit in hits:
        if hit.name.endswith("_entry"):
            since_ns = since_ns if depth[hit.cpu] else since_ns | {hit.cpu: hit.at_ns}
            depth[hit.cpu] += 1
        elif depth[hit.cpu]:
            depth[hit.cpu] -= 1
            total_ns += 0 if depth[hit.cpu] else hit.at_ns - since_ns[hit.cpu]
    return total_ns
