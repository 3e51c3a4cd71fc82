"""Recent use of devices: readings, pods that stop using one, and windows."""

from api.kube.device import DeviceInfo
from api.kube.device_use import DeviceSample, DeviceUse
from api.protocol import GPU_CORE, GPU_MEMORY_RATIO
from koordlet.kube.device_history import DeviceHistory

GIB = 1 << 30


def use(core_percent: float, *, uid: str = "", minor: int = 0) -> DeviceUse:
    return {uid: [DeviceSample("gpu", f"GPU-{minor}", minor, core_percent, GIB, 4 * GIB)]}


def cores(devices: list[DeviceInfo]) -> list[str]:
    return [str(each.resources[GPU_CORE]) for each in devices]


def test_a_node_without_devices_keeps_nothing() -> None:
    made = DeviceHistory(1.0, 3600.0, 300.0)
    made.add({}, 1.0)
    assert made.nbytes == 0
    assert made.averages("", 0.0) == made.percentiles(0.0, 0.99) == []


def test_a_reading_that_is_told_twice_counts_once() -> None:
    made = DeviceHistory(1.0, 3600.0, 300.0)
    idle, busy = use(0.0), use(90.0)
    for second, each in enumerate([idle, busy, busy, busy, busy]):
        made.add(each, float(second))
    assert cores(made.averages("", -1.0)) == ["45"]
    assert made.averages("", -1.0)[0].resources[GPU_MEMORY_RATIO] == "25"


def test_a_device_that_was_not_used_in_the_window_is_not_told() -> None:
    made = DeviceHistory(1.0, 3600.0, 300.0)
    made.add(use(50.0) | use(40.0, uid="a") | use(10.0, uid="b", minor=1), 0.0)
    for second in range(1, 20):
        made.add(use(50.0) | use(20.0, uid="a"), float(second))
    assert cores(made.averages("b", -1.0)) == ["10"]
    assert made.averages("b", 5.0) == []
    made.forget_before(5.0)
    assert made.averages("b", -1.0) == []
    assert cores(made.averages("a", 5.0)) == ["20"]


def test_devices_of_a_pod_are_told_by_minor() -> None:
    made = DeviceHistory(1.0, 3600.0, 300.0)
    shares = [DeviceSample("gpu", f"GPU-{minor}", minor, float(minor), GIB, 0) for minor in (10, 2, 7)]
    made.add({"a": shares}, 0.0)
    assert [each.minor for each in made.averages("a", -1.0)] == [2, 7, 10]
    assert made.averages("a", -1.0)[0].resources[GPU_MEMORY_RATIO] == "0"


def test_a_longer_window_of_pods_starts_anew() -> None:
    made = DeviceHistory(1.0, 3600.0, 300.0)
    made.add(use(50.0) | use(40.0, uid="a"), 0.0)
    made.span_pods(600.0)
    assert (made.averages("a", -1.0), cores(made.averages("", -1.0))) == ([], ["50"])
