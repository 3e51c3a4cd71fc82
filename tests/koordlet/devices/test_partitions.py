"""Partition tables from links."""

import pytest

from api.kube.device import DeviceInfo
from koordlet.devices.inventory import FoundDevice, LinkGroup
from koordlet.devices.partitions import partition_table


def gpus(count: int, links: set[tuple[int, int]]) -> list[FoundDevice]:
    peers = {minor: {b for a, b in links if a == minor} | {a for a, b in links if b == minor} for minor in range(count)}
    return [
        FoundDevice(info=DeviceInfo(type="gpu", minor=minor), peers=frozenset(peers[minor])) for minor in range(count)
    ]


def mesh(*groups: range) -> set[tuple[int, int]]:
    return {(a, b) for group in groups for a in group for b in group if a < b}


CUBE_MESH = mesh(range(4), range(4, 8)) | {(minor, minor + 4) for minor in range(4)}
"""Two full fours, joined by one link for each GPU."""


@pytest.mark.parametrize(
    ("count", "links", "expected"),
    [
        pytest.param(8, set(), {}, id="no-links"),
        pytest.param(1, set(), {}, id="one-gpu"),
        pytest.param(8, mesh(range(8)), {"1": 8, "2": 4, "4": 2, "8": 1}, id="switched"),
        pytest.param(8, CUBE_MESH, {"1": 8, "2": 4, "4": 2, "8": 1}, id="cube-mesh"),
        pytest.param(4, {(0, 1), (2, 3)}, {"1": 4, "2": 2}, id="pairs"),
        pytest.param(8, mesh(range(4)), {"1": 8, "2": 2, "4": 1}, id="half-of-the-machine"),
        pytest.param(6, mesh(range(6)), {"1": 6, "2": 3, "4": 1}, id="six"),
        pytest.param(4, {(1, 2)}, {}, id="link-across-pairs"),
    ],
)
def test_sizes(count: int, links: set[tuple[int, int]], expected: dict[str, int]) -> None:
    assert {size: len(found) for size, found in partition_table(gpus(count, links)).items()} == expected


def test_members_start_at_multiples_of_the_size() -> None:
    table = partition_table(gpus(8, mesh(range(8))))
    assert [partition.minors for partition in table["4"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert {partition.gpu_link_type for partition in table["4"]} == {"NVLink"}


def test_named_sets_of_a_vendor_are_taken() -> None:
    named = [LinkGroup("HCCS", frozenset({0, 2})), LinkGroup("HCCS", frozenset({1, 9}))]
    devices = [FoundDevice(info=DeviceInfo(type="gpu", minor=minor), groups=tuple(named)) for minor in range(3)]
    table = partition_table(devices)
    assert [partition.minors for partition in table["1"]] == [[0], [1], [2]]
    assert [(partition.minors, partition.gpu_link_type) for partition in table["2"]] == [([0, 2], "HCCS")]
