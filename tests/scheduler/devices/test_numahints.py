"""Device hints: which NUMA sets serve, which are preferred, and which one the plain allocation would use."""

from api.protocol import GPU, GPU_CORE, GPU_MEMORY_RATIO
from scheduler.devices.allocator import DeviceRequest
from scheduler.devices.inventory import Grant, NodeDevice, NodeDevices
from scheduler.devices.numahints import BEST_SCORE, device_hints
from scheduler.devices.request import DeviceKind, device_demands
from scheduler.numa.hints import NumaHint

TOTAL = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}


def node(*places: int) -> NodeDevices:
    return NodeDevices(NodeDevice(DeviceKind.GPU, minor, TOTAL, numa_node=place) for minor, place in enumerate(places))


def hints(devices: NodeDevices, percent: int) -> list[list[NumaHint]]:
    return device_hints(devices, DeviceRequest(device_demands({GPU: percent})))


def test_one_card_fits_either_node() -> None:
    assert hints(node(0, 0, 1), 100) == [[NumaHint(1, True, BEST_SCORE), NumaHint(2, True), NumaHint(3, False)]]


def test_taken_cards_leave_wider_sets_unpreferred() -> None:
    devices = node(0, 0, 1, 1)
    devices.hold("x", [Grant(DeviceKind.GPU, 0, TOTAL), Grant(DeviceKind.GPU, 2, TOTAL)])
    assert hints(devices, 200) == [[NumaHint(3, False, BEST_SCORE)]]


def test_unserved_request_has_an_empty_list() -> None:
    assert hints(node(0), 200) == [[]]


def test_devices_without_a_place_have_no_say() -> None:
    assert hints(node(-1, -1), 100) == []
