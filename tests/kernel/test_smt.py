"""CPU 0 and CPU 1 are declared siblings; the overlap of two cgroups is bounded from both sides by their run times.

Two that run `a` and `b` ns within `wall` ns overlap for at least a + b - wall and at most min(a, b): the bounds hold on
a busy machine, and are tight on a quiet one. Time that the probe itself reports as unseen widens them: some kernels
hide switches.
"""

import os
import time
from collections.abc import Iterator

import numpy as np
import pytest

from api.frame import Reading
from api.plugin import Unsupported
from probes.probe import Kernel, ProbeLimits
from probes.smt import Smt
from tests.cgroups import CgroupTree, TestCgroup
from tests.stepper import SPIN_SETUP, Stepper
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

SLACK_NS = 12_000_000  # the scheduler counts a running task once a tick


@pytest.fixture
def probe(kernel: Kernel) -> Iterator[Smt]:
    if (os.cpu_count() or 1) < 2:
        pytest.fail("two CPUs are needed to declare siblings")
    opened = Smt.open(kernel, ProbeLimits(options={"smt": {"siblings": "0-1"}}))
    yield opened
    opened.close()


def _met(reading: Reading, victim: TestCgroup, culprit: TestCgroup) -> int:
    blame = reading.tables["smt.blame"]
    rows = (blame.ids == victim.cgroup_id) & (blame.keys["culprit"] == culprit.cgroup_id)
    return int(blame.columns["smt.blame_ns"][rows].sum())


def _foreign(reading: Reading, victim: TestCgroup) -> int:
    table = reading.tables["cgroup"]
    return int(table.columns["cpu.smt_foreign_ns"][table.ids == victim.cgroup_id].sum())


class Stretch:
    """Run times of two children, and the probe's figures, between two readings."""

    def __init__(self, probe: Smt, one: tuple[TestCgroup, Stepper], other: tuple[TestCgroup, Stepper]) -> None:
        self._probe, self._one, self._other = probe, one, other
        self._first = self._now()

    def _now(self) -> tuple[int, ...]:
        wall = time.monotonic_ns()
        ran = self._one[1].run_ns, self._other[1].run_ns
        reading = self._probe.read()
        met = _met(reading, self._one[0], self._other[0]), _met(reading, self._other[0], self._one[0])
        return (wall, *ran, *met, reading.lost["smt.unseen_ns"])

    def end(self) -> tuple[int, int, int]:
        """Least and most that the two can have overlapped, and what was measured (the same from both sides)."""
        grown = (now - first for now, first in zip(self._now(), self._first, strict=True))
        wall, one, other, there, back, unseen = grown
        assert there == back
        slack = SLACK_NS + unseen
        return one + other - wall - slack, min(one, other) + slack, there

    def step_side_by_side(self) -> None:
        """One step of both at once, for as long as they were measured to overlap."""
        for _, child in (self._one, self._other):
            child.start()
        for _, child in (self._one, self._other):
            child.finish()
        least, most, met = self.end()
        assert least <= met <= most
        assert met > 20_000_000


def test_two_cgroups_side_by_side_meet_for_as_long_as_both_run(probe: Smt, tree: CgroupTree) -> None:
    with tree.make_cgroup("smt-one") as one, tree.make_cgroup("smt-other") as other:
        children = (one, Stepper(one, 0, "spin(0.3)", SPIN_SETUP)), (other, Stepper(other, 1, "spin(0.3)", SPIN_SETUP))
        stretch = Stretch(probe, *children)
        stretch.step_side_by_side()


def test_short_visits_are_charged_to_one_who_never_switches(probe: Smt, tree: CgroupTree) -> None:
    with tree.make_cgroup("smt-long") as long, tree.make_cgroup("smt-short") as short:
        steady = Stepper(long, 0, "spin(0.5)", SPIN_SETUP)
        visitor = Stepper(short, 1, "[(spin(0.001), time.sleep(0.001)) for _ in range(101)]", SPIN_SETUP)
        steady.start()
        stretch = Stretch(probe, (long, steady), (short, visitor))
        visitor.step()
        least, most, met = stretch.end()
        steady.finish()
        assert least <= met <= most
        assert met > 5_000_000


def test_a_meeting_that_goes_on_is_charged_at_each_read(probe: Smt, tree: CgroupTree) -> None:
    with tree.make_cgroup("smt-a") as one, tree.make_cgroup("smt-b") as other:
        children = (one, Stepper(one, 0, "spin(0.8)", SPIN_SETUP)), (other, Stepper(other, 1, "spin(0.8)", SPIN_SETUP))
        for _, child in children:
            child.start()
        met: list[int] = []

        def has_grown() -> bool:
            met.append(_met(probe.read(), one, other))
            return met[-1] - met[0] > 150_000_000

        wait_for(has_grown, interval_seconds=0.08)
        for _, child in children:
            child.finish()
        assert met == sorted(met)


def test_one_cgroup_on_both_threads_is_not_foreign_to_itself(probe: Smt, tree: CgroupTree) -> None:
    with tree.make_cgroup("smt-both") as both:
        children = [Stepper(both, cpu, "spin(0.3)", SPIN_SETUP) for cpu in (0, 1)]
        wall, ran = time.monotonic_ns(), sum(child.run_ns for child in children)
        first = probe.read()
        for child in children:
            child.start()
        for child in children:
            child.finish()
        last = probe.read()
        unseen = last.lost["smt.unseen_ns"] - first.lost["smt.unseen_ns"]
        others_ran = 2 * (time.monotonic_ns() - wall) - (sum(child.run_ns for child in children) - ran)
        assert _foreign(last, both) - _foreign(first, both) <= others_ran + unseen + SLACK_NS
        assert _met(last, both, both) == 0


def test_the_column_is_the_sum_of_the_culprits_and_losses_are_counted(probe: Smt, tree: CgroupTree) -> None:
    with tree.make_cgroup("smt-sum") as one, tree.make_cgroup("smt-sum-other") as other:
        children = [Stepper(one, 0, "spin(0.1)", SPIN_SETUP), Stepper(other, 1, "spin(0.1)", SPIN_SETUP)]
        for child in children:
            child.start()
        for child in children:
            child.finish()
        reading = probe.read()
        blame = reading.tables["smt.blame"]
        rows = blame.ids == one.cgroup_id
        assert _foreign(reading, one) == int(blame.columns["smt.blame_ns"][rows].sum()) > 0
        assert reading.lost["smt.pair_ns"] == 0


def test_with_nobody_in_the_focus_nothing_is_reported_and_the_pause_is_nobodys(probe: Smt, tree: CgroupTree) -> None:
    with tree.make_cgroup("smt-pause-a") as one, tree.make_cgroup("smt-pause-b") as other:
        children = (one, Stepper(one, 0, "spin(0.3)", SPIN_SETUP)), (other, Stepper(other, 1, "spin(0.3)", SPIN_SETUP))
        before = _met(probe.read(), one, other)
        probe.focus(np.empty(0, dtype=np.uint64))
        assert not probe.read().tables
        for _, child in children:
            child.start()
        for _, child in children:
            child.finish()
        assert not probe.read().tables
        probe.focus(np.array([one.cgroup_id], dtype=np.uint64))
        assert _met(probe.read(), one, other) == before
        stretch = Stretch(probe, *children)
        stretch.step_side_by_side()


def test_the_topology_of_this_host_is_read(kernel: Kernel) -> None:
    """Where the host has siblings the probe opens on them; elsewhere it is Unsupported with a reason."""
    try:
        probe = Smt.open(kernel, ProbeLimits())
    except Unsupported as refusal:
        assert "hardware thread" in refusal.reason
    else:
        time.sleep(0.1)
        blame = probe.read().tables["smt.blame"]
        assert not np.any(blame.ids == blame.keys["culprit"])
        probe.close()
