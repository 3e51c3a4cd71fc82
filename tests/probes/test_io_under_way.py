"""IO that does not end: its times while it grows, its culprits, and ends that went unseen."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from api.frame import OTHER_ID
from probes.blockio import DISK_RECORD, IO_RECORD, SEATS
from probes.io_under_way import UnderWay, weights_ahead

SECOND = 1_000_000_000
DISK = 7 << 20 | 3
VICTIM, FLOOD = 40, 50


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    (tmp_path / "7:3").mkdir()
    (tmp_path / "7:3" / "inflight").write_text("       1        0\n")
    return tmp_path


def io(queued_s: float, cgroup: int = VICTIM, **ahead: int) -> NDArray[Any]:
    record = np.zeros(1, dtype=IO_RECORD)
    record["queued_ns"], record["cgroup"], record["disk"] = int(queued_s * SECOND), cgroup, DISK
    for seat, count in ahead.items():
        record["ahead"][0, int(seat[1:])] = count
    return record


def state(ended_s: float = 0.0, moved_s: int = 1, **outstanding: int) -> Any:
    record = np.zeros(1, dtype=DISK_RECORD)[0]
    record["ended_ns"], record["moved_s"] = int(ended_s * SECOND), moved_s
    record["cgroups"][:2] = VICTIM, FLOOD
    for seat, count in outstanding.items():
        record["outstanding"][int(seat[1:])] = count
    return record


def test_an_io_beyond_its_first_second_costs_a_second_a_second(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    disks = {DISK: state(ended_s=10.0, moved_s=10, s0=1)}
    seen = []
    for second in range(10, 21):
        assert under_way.update(second * SECOND, io(10.0), disks) == []
        seen.append([row.excess_ns for row in under_way.rows.values()])
    assert seen == [[], [], *([number * SECOND] for number in range(1, 10))]
    (row,) = under_way.rows.values()
    assert row.self_ns == row.stalled_ns == 9 * SECOND


def test_a_disk_that_ends_others_is_not_stalled(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    for second in range(10, 21):
        under_way.update(second * SECOND, io(10.0), {DISK: state(ended_s=second - 0.1, moved_s=second)})
    (row,) = under_way.rows.values()
    assert (row.excess_ns, row.stalled_ns) == (9 * SECOND, 0)


def test_those_ahead_are_blamed_and_the_parts_sum(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    disks = {DISK: state(ended_s=10.0, moved_s=12, s0=2, s1=6)}
    assert under_way.update(12 * SECOND, io(10.0, s1=3), disks) == [(VICTIM, FLOOD, SECOND * 9 // 10)]
    (row,) = under_way.rows.values()
    assert row.self_ns + SECOND * 9 // 10 == row.excess_ns == SECOND


def test_an_io_that_others_have_overtaken_for_minutes_has_ended_unseen(sysfs: Path) -> None:
    """Nothing tells whether it still waits before that."""
    found = {}
    under_way = UnderWay(sysfs)
    for second in range(20, 161, 10):
        ends = under_way.unseen_ends(second * SECOND, io(10.0), {DISK: state(ended_s=second - 0.1, moved_s=second)})
        found[second] = (ends.rows.tolist(), ends.dead.tolist(), ends.disks)
    assert found[130] == ([False], [False], [])
    assert found[140] == ([True], [True], [DISK])
    assert found[150] == ([True], [True], [])


def test_a_disk_that_hangs_for_minutes_counts_all_the_time(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    for second in range(10, 401, 10):
        under_way.update(second * SECOND, io(10.0), {DISK: state(ended_s=10.0, moved_s=10)})
    (row,) = under_way.rows.values()
    assert row.excess_ns == row.stalled_ns == 389 * SECOND


def test_many_late_ios_count_as_each_alone(sysfs: Path) -> None:
    rng = np.random.default_rng(5)
    many = np.concatenate(
        [io(10.0 + rng.random(), int(rng.integers(40, 43)), s1=int(rng.integers(3))) for _ in range(300)]
    )
    disks = {DISK: state(ended_s=10.0, moved_s=12, s0=2, s1=6)}
    together, apart = UnderWay(sysfs), {}
    shares = together.update(15 * SECOND, many, disks)
    for each in many:
        alone = UnderWay(sysfs)
        alone.update(15 * SECOND, each.reshape(1), disks)
        for key, row in alone.rows.items():
            sums = apart.setdefault(key, [0, 0, 0])
            for place, amount in enumerate((row.excess_ns, row.self_ns, row.stalled_ns)):
                sums[place] += amount
    for key, row in together.rows.items():
        assert [row.excess_ns, row.stalled_ns] == [apart[key][0], apart[key][2]]
        assert row.self_ns == pytest.approx(apart[key][1], abs=2_000)  # shares are rounded down
        assert row.self_ns + sum(ns for victim, _, ns in shares if victim == key[0]) == row.excess_ns
    assert len(shares) < 50


def test_disks_that_the_kernel_lists_no_more_are_gone(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    numbers = np.array([DISK, 7 << 20 | 4], dtype=np.uint32)
    assert under_way.gone(numbers).tolist() == [False, True]
    assert UnderWay(sysfs / "absent").gone(numbers).tolist() == [False, False]


def test_a_seat_taken_since_is_not_named(sysfs: Path) -> None:
    disk = state(moved_s=10, s1=6)
    disk["owner_ns"][1] = 11 * SECOND
    assert weights_ahead(io(10.0)[0], disk, 12 * SECOND) == {OTHER_ID: 6}


def test_counts_that_do_not_move_are_mistaken(sysfs: Path) -> None:
    assert weights_ahead(io(10.0)[0], state(moved_s=10, s1=6), 40 * SECOND) == {}


def test_an_io_whose_disk_was_idle_since_it_came_has_ended_unseen(sysfs: Path) -> None:
    """Also when others are in flight later; the counts of its disk are corrected once."""
    under_way, inflight, disks = UnderWay(sysfs), sysfs / "7:3" / "inflight", {DISK: state()}
    ios = np.concatenate([io(10.0, s1=3), io(19.5)])
    ends = under_way.unseen_ends(20 * SECOND, ios, disks)
    assert (ends.rows.tolist(), ends.disks) == ([False, False], [])
    inflight.write_text("       0        0\n")
    ends = under_way.unseen_ends(20 * SECOND, ios, disks)
    assert (ends.rows.tolist(), ends.dead.tolist(), ends.disks) == ([True, False], [False, False], [DISK])
    inflight.write_text("       1        0\n")
    ends = under_way.unseen_ends(21 * SECOND, ios, disks)
    assert (ends.rows.tolist(), ends.disks) == ([True, False], [])
    assert under_way.unseen_ends(131 * SECOND, ios, disks).dead.tolist() == [True, False]
    inflight.write_text("       0        0\n")
    ends = under_way.unseen_ends(132 * SECOND, ios, disks)
    assert (ends.rows.tolist(), ends.disks) == ([True, True], [DISK])


def test_a_disk_that_has_ended_nothing_since_it_was_idle_stalls_by_itself(sysfs: Path) -> None:
    disk = state(ended_s=9.0, moved_s=10, s1=6)
    disk["busy_ns"] = int(9.9 * SECOND)
    assert weights_ahead(io(10.0, s1=2)[0], disk, 12 * SECOND) == {}
    disk["ended_ns"] = int(10.1 * SECOND)
    assert weights_ahead(io(10.0, s1=2)[0], disk, 12 * SECOND) == {FLOOD: 8}


def test_disks_without_requests_and_held_ios_do_not_count(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    under_way.update(20 * SECOND, io(10.0), {})
    under_way.update(21 * SECOND, io(0.0), {DISK: state()})
    assert not under_way.rows


def test_a_gone_cgroup_is_forgotten(sysfs: Path) -> None:
    under_way = UnderWay(sysfs)
    under_way.update(20 * SECOND, np.concatenate([io(10.0), io(10.0, FLOOD)]), {DISK: state()})
    under_way.forget(np.array([VICTIM], dtype=np.uint64))
    assert list(under_way.rows) == [(FLOOD, DISK)]


def test_seats_are_those_of_the_record() -> None:
    assert IO_RECORD["ahead"].shape == (SEATS + 1,)
