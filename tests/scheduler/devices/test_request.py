"""Device requests: the protocol's combinations, their canonical form, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.protocol import FPGA, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, RDMA
from scheduler.devices.request import NPU_CORE, NPU_CPU, DeviceDemand, DeviceKind, DeviceRequestError, device_demands

GI = 1 << 30


@pytest.mark.parametrize(
    ("requests", "count", "each", "shared"),
    [
        pytest.param({GPU_MEMORY: 8 * GI}, 1, {GPU_MEMORY: 8 * GI}, True, id="memory"),
        pytest.param({GPU_MEMORY_RATIO: 50}, 1, {GPU_MEMORY_RATIO: 50}, True, id="ratio-below-100"),
        pytest.param({GPU_MEMORY_RATIO: 200}, 2, {GPU_MEMORY_RATIO: 100}, False, id="ratio-of-two-cards"),
        pytest.param({GPU_CORE: 50, GPU_MEMORY: GI}, 1, {GPU_CORE: 50, GPU_MEMORY: GI}, True, id="core-and-memory"),
        pytest.param(
            {GPU_CORE: 400, GPU_MEMORY_RATIO: 400},
            4,
            {GPU_CORE: 100, GPU_MEMORY_RATIO: 100},
            False,
            id="core-and-ratio",
        ),
        pytest.param({GPU: 46}, 1, {GPU_CORE: 46, GPU_MEMORY_RATIO: 46}, True, id="koordinator-gpu-share"),
        pytest.param({GPU: 800}, 8, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, False, id="koordinator-gpu-cards"),
        pytest.param({"nvidia.com/gpu": 3}, 3, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, False, id="nvidia"),
        pytest.param({"dcu.com/gpu": 1}, 1, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, False, id="dcu"),
        pytest.param({GPU_SHARED: 2, GPU_MEMORY_RATIO: 100}, 2, {GPU_MEMORY_RATIO: 50}, True, id="shared-ratio"),
        pytest.param(
            {GPU_SHARED: 2, GPU_CORE: 60, GPU_MEMORY: 4 * GI},
            2,
            {GPU_CORE: 30, GPU_MEMORY: 2 * GI},
            True,
            id="shared-core-and-memory",
        ),
        pytest.param(
            {NPU_CORE: 8, NPU_CPU: 2, GPU_MEMORY: GI}, 1, {NPU_CORE: 8, NPU_CPU: 2, GPU_MEMORY: GI}, True, id="npu"
        ),
        pytest.param({"kubernetes.io/gpu": 100}, 1, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, False, id="kubernetes-gpu"),
    ],
)
def test_gpu_combinations(requests: dict[str, int], count: int, each: dict[str, int], shared: bool) -> None:
    demand = device_demands(requests | {"cpu": 4000})[DeviceKind.GPU]
    assert (demand.count, dict(demand.each), demand.shared) == (count, each, shared)


@pytest.mark.parametrize(
    ("requests", "demand"),
    [
        pytest.param({RDMA: 1}, DeviceDemand(DeviceKind.RDMA, 1, {RDMA: 1}), id="rdma-share"),
        pytest.param({RDMA: 100}, DeviceDemand(DeviceKind.RDMA, 1, {RDMA: 100}), id="rdma-whole"),
        pytest.param({FPGA: 300}, DeviceDemand(DeviceKind.FPGA, 3, {FPGA: 100}), id="fpga-cards"),
    ],
)
def test_other_devices(requests: dict[str, int], demand: DeviceDemand) -> None:
    assert device_demands(requests) == {demand.kind: demand}


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param({GPU_CORE: 50}, id="core-alone"),
        pytest.param({GPU: 100, GPU_CORE: 100}, id="gpu-and-core"),
        pytest.param({GPU_SHARED: 2}, id="shared-alone"),
        pytest.param({GPU_MEMORY: GI, GPU_MEMORY_RATIO: 10}, id="memory-and-ratio"),
        pytest.param({GPU: 150}, id="gpu-150-percent"),
        pytest.param({RDMA: 101}, id="rdma-101-percent"),
        pytest.param({GPU_SHARED: 2, GPU_MEMORY_RATIO: 101}, id="ratio-not-divisible"),
        pytest.param({GPU_SHARED: 1, GPU_MEMORY_RATIO: 200}, id="ratio-over-shared"),
        pytest.param({"nvidia.com/gpu": 1, "amd.com/gpu": 1}, id="two-vendors"),
    ],
)
def test_refused(requests: dict[str, int]) -> None:
    with pytest.raises(DeviceRequestError):
        device_demands(requests)


def test_no_device_no_demand() -> None:
    assert device_demands({"cpu": 1000, GPU: 0}) == {}


@given(st.integers(1, 800))
def test_whatever_is_accepted_sums_to_what_was_asked(percent: int) -> None:
    try:
        demand = device_demands({GPU: percent})[DeviceKind.GPU]
    except DeviceRequestError:
        assert percent > 100
        assert percent % 100
        return
    assert demand.count * demand.each[GPU_CORE] == percent
