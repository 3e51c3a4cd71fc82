"""GPUs and RDMA NICs of a node as extended resources, from its Device object; labels of its GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from api.kube.device import Device, DeviceInfo
from api.protocol import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    LABEL_NODE_GPU_DRIVER_VERSION,
    LABEL_NODE_GPU_MODEL,
    LABEL_NODE_GPU_VENDOR,
    RDMA,
)
from cluster.resources import Key, Resource
from controllers.capacity.pods import amount
from controllers.capacity.publish import status_patch
from controllers.kinds import DEVICE, NODE, Node
from controllers.runtime.controller import Controller, ControllerSettings
from controllers.runtime.view import View
from controllers.runtime.writes import Write, Writes, kind_name, patch

NPU_NAMES = ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")
GPU_NAMES = (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, *NPU_NAMES)
LABELS = (LABEL_NODE_GPU_VENDOR, LABEL_NODE_GPU_MODEL, LABEL_NODE_GPU_DRIVER_VERSION)
WHOLE = 100
"""Percent of a NIC, and instances of a shared GPU."""


class DeviceSettings(ControllerSettings, frozen=True, kw_only=True):
    """Table `[controllers.device_resources]`."""

    gpu_shared: bool = False
    """Publish koordinator.sh/gpu.shared: 100 for each healthy GPU."""


class DeviceResources(Controller[DeviceSettings]):
    """Publishes what healthy devices offer; withdraws it with the last healthy one."""

    settings_type = DeviceSettings
    watches: ClassVar[tuple[Resource[Any], ...]] = (NODE, DEVICE)

    def plan(self, view: View, now: float) -> Writes:
        """Return the nodes whose device resources or labels differ."""
        nodes, devices = view.objects(NODE), view.objects(DEVICE)
        writes: list[Write] = []
        for key in view.due(NODE, DEVICE):
            node, device = nodes.get(key), devices.get(key)
            if node is None:
                continue
            wanted = wanted_resources(device, gpu_shared=self.settings.gpu_shared)
            reason = _reason(device)
            # What a node that has no Device object publishes may be a device plugin's of the same name.
            if device is None and not any(name in node.status.allocatable for name in (GPU, GPU_CORE, RDMA)):
                continue
            body = status_patch(node, wanted)
            if body:
                writes.append(patch(NODE, node, body, reason, subresource="status"))
            labels = _labels(node, device)
            if labels:
                writes.append(patch(NODE, node, {"metadata": {"labels": labels}}, reason))
        return Writes(writes)

    def explain(self, view: View, kind: str, key: Key, now: float) -> Sequence[str]:
        """Return the devices that count and their sums."""
        device = view.objects(DEVICE).get(Key("", key.name))
        if kind not in (kind_name(NODE), kind_name(DEVICE)) or device is None:
            return ()
        wanted = wanted_resources(device, gpu_shared=self.settings.gpu_shared)
        return [_reason(device), *(f"{name}: {value}" for name, value in wanted.items() if value is not None)]


def wanted_resources(device: Device | None, *, gpu_shared: bool) -> dict[str, int | None]:
    """Return what a node publishes of its devices; None for a name that it must not have."""
    listed = device.spec.devices if device else []
    gpus = [each for each in listed if each.type == "gpu" and each.health]
    wanted: dict[str, int | None] = dict.fromkeys((*GPU_NAMES, RDMA))
    if gpus:
        # A node states its own Device: a name such as `cpu` in it must not become the node's capacity.
        for name in sorted({name for each in gpus for name in each.resources if name in GPU_NAMES}):
            wanted[name] = sum(amount(each.resources, name, 1) for each in gpus)
        vendor = device.metadata.labels.get(LABEL_NODE_GPU_VENDOR, "") if device else ""
        if vendor in ("", "nvidia") and wanted.get(GPU_CORE) is not None:
            wanted[GPU] = wanted[GPU_CORE]
        if gpu_shared:
            wanted[GPU_SHARED] = WHOLE * len(gpus)
    nics = [each for each in listed if each.type == "rdma" and each.health]
    if nics:
        wanted[RDMA] = WHOLE * len(nics)
    return wanted


def _labels(node: Node, device: Device | None) -> dict[str, str | None]:
    stated: Mapping[str, str] = device.metadata.labels if device else {}
    return {name: stated[name] for name in LABELS if name in stated and node.metadata.labels.get(name) != stated[name]}


def _reason(device: Device | None) -> str:
    listed: Sequence[DeviceInfo] = device.spec.devices if device else []
    parts = []
    for kind in ("gpu", "rdma"):
        of_kind = [each for each in listed if each.type == kind]
        if of_kind:
            parts.append(f"{sum(each.health for each in of_kind)} of {len(of_kind)} {kind} devices are healthy")
    return ", ".join(parts) or "the node reports no devices"
