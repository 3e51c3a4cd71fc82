"""Block IO rows summed by cgroup, and IOs in flight found their row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.blockio import IO_RECORD, KEY_RECORD, STATS_RECORD, SUMS, by_cgroup, by_device, with_under_way
from probes.io_under_way import Row

KEYS = np.array([(7, 1 << 20), (5, 1 << 20), (7, 2 << 20)], dtype=KEY_RECORD)


def stats(*queue_ns: int) -> NDArray[Any]:
    rows = np.zeros(len(queue_ns), dtype=STATS_RECORD)
    rows["queue_ns"] = queue_ns
    rows["queue_hist"][:, 3] = 1
    return rows


def ios(*where: tuple[int, int, int]) -> NDArray[Any]:
    rows = np.zeros(len(where), dtype=IO_RECORD)
    for row, (cgroup, disk, queued_ns) in enumerate(where):
        rows[row]["cgroup"], rows[row]["disk"], rows[row]["queued_ns"] = cgroup, disk, queued_ns
    return rows


def test_disks_of_a_cgroup_are_summed() -> None:
    table = by_cgroup(KEYS["cgroup"], stats(10, 20, 300), np.array([1, 2, 30], dtype=np.uint64), SUMS)
    assert table.columns["blockio.stalled_ns"].tolist() == [2, 31]
    assert table.ids.tolist() == [5, 7]
    assert table.columns["blockio.queue_ns"].tolist() == [20, 310]
    assert table.columns["blockio.queue_hist"][:, 3].tolist() == [1, 2]


def test_in_flight_counts_queued_ios_in_their_row() -> None:
    held, unknown = (7, 2 << 20, 0), (9, 1 << 20, 4)
    present = ios((7, 2 << 20, 1), (7, 2 << 20, 2), (5, 1 << 20, 3), held, unknown)
    table = by_device(KEYS, stats(1, 2, 3), present, SUMS)
    assert table.keys["device"].tolist() == [1 << 20, 1 << 20, 2 << 20]
    assert table.columns["blockio.inflight"].tolist() == [0, 1, 2]


def test_throttle_time_is_absent_where_it_is_not_measured() -> None:
    table = by_device(KEYS, stats(1, 2, 3), ios(), tuple(name for name in SUMS if name != "throttle_ns"))
    assert "blockio.throttle_ns" not in table.columns
    assert "blockio.queue_ns" in table.columns


def test_nothing_seen_yet() -> None:
    none = np.zeros(0, dtype=KEY_RECORD)
    assert len(by_cgroup(none["cgroup"], stats(), np.zeros(0, dtype=np.uint64), SUMS)) == 0
    assert len(by_device(none, stats(), ios((1, 1, 1)), SUMS)) == 0


def test_what_is_under_way_joins_its_row_or_makes_one() -> None:
    rows = {(7, 2 << 20): Row(excess_ns=5, self_ns=2, stalled_ns=1), (8, 1 << 20): Row(excess_ns=9, self_ns=9)}
    keys, records, stalled_ns = with_under_way(KEYS, stats(10, 20, 300), rows)
    assert keys.tolist() == [*KEYS.tolist(), (8, 1 << 20)]
    assert records["excess_ns"].tolist() == records["device_ns"].tolist() == [0, 0, 5, 9]
    assert records["self_ns"].tolist() == [0, 0, 2, 9]
    assert stalled_ns.tolist() == [0, 0, 1, 0]
