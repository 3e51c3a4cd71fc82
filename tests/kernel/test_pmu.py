"""Software events through the plumbing of the hardware: faults, time and switches as the kernel itself counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from api.plugin import Unsupported
from probes.pmu import Pmu
from probes.pmu_events import STAND_IN, UNKNOWN
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.stepper import Stepper

pytestmark = pytest.mark.kernel

PAGES = 1009
TOUCH_SETUP = f"""
import mmap
def touch():
    area = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range({PAGES}):
        area[page * mmap.PAGESIZE] = 1
    area.close()
"""
SPIN_SETUP = """
import time
def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""


@pytest.fixture
def probe(kernel: Kernel) -> Iterator[Pmu]:
    opened = Pmu.open(kernel, ProbeLimits(max_cgroups=64, options={"pmu": {"stand_in": True}}))
    yield opened
    opened.close()


def _column(probe: Pmu, column: str, cgroup: TestCgroup) -> int:
    table = probe.read().tables["cgroup"]
    rows = (table.ids == cgroup.cgroup_id).nonzero()[0]
    return int(table.columns[column][rows[0]]) if len(rows) else 0


def test_a_prime_number_of_page_faults_is_counted_exactly(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-faults") as cgroup:
        child = Stepper(cgroup, 0, "touch()", TOUCH_SETUP)
        kernel_before, before = child.minor_faults, _column(probe, "pmu.llc_references", cgroup)
        child.step()
        counted = _column(probe, "pmu.llc_references", cgroup) - before
        assert counted == child.minor_faults - kernel_before
        assert counted == PAGES


def test_two_cgroups_on_one_cpu_get_their_own_faults(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-one") as one, tree.make_cgroup("pmu-two") as two:
        children = {one: Stepper(one, 0, "touch()", TOUCH_SETUP), two: Stepper(two, 0, "touch(); touch()", TOUCH_SETUP)}
        before = {cgroup: _column(probe, "pmu.llc_references", cgroup) for cgroup in children}
        for child in children.values():
            child.start()
        for child in children.values():
            child.finish()
        assert _column(probe, "pmu.llc_references", one) - before[one] == PAGES
        assert _column(probe, "pmu.llc_references", two) - before[two] == 2 * PAGES


def test_time_on_the_cpu_agrees_with_the_scheduler(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-time") as cgroup:
        child = Stepper(cgroup, 1, "spin(0.2)", SPIN_SETUP)
        kernel_before, before = child.run_ns, _column(probe, "pmu.cycles", cgroup)
        child.step()
        ran = child.run_ns - kernel_before
        assert _column(probe, "pmu.cycles", cgroup) - before == pytest.approx(ran, rel=0.05)
        assert _column(probe, "pmu.running_ns", cgroup) <= _column(probe, "pmu.enabled_ns", cgroup)


def test_a_slice_that_does_not_end_is_charged_at_each_read(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-slice") as cgroup:
        child = Stepper(cgroup, 1, "spin(0.6)", SPIN_SETUP)
        child.start()
        readings = []
        for _ in range(4):
            time.sleep(0.1)
            readings.append((child.run_ns, _column(probe, "pmu.cycles", cgroup)))
        child.finish()
        ran, counted = (readings[-1][side] - readings[0][side] for side in (0, 1))
        assert ran > 100_000_000
        assert counted == pytest.approx(ran, rel=0.15)  # the scheduler's own count is as old as its last tick


def test_switches_into_a_cgroup_are_counted(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-switches") as cgroup:
        child = Stepper(cgroup, 0, "[time.sleep(1e-3) for _ in range(211)]", "import time")
        kernel_before, before = child.switches, _column(probe, "pmu.llc_misses", cgroup)
        child.step()
        switched = child.switches - kernel_before
        assert switched >= 211
        assert _column(probe, "pmu.llc_misses", cgroup) - before == switched


def test_gone_cgroups_are_forgotten(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-gone") as cgroup:
        Stepper(cgroup, 0, "pass").step()
        identity = cgroup.cgroup_id
        assert identity in probe.read().tables["cgroup"].ids
    ids = probe.read().tables["cgroup"].ids
    probe.forget(ids[ids == identity])
    assert identity not in probe.read().tables["cgroup"].ids
    assert not any(probe.read().lost.values())


def test_the_kernel_holds_the_events_and_no_descriptor_stays(probe: Pmu) -> None:
    probe.read()
    links = [
        os.readlink(f"/proc/self/fd/{fd}")
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    ]
    assert "anon_inode:bpf-map" in links
    assert "anon_inode:[perf_event]" not in links


def test_quantities_without_an_event_have_no_column(kernel: Kernel) -> None:
    probe = Pmu.open_events(kernel, ProbeLimits(), replace(STAND_IN, llc_references=None, llc_misses=None))
    try:
        columns = set(probe.read().tables["cgroup"].columns)
    finally:
        probe.close()
    assert columns == {"pmu.cycles", "pmu.instructions", "pmu.enabled_ns", "pmu.running_ns"}


def test_without_a_pmu_the_reason_is_told(kernel: Kernel) -> None:
    try:
        probe = Pmu.open_events(kernel, ProbeLimits(), UNKNOWN)
    except Unsupported as refusal:
        assert "cycle" in refusal.reason
        assert refusal.remedy
    else:
        time.sleep(0.1)
        assert int(probe.read().tables["cgroup"].columns["pmu.cycles"].sum()) > 0
        probe.close()
