"""Partitions: larger ones stay whole, better groups first, bandwidth and policy respected."""

import pytest

from api.kube.device import GpuPartition
from scheduler.devices.partition import choose_partition, default_table, intact_worth, usable_partitions

ALL = set(range(8))
TABLE = default_table("NVIDIA-H800-80GB")
MIXED = {
    2: (
        GpuPartition(minors=[0, 1], ring_bus_bandwidth="200Gi", allocation_score=1),
        GpuPartition(minors=[2, 3], ring_bus_bandwidth="400Gi", allocation_score=5),
    )
}


@pytest.mark.parametrize(
    ("count", "free", "expected"),
    [
        pytest.param(1, ALL, [0], id="1-of-all"),
        pytest.param(1, ALL - {0}, [1], id="1-beside-0"),
        pytest.param(1, ALL - {2}, [3], id="1-beside-2"),
        pytest.param(2, ALL - {0}, [2, 3], id="2-beside-0"),
        pytest.param(2, ALL - {0, 4}, [2, 3], id="2-beside-0-and-4"),
        pytest.param(4, ALL - {0}, [4, 5, 6, 7], id="4-beside-0"),
        pytest.param(8, ALL, list(range(8)), id="8-of-all"),
        pytest.param(8, ALL - {7}, None, id="8-of-seven"),
        pytest.param(3, ALL, None, id="3-is-no-size"),
    ],
)
def test_default_table(count: int, free: set[int], expected: list[int] | None) -> None:
    assert TABLE is not None
    partition = choose_partition(TABLE, count, free)
    assert (partition.minors if partition else None) == expected


def test_best_group_first_and_alone_when_restricted() -> None:
    assert choose_partition(MIXED, 2, ALL) == MIXED[2][1]
    assert choose_partition(MIXED, 2, {0, 1}) == MIXED[2][0]
    assert choose_partition(MIXED, 2, {0, 1}, best_only=True) is None


def test_bandwidth_is_a_minimum() -> None:
    assert usable_partitions(MIXED, 2, ALL, 300 << 30) == [MIXED[2][1]]


def test_worth_of_what_stays_whole() -> None:
    assert TABLE is not None
    assert intact_worth(TABLE, ALL, []) == 10_000 + 2 * 100 + 4
    assert intact_worth(TABLE, ALL, [0]) == 100 + 3
