"""GPU and RDMA resources: sums over healthy devices, withdrawn with the last one."""

from typing import Any

import msgspec
import pytest

from api.kube.device import Device
from controllers.kinds import DEVICE, NODE, Node
from controllers.plans.device_resources import DeviceResources
from tests.capacity import a_node
from tests.managed import built, view_of

GPU_AMOUNTS = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory-ratio": "100",
    "koordinator.sh/gpu-memory": "16Gi",
}


def gpu(minor: int, *, health: bool = True) -> dict[str, Any]:
    return {"type": "gpu", "minor": minor, "health": health, "resources": GPU_AMOUNTS}


def a_device(*devices: dict[str, Any], **labels: str) -> Device:
    named = {f"node.koordinator.sh/gpu-{name}": value for name, value in labels.items()}
    return msgspec.convert({"metadata": {"name": "n1", "labels": named}, "spec": {"devices": devices}}, Device)


def plan(device: Device | None, node: Node | None = None, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    controller = built(DeviceResources, **settings)
    objects = {NODE: [node or a_node()], DEVICE: [device] if device else []}
    status: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    for write in controller.plan(view_of(controller, objects), 0.0).writes:
        status |= write.body.get("status", {}).get("allocatable", {})
        labels |= write.body.get("metadata", {}).get("labels", {})
    return status, labels


def test_healthy_gpus_are_summed() -> None:
    status, labels = plan(a_device(gpu(0), gpu(1), gpu(2, health=False), vendor="nvidia", model="A10"))
    assert status == {
        "koordinator.sh/gpu": "200",
        "koordinator.sh/gpu-core": "200",
        "koordinator.sh/gpu-memory-ratio": "200",
        "koordinator.sh/gpu-memory": str(32 << 30),
    }
    assert labels == {"node.koordinator.sh/gpu-vendor": "nvidia", "node.koordinator.sh/gpu-model": "A10"}


def test_the_shorthand_is_nvidias_alone_and_sharing_is_asked_for() -> None:
    assert "koordinator.sh/gpu" not in plan(a_device(gpu(0), vendor="huawei"))[0]
    assert plan(a_device(gpu(0)), gpu_shared=True)[0]["koordinator.sh/gpu.shared"] == "100"


@pytest.mark.parametrize("name", ["cpu", "memory", "pods", "kubernetes.io/batch-cpu", "example.com/gpu"])
def test_a_device_makes_no_capacity_of_another_name(name: str) -> None:
    hostile = gpu(0) | {"resources": {**GPU_AMOUNTS, name: "1000"}}
    status, _ = plan(a_device(hostile))
    assert name not in status
    assert status["koordinator.sh/gpu-core"] == "100"


def test_nics_count_100_each() -> None:
    nics = [{"type": "rdma", "minor": minor, "health": minor < 2} for minor in range(3)]
    assert plan(a_device(*nics))[0] == {"koordinator.sh/rdma": "200"}


def test_resources_go_with_the_last_healthy_device_and_others_stay() -> None:
    node = a_node(published={"koordinator.sh/gpu": 100, "koordinator.sh/gpu-core": 100, "nvidia.com/gpu": 1})
    assert plan(a_device(gpu(0, health=False)), node)[0] == {
        "koordinator.sh/gpu": None,
        "koordinator.sh/gpu-core": None,
    }
    assert plan(None, node)[0] == {"koordinator.sh/gpu": None, "koordinator.sh/gpu-core": None}


def test_a_node_without_devices_is_left_alone() -> None:
    assert plan(None) == ({}, {})
