"""Adding the ports of one cgroup together."""

import numpy as np

from api.frame import Table
from probes.turnaround import EMPTY, idle_rows, sum_by_cgroup


def table(ids: list[int], requests: list[int], hist: list[list[int]]) -> Table:
    return Table(
        {"cgroup": np.array(ids, dtype=np.uint64)},
        {
            "turnaround.requests": np.array(requests, dtype=np.uint64),
            "turnaround.hist": np.array(hist, dtype=np.uint64).reshape(len(ids), -1),
        },
    )


def test_rows_of_one_cgroup_are_added_slot_by_slot() -> None:
    summed = sum_by_cgroup(table([7, 5, 7], [1, 2, 4], [[1, 0], [0, 2], [1, 3]]))
    assert summed.ids.tolist() == [5, 7]
    assert summed.columns["turnaround.requests"].tolist() == [2, 5]
    assert summed.columns["turnaround.hist"].tolist() == [[0, 2], [2, 3]]


def test_no_rows_stay_no_rows() -> None:
    summed = sum_by_cgroup(Table({"cgroup": np.empty(0, np.uint64)}, {"turnaround.requests": np.empty(0, np.uint64)}))
    assert len(summed) == 0


def test_tables_are_added_to_each_other() -> None:
    summed = sum_by_cgroup(table([7], [1], [[1, 0]]), table([5, 7], [2, 3], [[0, 2], [3, 0]]))
    assert summed.ids.tolist() == [5, 7]
    assert summed.columns["turnaround.requests"].tolist() == [2, 4]


def by_port(rows: list[tuple[int, int, int]]) -> Table:
    cgroups, ports, requests = zip(*rows, strict=True)
    return Table(
        {"cgroup": np.array(cgroups, dtype=np.uint64), "port": np.array(ports, dtype=np.uint16)},
        {"turnaround.requests": np.array(requests, dtype=np.uint64)},
    )


def test_a_row_is_idle_that_stands_as_it_stood() -> None:
    before = by_port([(7, 80, 5), (7, 81, 6), (8, 80, 9)])
    now = by_port([(8, 80, 10), (7, 80, 5), (9, 80, 5), (7, 81, 6)])
    assert idle_rows(now, before).tolist() == [False, True, False, True]
    assert idle_rows(now, EMPTY).tolist() == [False] * 4
