"""A focus on some cgroups: they are counted as before, the others have no row, and no time is charged wrongly."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from api.frame import CgroupInfo, Frame, Reading, merge
from api.window import Window
from probes.pmu import Pmu
from probes.probe import Kernel, ProbeLimits
from probes.shared_maps import shards_of_machine
from tests.cgroups import CgroupTree, TestCgroup
from tests.kernel.test_pmu import PAGES, TOUCH_SETUP
from tests.stepper import Stepper

pytestmark = pytest.mark.kernel


@pytest.fixture
def probe(kernel: Kernel) -> Iterator[Pmu]:
    opened = Pmu.open(kernel, ProbeLimits(max_cgroups=1024, options={"pmu": {"stand_in": True}}))
    yield opened
    opened.close()


def ids(*cgroups: TestCgroup) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array([cgroup.cgroup_id for cgroup in cgroups], dtype=np.uint64)


def faults(reading: Reading, cgroup: TestCgroup) -> float | None:
    """Minor faults of the cgroup so far; None where it has no row."""
    table = reading.tables.get("cgroup")
    rows = np.flatnonzero(table.ids == cgroup.cgroup_id) if table else []
    return float(table.columns["pmu.llc_references"][rows[0]]) if table and len(rows) else None


def test_who_is_in_the_focus_is_counted_exactly_and_nobody_else(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("focus-in") as inside, tree.make_cgroup("focus-out") as outside:
        children = [Stepper(each, 0, "touch()", TOUCH_SETUP) for each in (inside, outside)]
        probe.focus(ids(inside))
        for _ in range(20):
            first = probe.read()
            for child in children:
                child.step()
            last = probe.read()
            if last.lost == first.lost:
                break
        before, after = faults(first, inside), faults(last, inside)
        assert before is not None
        assert after is not None
        assert after - before == PAGES
        assert faults(last, outside) is None
        assert last.tables["cgroup"].columns["pmu.cycles"].dtype == np.float64


def test_with_nobody_in_the_focus_no_program_runs_and_no_column_is_there(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("focus-none") as cgroup:
        child = Stepper(cgroup, 0, "touch()", TOUCH_SETUP)
        probe.focus(ids())
        lost = probe.read().lost
        child.step()
        reading = probe.read()
        assert "cgroup" not in reading.tables
        assert reading.lost == lost
        probe.focus(ids(cgroup))
        for _ in range(20):
            first, _, last = probe.read(), child.step(), probe.read()
            if first.lost == last.lost:
                break
        before, after = faults(first, cgroup), faults(last, cgroup)
        assert before is not None
        assert after is not None
        assert after - before == PAGES


def test_who_left_the_focus_takes_no_room_and_counts_from_zero_when_it_is_back(
    kernel: Kernel, tree: CgroupTree
) -> None:
    probe = Pmu.open(kernel, ProbeLimits(max_cgroups=2, options={"pmu": {"stand_in": True}}))
    try:
        with contextlib.ExitStack() as stack:
            cgroups = [stack.enter_context(tree.make_cgroup(f"focus-room-{number}")) for number in range(4)]
            for cgroup in (*cgroups, *cgroups):
                probe.focus(ids(cgroup))
                Stepper(cgroup, 0, "touch()", TOUCH_SETUP)
                counted = faults(probe.read(), cgroup)
                assert counted is not None, "there was no room"
                assert 0 < counted < 20 * PAGES
    finally:
        probe.close()


@pytest.mark.xfail(
    bool(shards_of_machine()), reason="not understood yet: with 255 possible CPUs much of it is called unseen"
)
def test_time_out_of_the_focus_is_not_called_unseen(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("focus-later") as cgroup, tree.make_cgroup("focus-other") as other:
        spinning = Stepper(cgroup, 0, "[touch() for _ in range(60)]", TOUCH_SETUP)
        probe.focus(ids(other))
        before, ran_before_ns = probe.read().lost["pmu.unseen_ns"], spinning.run_ns
        spinning.start()
        for _ in range(20):
            probe.focus(ids(cgroup))
            probe.focus(ids(other))
        spinning.finish()
        unseen_ns, ran_ns = probe.read().lost["pmu.unseen_ns"] - before, spinning.run_ns - ran_before_ns
    assert unseen_ns < max(50_000_000, 0.1 * ran_ns), "some kernels hide a switch now and then, but not all of the time"


def test_no_counter_falls_or_leaps_while_the_focus_moves(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("focus-a") as one, tree.make_cgroup("focus-b") as other:
        children = [Stepper(each, 0, "touch()", TOUCH_SETUP) for each in (one, other)]
        all_ids = np.sort(ids(one, other))
        infos = tuple(CgroupInfo(int(identity), f"/{identity}", "") for identity in all_ids)
        frames: list[Frame] = []
        for focus in (None, ids(one), ids(other), ids(), ids(one), None, None):
            probe.focus(focus)
            for child in children:
                child.step()
            tables, lost = merge(all_ids, [probe.read()])
            frames.append(Frame(len(frames) * 10**9, 0, infos, tables, lost))
            if len(frames) < 2:
                continue
            delta = Window(frames[-2:]).delta()
            assert delta.resets == 0
            grown = delta.table.columns.get("pmu.llc_references")
            if grown is not None:
                known = grown[np.isfinite(grown)]
                assert ((known >= 0) & (known <= 2 * PAGES)).all(), grown


def test_back_to_everybody_counts_go_on(probe: Pmu, tree: CgroupTree) -> None:
    with tree.make_cgroup("focus-back") as cgroup:
        child = Stepper(cgroup, 0, "touch()", TOUCH_SETUP)
        probe.focus(ids())
        child.step()
        probe.focus(None)
        reading = probe.read()
        assert reading.tables["cgroup"].columns["pmu.cycles"].dtype == np.float64
        child.step()
        for _ in range(20):
            first, _, last = probe.read(), child.step(), probe.read()
            if first.lost == last.lost:
                break
        assert faults(last, cgroup) == (faults(first, cgroup) or 0) + PAGES
