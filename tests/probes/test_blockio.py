"""Block IO rows summed by cgroup, and IOs in flight found their row."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from probes.blockio import IO_RECORD, KEY_RECORD, STATS_RECORD, SUMS, by_cgroup, by_device

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
    table = by_cgroup(KEYS["cgroup"], stats(10, 20, 300), SUMS)
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
    assert len(by_cgroup(none["cgroup"], stats(), SUMS)) == 0
    assert len(by_device(none, stats(), ios((1, 1, 1)), SUMS)) == 0
