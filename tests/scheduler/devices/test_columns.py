"""The arrays agree with the ledger they mirror, whatever was granted."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from api.protocol import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.devices.allocator import DeviceRequest, allocate
from scheduler.devices.candidates import DeviceError, DevicePreferences, find_candidates
from scheduler.devices.columns import DeviceColumns
from scheduler.devices.inventory import NodeDevice, NodeDevices
from scheduler.devices.request import DeviceKind, device_demands

GI = 1 << 30
ALL = slice(0, 3)
requests = st.sampled_from([{GPU: 30}, {GPU: 100}, {GPU: 300}, {GPU_MEMORY: 5 * GI}, {GPU_MEMORY_RATIO: 70}])


def node(gpus: int) -> NodeDevices:
    total = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: 16 * GI}
    return NodeDevices(NodeDevice(DeviceKind.GPU, minor, total) for minor in range(gpus))


@given(st.lists(st.tuples(st.integers(0, 2), requests), max_size=30), requests)
def test_vectorised_fit_agrees_with_the_allocator(
    given_away: list[tuple[int, dict[str, int]]], asked: dict[str, int]
) -> None:
    nodes = [node(2), node(12), node(0)]
    columns = DeviceColumns()
    for row, devices in enumerate(nodes):
        columns.set_row(row, devices)
    for number, (row, request) in enumerate(given_away):
        try:
            nodes[row].hold(str(number), allocate(nodes[row], DeviceRequest(device_demands(request))))
        except DeviceError:
            continue
        columns.set_row(row, nodes[row])
    demand = device_demands(asked)[DeviceKind.GPU]
    strategy = DeviceRequest({}).strategy
    expected = [len(find_candidates(devices, demand, DevicePreferences(), strategy)) for devices in nodes]
    assert columns.fitting(demand, ALL).tolist() == expected


def test_removed_and_unknown_rows_have_nothing() -> None:
    columns = DeviceColumns()
    columns.set_row(100, node(1))
    assert columns.known[100]
    assert columns.gpu_percent(slice(100, 101)).sum() == 100
    columns.set_row(100, None)
    assert not columns.known.any()
    assert np.all(columns.gpu_percent(slice(0, 101)) == 0)
