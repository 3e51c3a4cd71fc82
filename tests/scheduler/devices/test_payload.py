"""Device annotations: grants survive the round trip, requests are read, malformed ones are named."""

import json

import pytest

from api.kube.device import VirtualFunction
from api.protocol import GPU, GPU_CORE, RDMA
from scheduler.devices.inventory import Grant, NodeDevice, NodeDevices
from scheduler.devices.payload import decode_grants, drawn_from, encode_grants, read_request
from scheduler.devices.request import DeviceKind, DeviceRequestError, device_demands

PREFIX = "scheduling.koordinator.sh/"


def test_grants_survive_the_round_trip() -> None:
    node = NodeDevices(
        [
            NodeDevice(DeviceKind.GPU, 3, {GPU_CORE: 100}, "GPU-3"),
            NodeDevice(DeviceKind.RDMA, 0, {RDMA: 100}, "01:00.0"),
        ]
    )
    grants = [
        Grant(DeviceKind.GPU, 3, {GPU_CORE: 50}, template="vir02"),
        Grant(DeviceKind.RDMA, 0, {RDMA: 1}, (VirtualFunction(minor=2, bus_id="01:00.2"),)),
    ]
    text = encode_grants(grants, node)
    assert decode_grants(text) == grants
    payload = json.loads(text)
    assert payload["gpu"][0]["id"] == "GPU-3"
    assert payload["rdma"][0]["extension"] == {"vfs": [{"minor": 2, "busID": "01:00.2"}]}


def test_unknown_kinds_are_passed_over_and_garbage_is_an_error() -> None:
    assert decode_grants('{"xpu":[{"minor":0,"resources":{}}]}') == []
    with pytest.raises(ValueError, match="truncated"):
        decode_grants("{")


def test_wishes() -> None:
    demands = device_demands({GPU: 200, RDMA: 100})
    preferences = read_request(
        {
            f"{PREFIX}device-allocate-hint": '{"gpu":{"requiredTopologyScope":"PCIe"}}',
            f"{PREFIX}device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
            f"{PREFIX}gpu-partition-spec": '{"allocatePolicy":"Restricted","ringBusBandwidth":"400Gi"}',
        },
        demands,
    )
    assert preferences.preferences[DeviceKind.GPU].scope == "PCIe"
    assert DeviceKind.RDMA not in preferences.preferences
    assert (preferences.joint, preferences.same_pcie, preferences.plain) == (
        (DeviceKind.GPU, DeviceKind.RDMA),
        True,
        False,
    )
    assert preferences.partition is not None
    assert preferences.partition.allocate_policy == "Restricted"
    assert read_request({}, demands).plain


def test_malformed_wish_is_named() -> None:
    with pytest.raises(DeviceRequestError, match="device-allocate-hint"):
        read_request({f"{PREFIX}device-allocate-hint": "["}, device_demands({GPU: 100}))


@pytest.mark.parametrize(
    ("text", "uid"), [(None, ""), ("{", ""), ('{"name":"r","uid":"u"}', "u"), ('{"name":"r"}', "")]
)
def test_drawn_from(text: str | None, uid: str) -> None:
    assert drawn_from(text) == uid
