"""Closeness: the narrowest scope that holds the count, ground already broken first, few switches touched."""

import pytest

from api.protocol import GPU, GPU_CORE, GPU_MEMORY_RATIO
from scheduler.devices.candidates import DeviceError, DevicePreferences, DeviceStrategy, find_candidates
from scheduler.devices.inventory import Grant, NodeDevice, NodeDevices
from scheduler.devices.request import DeviceKind, device_demands
from scheduler.devices.topology import choose_near

TOTAL = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}


def server(places: str, taken: tuple[int, ...] = ()) -> NodeDevices:
    """GPUs by switch: `aab|cc` is two on switch a and one on b of NUMA node 0, two on c of NUMA node 1."""
    devices = []
    for numa, switches in enumerate(places.split("|")):
        for switch in switches:
            devices.append(NodeDevice(DeviceKind.GPU, len(devices), TOTAL, numa_node=numa, pcie=switch))
    node = NodeDevices(devices)
    node.hold("others", [Grant(DeviceKind.GPU, minor, TOTAL) for minor in taken])
    return node


@pytest.mark.parametrize(
    ("places", "taken", "count", "expected"),
    [
        pytest.param("aabb|ccdd", (), 2, [0, 1], id="free"),
        pytest.param("aabb|ccdd", (0,), 1, [1], id="one-beside-0"),
        pytest.param("aabb|ccdd", (0,), 2, [2, 3], id="two-beside-0"),
        pytest.param("aabb|ccdd", (4,), 2, [6, 7], id="two-beside-4"),
        pytest.param("aabb|ccdd", (0, 4), 3, [1, 2, 3], id="three-on-one-node"),
        pytest.param("aabbb|cc", (), 3, [2, 3, 4], id="switch-of-three"),
        pytest.param("aab|ccc", (), 3, [3, 4, 5], id="node-of-three"),
        pytest.param("aabb|ccdd", (0, 2, 4, 6), 2, [1, 3], id="one-left-on-each-switch"),
        pytest.param("aabb|ccdd", (0, 1, 2, 4, 5, 6), 2, [3, 7], id="one-left-on-each-node"),
    ],
)
def test_choice(places: str, taken: tuple[int, ...], count: int, expected: list[int]) -> None:
    node = server(places, taken)
    demand = device_demands({GPU: 100 * count})[DeviceKind.GPU]
    found = find_candidates(node, demand, DevicePreferences(), DeviceStrategy.LEAST_ALLOCATED)
    assert sorted(c.device.minor for c in choose_near(node, demand, found, "")) == expected


@pytest.mark.parametrize(("scope", "fits"), [("Node", True), ("NUMANode", True), ("PCIe", False), ("Device", False)])
def test_required_scope(scope: str, fits: bool) -> None:
    node = server("aab|c")
    demand = device_demands({GPU: 300})[DeviceKind.GPU]
    found = find_candidates(node, demand, DevicePreferences(), DeviceStrategy.LEAST_ALLOCATED)
    if fits:
        assert len(choose_near(node, demand, found, scope)) == 3
        return
    with pytest.raises(DeviceError, match=scope):
        choose_near(node, demand, found, scope)
