"""The ledger of all nodes: columns follow every change, whatever comes first."""

import json

import msgspec

from api.kube.device import Device
from api.protocol import GPU_CORE, GPU_MEMORY_RATIO
from scheduler.devices.ledger import DeviceLedger, read_partitions, summary
from scheduler.devices.payload import PodDeviceRequest
from scheduler.devices.request import DeviceDemand, DeviceKind

AMOUNTS = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}


def device(gpus: int, **annotations: str) -> Device:
    listed = [{"type": "gpu", "minor": minor, "health": True, "resources": AMOUNTS} for minor in range(gpus)]
    listed.append({"type": "unheard-of", "minor": 0, "health": True, "resources": {}})
    return msgspec.convert({"metadata": {"name": "n", "annotations": annotations}, "spec": {"devices": listed}}, Device)


def given(minor: int, percent: int) -> str:
    return json.dumps(
        {"gpu": [{"minor": minor, "resources": {GPU_CORE: str(percent), GPU_MEMORY_RATIO: str(percent)}}]}
    )


def asked(percent: int, count: int = 1) -> PodDeviceRequest:
    each = {GPU_CORE: percent, GPU_MEMORY_RATIO: percent}
    return PodDeviceRequest({DeviceKind.GPU: DeviceDemand(DeviceKind.GPU, count, each)}, {})


def free(ledger: DeviceLedger, row: int) -> list[int]:
    return [int(percent) for percent in ledger.columns.gpu_percent(slice(row, row + 1))[0] if percent]


def test_columns_follow_reports_and_pods_in_any_order() -> None:
    ledger = DeviceLedger()
    ledger.charge(3, "early", given(1, 40), asked(40))
    assert not ledger.columns.known[3]
    ledger.refit(3, device(2))
    assert ledger.columns.known[3]
    assert free(ledger, 3) == [100, 60]
    ledger.charge(3, "late", given(0, 30), asked(30))
    assert free(ledger, 3) == [70, 60]
    ledger.discharge(3, "early")
    ledger.discharge(3, "unknown")
    assert free(ledger, 3) == [70, 100]
    ledger.refit(3, None)
    assert not ledger.columns.known[3]
    ledger.refit(3, device(2))
    assert free(ledger, 3) == [70, 100]
    ledger.forget(3)
    assert free(ledger, 3) == []


def test_unreadable_annotation_counts_as_nothing() -> None:
    ledger = DeviceLedger()
    ledger.refit(0, device(1))
    ledger.charge(0, "odd", "{", asked(100))
    assert free(ledger, 0) == [100]


def test_reservation_view_and_minors() -> None:
    ledger = DeviceLedger()
    ledger.refit(0, device(2))
    ledger.charge(0, "reservation", given(1, 100), asked(100))
    assert ledger.reserved_minors(0, ["reservation", "unknown"]) == {DeviceKind.GPU: (1,)}
    assert ledger.view(0, []) is ledger.nodes[0]
    view = ledger.view(0, ["reservation"])
    assert all(view.idle(each) for each in view.of_kind(DeviceKind.GPU))
    assert not ledger.nodes[0].idle(ledger.nodes[0].of_kind(DeviceKind.GPU)[1])


def test_summary_names_holders() -> None:
    ledger = DeviceLedger()
    ledger.refit(0, device(1))
    ledger.charge(0, "pod", given(0, 25), asked(25))
    shown = summary(ledger.nodes[0])
    assert shown["devices"][0]["used"] == {GPU_CORE: 25, GPU_MEMORY_RATIO: 25}
    assert list(shown["allocateSet"]) == ["pod"]


def test_partitions_are_read_from_the_device() -> None:
    table = {"2": [{"minors": [0, 1], "gpuLinkType": "NVLink", "ringBusBandwidth": "400Gi", "allocationScore": 1}]}
    key = "scheduling.koordinator.sh/gpu-partitions"
    read = read_partitions({key: json.dumps(table)})
    assert read is not None
    assert read[2][0].minors == [0, 1]
    assert read_partitions({}) is None
    assert read_partitions({key: "["}) is None


def test_a_pod_is_charged_for_what_it_asked_for_at_most() -> None:
    ledger = DeviceLedger()
    ledger.refit(0, device(2))
    both = json.loads(given(0, 100))["gpu"] + json.loads(given(1, 100))["gpu"]
    ledger.charge(0, "greedy", json.dumps({"gpu": both, "rdma": [{"minor": 0}]}), asked(30))
    assert free(ledger, 0) == [70, 100]
    ledger.charge(0, "none", json.dumps({"gpu": both}), PodDeviceRequest({}, {}))
    ledger.charge(0, "negative", given(1, -50), asked(50))
    ledger.charge(0, "twice", json.dumps({"gpu": both[1:] * 2}), asked(10, count=2))
    assert free(ledger, 0) == [70, 90]
