"""Software events through the plumbing of the hardware: faults, time and switches as the kernel itself counts them."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import pytest

from api.frame import Reading
from api.plugin import Unsupported
from probes.pmu import Pmu
from probes.pmu_events import STAND_IN, UNKNOWN, PerfEvent
from probes.probe import Kernel, ProbeLimits
from tests.cgroups import CgroupTree, TestCgroup
from tests.stepper import SPIN_SETUP, Stepper

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


@pytest.fixture(scope="module")
def probe(module_kernel: Kernel) -> Iterator[Pmu]:
    opened = Pmu.open(module_kernel, ProbeLimits(max_cgroups=2048, options={"pmu": {"stand_in": True}}))
    yield opened
    opened.close()


def _value(reading: Reading, column: str, cgroup: TestCgroup) -> int:
    table = reading.tables["cgroup"]
    return int(table.columns[column][table.ids == cgroup.cgroup_id].sum())


class Step(NamedTuple):
    """One step of a child process, by the kernel's counts and by the probe's."""

    faults: int
    run_ns: int
    switches: int
    counted: dict[str, int]


def _step(probe: Pmu, cgroup: TestCgroup, child: Stepper) -> Step:
    """Measure steps until the probe saw every switch of one (some kernels hide some)."""
    for _ in range(20):
        faults, run_ns, switches, first = child.minor_faults, child.run_ns, child.switches, probe.read()
        child.step()
        last = probe.read()
        if last.lost == first.lost:
            grown = {
                name: _value(last, name, cgroup) - _value(first, name, cgroup)
                for name in ("pmu.cycles", "pmu.llc_references", "pmu.llc_misses", "pmu.enabled_ns", "pmu.running_ns")
            }
            return Step(child.minor_faults - faults, child.run_ns - run_ns, child.switches - switches, grown)
    raise AssertionError("in none of 20 steps were all switches seen")


def test_a_prime_number_of_page_faults_is_counted_exactly(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-faults") as cgroup:
        step = _step(probe, cgroup, Stepper(cgroup, 0, "touch()", TOUCH_SETUP))
        assert step.counted["pmu.llc_references"] == step.faults == PAGES


def test_two_cgroups_on_one_cpu_get_their_own_faults(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-one") as one, tree.make_cgroup("pmu-two") as two:
        children = {one: Stepper(one, 0, "touch()", TOUCH_SETUP), two: Stepper(two, 0, "touch(); touch()", TOUCH_SETUP)}
        for _ in range(20):
            first = probe.read()
            for child in children.values():
                child.start()
            for child in children.values():
                child.finish()
            last = probe.read()
            if last.lost == first.lost:
                break
        grown = [_value(last, "pmu.llc_references", c) - _value(first, "pmu.llc_references", c) for c in children]
        assert grown == [PAGES, 2 * PAGES]


def test_time_on_the_cpu_agrees_with_the_scheduler(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-time") as cgroup:
        step = _step(probe, cgroup, Stepper(cgroup, 0, "spin(0.1)", SPIN_SETUP))
        assert step.run_ns > 90_000_000
        for column in ("pmu.cycles", "pmu.enabled_ns"):
            assert step.counted[column] == pytest.approx(step.run_ns, rel=0.05)
        assert step.counted["pmu.running_ns"] == step.counted["pmu.enabled_ns"]


def test_a_slice_that_does_not_end_is_charged_at_each_read(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-slice") as cgroup:
        child = Stepper(cgroup, 0, "spin(0.6)", SPIN_SETUP)
        child.start()
        readings = []
        for _ in range(4):
            time.sleep(0.1)
            began_ns = time.monotonic_ns()
            readings.append((child.run_ns, probe.read(), time.monotonic_ns() - began_ns))
        child.finish()
        (ran_before, first, first_took_ns), (ran_after, last, last_took_ns) = readings[0], readings[-1]
        counted = _value(last, "pmu.cycles", cgroup) - _value(first, "pmu.cycles", cgroup)
        unseen = last.lost["pmu.unseen_ns"] - first.lost["pmu.unseen_ns"]
        tick_ns = 12_000_000  # the scheduler counts a running task once a tick
        assert abs(counted - (ran_after - ran_before)) <= 2 * tick_ns + unseen + max(first_took_ns, last_took_ns)
        assert counted > 50_000_000


def test_switches_into_a_cgroup_are_counted(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("pmu-switches") as cgroup:
        step = _step(probe, cgroup, Stepper(cgroup, 0, "[time.sleep(1e-4) for _ in range(211)]", "import time"))
        assert step.counted["pmu.llc_misses"] == step.switches >= 211


def test_gone_cgroups_are_forgotten(probe: Pmu, tree: CgroupTree) -> None:
    lost = dict(probe.read().lost)
    with tree.make_cgroup("pmu-gone") as cgroup:
        Stepper(cgroup, 0, "pass").step()
        identity = cgroup.cgroup_id
        assert identity in probe.read().tables["cgroup"].ids
    ids = probe.read().tables["cgroup"].ids
    probe.forget(ids[ids == identity])
    assert identity not in probe.read().tables["cgroup"].ids
    assert probe.read().lost | {"pmu.unseen_ns": 0} == lost | {"pmu.unseen_ns": 0}


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


def test_an_event_the_host_refuses_has_no_column_and_the_others_count(kernel: Kernel, tree: CgroupTree) -> None:
    no_such_pmu = PerfEvent(9999, 0)
    probe = Pmu.open_events(kernel, ProbeLimits(), replace(STAND_IN, llc_misses=no_such_pmu))
    try:
        with tree.make_cgroup("pmu-part") as cgroup:
            Stepper(cgroup, 0, "touch()", TOUCH_SETUP).step()
            columns = probe.read().tables["cgroup"].columns
    finally:
        probe.close()
    assert "pmu.llc_misses" not in columns
    assert int(columns["pmu.llc_references"].sum()) > 0


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
