"""The Device object: what is said of the devices found, and when it differs from what was said. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from api.kube.device import Device, DeviceInfo, DeviceSpec
from api.kube.meta import Condition, ObjectMeta, OwnerReference
from api.kube.times import rfc3339
from api.protocol import (
    ANNOTATION_GPU_PARTITIONS,
    LABEL_NODE_GPU_DRIVER_VERSION,
    LABEL_NODE_GPU_MODEL,
    LABEL_NODE_GPU_PARTITION_POLICY,
    LABEL_NODE_GPU_VENDOR,
)
from koordlet.devices.inventory import FPGA_TYPE, GPU_TYPE, RDMA_TYPE, FoundDevice
from koordlet.devices.partitions import partition_table

HEALTHY = "Healthy"
NUMBERED_TYPES = (RDMA_TYPE, FPGA_TYPE)
"""Types whose sources number devices by their order only."""
OWN_LABELS = (
    LABEL_NODE_GPU_VENDOR,
    LABEL_NODE_GPU_MODEL,
    LABEL_NODE_GPU_DRIVER_VERSION,
    LABEL_NODE_GPU_PARTITION_POLICY,
)
"""Labels that this program sets and removes; others stay."""
OWN_ANNOTATIONS = (ANNOTATION_GPU_PARTITIONS,)
_OWN_METADATA = ("labels", "annotations", "ownerReferences")
_TYPE_ORDER = {GPU_TYPE: 0}
_NO_LABEL_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]+")
_NO_REASON_CHARACTER = re.compile(r"[^A-Za-z0-9_]+")
_LABEL_LENGTH = 63
_MESSAGE_LENGTH = 1024


def device_object(
    found: Iterable[FoundDevice], node: str, node_uid: str, previous: DeviceSpec | None, now_seconds: float
) -> Device:
    """Return the object that tells of these devices, owned by the node.

    `previous` is what was told before: a condition keeps the time since when it holds, and a device its minor where
    the source gives none, since pods hold devices by their minors. A device that was told of and not found stays as
    one at fault: pods may still hold it, and a driver that is not loaded yet must not make the scheduler forget its
    GPUs. Deleting the object forgets it. GPUs come first, then the other types, each by minor.
    """
    told = previous.devices if previous else []
    present = _with_known_minors(list(found), told)
    devices = sorted([*present, *_missing(present, told)], key=_order)
    since = _conditions(told)
    infos = [_described(device, since.get((device.info.type, device.info.id)), now_seconds) for device in devices]
    gpus = [device for device in present if device.info.type == GPU_TYPE]
    # Without blockOwnerDeletion, which some clusters allow only to who may update the Node's finalizers.
    owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=node_uid, controller=True)
    metadata = ObjectMeta(name=node, labels=_labels(gpus), annotations=_annotations(gpus), owner_references=[owner])
    return Device(metadata=metadata, spec=DeviceSpec(devices=infos))


def merged(document: Mapping[str, Any] | None, wanted: Device) -> dict[str, Any] | None:
    """Return the stored object changed to say what is wanted, or None where it says so already.

    Labels, annotations and owners of others stay, as does the status. Where none is stored and there is no device,
    none is made.
    """
    if document is None:
        made: dict[str, Any] = msgspec.to_builtins(wanted)
        return made if wanted.spec.devices else None
    meta = document.get("metadata") or {}
    labels = _replaced(meta.get("labels") or {}, wanted.metadata.labels, OWN_LABELS)
    annotations = _replaced(meta.get("annotations") or {}, wanted.metadata.annotations, OWN_ANNOTATIONS)
    others = [owner for owner in meta.get("ownerReferences") or [] if owner.get("kind") != "Node"]
    owners = [*others, *msgspec.to_builtins(wanted.metadata.owner_references)]
    metadata = {**meta, "labels": labels, "annotations": annotations, "ownerReferences": owners}
    same = all(metadata[key] == (meta.get(key) or type(metadata[key])()) for key in _OWN_METADATA)
    if same and read_spec(document) == wanted.spec:
        return None
    return {**document, "metadata": metadata, "spec": msgspec.to_builtins(wanted.spec)}


def read_spec(document: Mapping[str, Any] | None) -> DeviceSpec | None:
    """Return the devices that a stored object tells of; None where it cannot be read."""
    try:
        return msgspec.convert((document or {}).get("spec") or {}, DeviceSpec)
    except msgspec.ValidationError:
        return None


def label_value(text: str) -> str:
    """Return a text as the value of a label: `NVIDIA A100 (80 GB)` becomes `NVIDIA-A100-80-GB`."""
    return _NO_LABEL_CHARACTER.sub("-", text)[:_LABEL_LENGTH].strip("-_.")


def _order(device: FoundDevice) -> tuple[int, str, int]:
    return _TYPE_ORDER.get(device.info.type, 1), device.info.type, device.minor


def _with_known_minors(found: Sequence[FoundDevice], told: Sequence[DeviceInfo]) -> list[FoundDevice]:
    """The devices, those of numbered types with the minor that was told of them, new ones with the lowest free one."""
    known = {(info.type, info.id): info.minor for info in told if info.type in NUMBERED_TYPES}
    ids = {(device.info.type, device.info.id) for device in found}
    taken = {(kind, minor) for (kind, identity), minor in known.items() if (kind, identity) in ids}
    result = []
    for device in found:
        kind, minor = device.info.type, device.minor
        if kind in NUMBERED_TYPES:
            fresh = (each for each in range(len(taken) + 1) if (kind, each) not in taken)
            minor = known[kind, device.info.id] if (kind, device.info.id) in known else next(fresh)
            taken.add((kind, minor))
        result.append(replace(device, info=msgspec.structs.replace(device.info, minor=minor)))
    return result


def _missing(present: Sequence[FoundDevice], told: Sequence[DeviceInfo]) -> list[FoundDevice]:
    """Devices that were told of and not found, unless another one has the minor now."""
    ids = {(device.info.type, device.info.id) for device in present}
    minors = {(device.info.type, device.minor) for device in present}
    return [
        FoundDevice(info=info, fault_code="NotFound", fault="the device is not found any more")
        for info in told
        if (info.type, info.id) not in ids and (info.type, info.minor) not in minors
    ]


def _described(device: FoundDevice, before: Condition | None, now_seconds: float) -> DeviceInfo:
    condition = Condition(
        type=HEALTHY,
        status="True" if device.healthy else "False",
        reason="NoFault" if device.healthy else _reason(device.fault_code),
        message=device.fault[:_MESSAGE_LENGTH] or "no fault is known",
        last_transition_time=rfc3339(now_seconds),
    )
    if before is not None and before.status == condition.status:
        condition = msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)
    # Amounts are written as texts, which is how the API server hands quantities back to other clients.
    resources = {name: str(amount) for name, amount in device.info.resources.items()}
    return msgspec.structs.replace(device.info, health=device.healthy, conditions=[condition], resources={**resources})


def _reason(code: str) -> str:
    """A vendor's code as the API server admits the reason of a condition."""
    words = _NO_REASON_CHARACTER.sub("_", code).strip("_")
    if not words:
        return "Fault"
    return words if words[0].isalpha() else f"Code_{words}"


def _conditions(told: Sequence[DeviceInfo]) -> dict[tuple[str, str], Condition]:
    return {
        (info.type, info.id): condition
        for info in told
        for condition in info.conditions
        if condition.type == HEALTHY and condition.last_transition_time
    }


def _labels(gpus: Sequence[FoundDevice]) -> dict[str, str]:
    """Vendor, model and driver version where all GPUs agree; the policy of partitions where there is a table."""
    agreed = {
        LABEL_NODE_GPU_VENDOR: _agreed(gpu.vendor for gpu in gpus),
        LABEL_NODE_GPU_MODEL: _agreed(gpu.model for gpu in gpus),
        LABEL_NODE_GPU_DRIVER_VERSION: _agreed(gpu.driver_version for gpu in gpus),
    }
    if any(gpu.groups for gpu in gpus):
        honor = any(gpu.must_honor_partition for gpu in gpus)
        agreed[LABEL_NODE_GPU_PARTITION_POLICY] = "Honor" if honor else "Prefer"
    return {key: label_value(value) for key, value in agreed.items() if label_value(value)}


def _agreed(values: Iterable[str]) -> str:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else ""


def _annotations(gpus: Sequence[FoundDevice]) -> dict[str, str]:
    table = partition_table(gpus)
    return {ANNOTATION_GPU_PARTITIONS: msgspec.json.encode(table).decode()} if table else {}


def _replaced(stored: Mapping[str, str], wanted: Mapping[str, str], own: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in stored.items() if key not in own} | dict(wanted)
