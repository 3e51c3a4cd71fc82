"""Merging readings into one dense table."""

import numpy as np

from api.frame import CGROUP, HOST, Reading, Table, align, merge

IDS = np.array([5, 9, 2], dtype=np.uint64)


def test_rows_follow_the_ids_and_absent_rows_are_zero_or_nan() -> None:
    table = Table(
        {"cgroup": np.array([2, 5, 77], dtype=np.uint64)},
        {"count": np.array([20, 50, 770], dtype=np.uint64), "gauge_bytes": np.array([2.0, 5.0, 77.0])},
    )
    aligned = align(IDS, table)
    assert aligned["count"].tolist() == [50, 0, 20]
    assert aligned["gauge_bytes"][0] == 5.0
    assert np.isnan(aligned["gauge_bytes"][1])


def test_an_empty_table_aligns_to_zeros() -> None:
    empty = Table({"cgroup": np.empty(0, dtype=np.uint64)}, {"hist": np.empty((0, 4), dtype=np.uint64)})
    assert align(IDS, empty)["hist"].tolist() == [[0, 0, 0, 0]] * 3


def test_readings_join_and_hosts_add_up() -> None:
    one = Reading(
        {CGROUP: Table({"cgroup": IDS}, {"a": np.arange(3)}), HOST: Table({}, {"x": np.array([1])})}, {"p": 1}
    )
    two = Reading(
        {CGROUP: Table({"cgroup": IDS[:1]}, {"b": np.array([7])}), HOST: Table({}, {"y": np.array([2])})}, {"q": 2}
    )
    tables, lost = merge(IDS, [one, two])
    assert set(tables[CGROUP].columns) == {"a", "b"}
    assert set(tables[HOST].columns) == {"x", "y"}
    assert lost == {"p": 1, "q": 2}
    assert tables[CGROUP].columns["b"].tolist() == [7, 0, 0]
