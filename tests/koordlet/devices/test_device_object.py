"""The Device object: content, times of conditions, what is written over, and what the scheduler makes of it."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from api.crds import DEVICE
from api.kube.device import Device, DeviceInfo
from api.kube.objects import Node, Pod
from api.kube.times import rfc3339
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATE_HINT,
    ANNOTATION_DEVICE_ALLOCATED,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    SCHEDULER_NAME,
)
from cluster.resources import Key
from koordlet.devices.device_object import device_object, label_value, merged, read_spec
from koordlet.devices.inventory import FoundDevice, numbered
from koordlet.devices.nvml import Nvml
from koordlet.devices.rdma import rdma_devices
from scheduler.devices.ledger import read_partitions
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.plugins.deviceshare import DEVICES
from scheduler.profile import SchedulerSettings
from tests.koordlet.devices.conftest import GIB, Standin
from tests.koordlet.devices.pci_trees import add_pci, add_rdma, gpu_tree

GPU_LABELS = {
    "node.koordinator.sh/gpu-vendor": "nvidia",
    "node.koordinator.sh/gpu-model": "A100",
    "node.koordinator.sh/gpu-driver-version": "550.54",
}
REASON = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
"""Reasons of conditions that the API server admits."""


def gpu(minor: int, **fields: Any) -> FoundDevice:
    info = DeviceInfo(type="gpu", id=f"GPU-{minor}", minor=minor, resources={GPU_CORE: 100})
    return FoundDevice(info=info, **{"vendor": "nvidia", "model": "A100", "driver_version": "550.54"} | fields)


def document_of(device: Device) -> dict[str, Any]:
    return {"apiVersion": DEVICE.api_version, "kind": DEVICE.kind} | msgspec.to_builtins(device)


def stored(device: Device) -> dict[str, Any]:
    """The object as the API server hands it back."""
    document: dict[str, Any] = json.loads(json.dumps(document_of(device)))
    document["metadata"] |= {"resourceVersion": "7", "uid": "u"}
    return document


def test_labels_where_all_gpus_agree() -> None:
    assert device_object([gpu(0), gpu(1)], "n", "u", None, 0.0).metadata.labels == GPU_LABELS
    mixed = device_object([gpu(0), gpu(1, model="H100")], "n", "u", None, 0.0).metadata.labels
    assert set(GPU_LABELS) - set(mixed) == {"node.koordinator.sh/gpu-model"}
    assert device_object([], "n", "u", None, 0.0).metadata.labels == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("NVIDIA A100 (80 GB)", "NVIDIA-A100-80-GB", id="spaces"),
        pytest.param("x" * 62 + "-y", "x" * 62, id="long"),
        pytest.param("\u00fc", "", id="nothing-left"),
    ],
)
def test_label_value(text: str, value: str) -> None:
    assert label_value(text) == value


def test_the_node_owns_the_object() -> None:
    (owner,) = device_object([gpu(0)], "n", "uid-of-n", None, 0.0).metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Node", "n", "uid-of-n", True)


def test_a_condition_keeps_its_time_while_its_status_holds() -> None:
    first = device_object([gpu(0)], "n", "u", None, 100.0)
    later = device_object([gpu(0)], "n", "u", first.spec, 200.0)
    assert later == first
    ill = device_object([gpu(0, fault_code="XID-79", fault="gone")], "n", "u", later.spec, 300.0)
    (condition,) = ill.spec.devices[0].conditions
    assert (condition.status, condition.reason, condition.last_transition_time) == ("False", "XID_79", rfc3339(300.0))
    assert not ill.spec.devices[0].health
    assert device_object([gpu(0, fault_code="XID-79", fault="gone")], "n", "u", ill.spec, 400.0) == ill


@pytest.mark.parametrize("code", ["XID-79", "0x80", "", "---", "too hot", "NVML-15"])
def test_reasons_are_admitted(code: str) -> None:
    device = device_object([gpu(0, fault_code=code, fault="x" * 99_999)], "n", "u", None, 0.0)
    (condition,) = device.spec.devices[0].conditions
    assert REASON.match(condition.reason)
    assert len(condition.message) <= 32768


def test_nothing_is_written_while_nothing_changes() -> None:
    wanted = device_object([gpu(0)], "n", "u", None, 0.0)
    assert merged(stored(wanted), wanted) is None


def test_what_others_wrote_stays() -> None:
    document = stored(device_object([gpu(0), gpu(1)], "n", "u", None, 0.0))
    document["metadata"]["labels"] |= {"team": "a"}
    document["metadata"]["annotations"] = {"note": "b", "scheduling.koordinator.sh/gpu-partitions": "{}"}
    document["status"] = {"allocations": [{"type": "gpu"}]}
    document["metadata"]["finalizers"] = ["x/y"]
    changed = merged(document, device_object([gpu(0), gpu(1, model="H100")], "n", "u", None, 0.0))
    assert changed is not None
    meta = changed["metadata"]
    assert meta["labels"] == {key: value for key, value in GPU_LABELS.items() if "model" not in key} | {"team": "a"}
    assert meta["annotations"] == {"note": "b"}
    assert (meta["finalizers"], meta["resourceVersion"]) == (["x/y"], "7")
    assert changed["status"] == {"allocations": [{"type": "gpu"}]}


def nic(bus_id: str) -> FoundDevice:
    return FoundDevice(info=DeviceInfo(type="rdma", id=bus_id, resources={RDMA: 100}))


def minors(device: Device) -> dict[str, tuple[int, bool]]:
    return {info.id: (info.minor, info.health) for info in device.spec.devices}


def test_nics_keep_their_minors() -> None:
    first = device_object(numbered([nic("05"), nic("07")]), "n", "u", None, 0.0)
    assert minors(first) == {"05": (0, True), "07": (1, True)}
    more = device_object(numbered([nic("01"), nic("05"), nic("07")]), "n", "u", first.spec, 0.0)
    assert minors(more) == {"05": (0, True), "07": (1, True), "01": (2, True)}
    less = device_object(numbered([nic("01"), nic("07")]), "n", "u", more.spec, 0.0)
    assert minors(less) == {"05": (0, False), "07": (1, True), "01": (2, True)}


def test_a_device_that_is_not_found_stays_at_fault_until_another_has_its_minor() -> None:
    first = device_object([gpu(0), gpu(1)], "n", "u", None, 0.0)
    without_driver = device_object([], "n", "u", first.spec, 5.0)
    assert minors(without_driver) == {"GPU-0": (0, False), "GPU-1": (1, False)}
    assert without_driver.spec.devices[0].conditions[0].reason == "NotFound"
    assert device_object([], "n", "u", without_driver.spec, 9.0) == without_driver
    new_card = replace(gpu(1), info=msgspec.structs.replace(gpu(1).info, id="GPU-new"))
    assert minors(device_object([gpu(0), new_card], "n", "u", without_driver.spec, 9.0)) == {
        "GPU-0": (0, True),
        "GPU-new": (1, True),
    }


def test_no_object_is_made_for_no_devices() -> None:
    assert merged(None, device_object([], "n", "u", None, 0.0)) is None
    assert merged(None, device_object([gpu(0)], "n", "u", None, 0.0)) is not None


def test_an_object_that_cannot_be_read_is_written_anew() -> None:
    document = stored(device_object([gpu(0)], "n", "u", None, 0.0))
    document["spec"] = {"devices": "none"}
    assert read_spec(document) is None
    changed = merged(document, device_object([gpu(0)], "n", "u", None, 0.0))
    assert changed is not None
    assert len(changed["spec"]["devices"]) == 1


def test_minor_and_health_are_always_written() -> None:
    (info,) = document_of(device_object([gpu(0, fault="x")], "n", "u", None, 0.0))["spec"]["devices"]
    assert (info["minor"], info["health"]) == (0, False)


def found_devices(root: Path) -> list[FoundDevice]:
    """Eight GPUs of the stand-in, and a NIC with two virtual functions beside the first two GPUs."""
    tree = gpu_tree(root)
    add_pci(
        root, "0000:1a:00.0", complex_name="pci0000:30", numa_node="0", virtual=["0000:1a:00.2", "0000:1a:00.1"]
    )  # fmt: skip
    add_rdma(root, "mlx5_0", "0000:1a:00.0", {1: "4: ACTIVE"})
    nvml = Nvml(tree)
    try:
        return [*nvml.found(), *rdma_devices(tree)]
    finally:
        nvml.close()


def test_the_object_follows_the_schema_of_the_resource(standin: Standin, tmp_path: Path) -> None:
    standin.link(tuple(range(8)))
    schema = yaml.safe_load(Path("deploy/crds/devices.scheduling.koordinator.sh.yaml").read_text())
    root = schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    jsonschema.validate(document_of(device_object(found_devices(tmp_path), "n", "u", None, 0.0)), root)


def engine_with(device: Device, **labels: str) -> Engine:
    """A scheduler that knows one node and read its Device object from the wire."""
    offered = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: "800", RDMA: "100"}
    offered |= {GPU_CORE: "800", GPU_MEMORY_RATIO: "800", GPU_MEMORY: str(64 * GIB)}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": offered}}
    engine = Engine(SchedulerSettings())
    engine.on_node(Action.ADD, msgspec.convert(node, Node), 0.0)
    read = msgspec.json.decode(msgspec.json.encode(document_of(device)), type=Device)
    engine.on_object(ObjectEvent(DEVICES, Action.ADD, Key("", "n"), None, read), 0.0)
    return engine


def placed(engine: Engine, name: str, requests: dict[str, str], **annotations: str) -> dict[str, list[dict[str, Any]]]:
    """What the scheduler gives a pod; empty where it gives nothing."""
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "annotations": annotations},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1", **requests}}}],
        },
    }
    engine.on_pod(Action.ADD, msgspec.convert(document, Pod), 0.0)
    outcome = engine.schedule_one(0.0)
    assert outcome is not None
    text = outcome.info.annotation(ANNOTATION_DEVICE_ALLOCATED) if outcome.node else None
    found: dict[str, list[dict[str, Any]]] = json.loads(text or "{}")
    return found


def test_the_scheduler_gives_out_what_was_found(standin: Standin, tmp_path: Path) -> None:
    engine = engine_with(device_object(found_devices(tmp_path), "n", "u", None, 0.0))
    half = placed(engine, "half", {GPU: "50"})
    assert half == {
        "gpu": [
            {
                "minor": 0,
                "id": "GPU-00000000-0000-0000-0000-000000000000",
                "resources": {GPU_CORE: "50", GPU_MEMORY_RATIO: "50", GPU_MEMORY: str(4 * GIB)},
            }
        ]
    }
    four = placed(engine, "four", {GPU: "400"})
    assert [share["minor"] for share in four["gpu"]] == [4, 5, 6, 7], "the GPUs of one NUMA node"
    by_bytes = placed(engine, "bytes", {GPU_MEMORY: str(2 * GIB)})
    assert by_bytes["gpu"][0]["resources"][GPU_MEMORY_RATIO] == "25"
    assert placed(engine, "too-much", {GPU: "400"}) == {}


def test_the_scheduler_gives_no_gpu_at_fault(standin: Standin, tmp_path: Path) -> None:
    found = found_devices(tmp_path)
    lost = [replace(device, fault="lost") if device.info.id.startswith("GPU-00000000") else device for device in found]
    engine = engine_with(device_object(lost, "n", "u", None, 0.0))
    assert [share["minor"] for share in placed(engine, "one", {GPU: "100"})["gpu"]] != [0]
    assert placed(engine, "eight", {GPU: "800"}) == {}


def test_the_scheduler_reads_the_partitions(standin: Standin, tmp_path: Path) -> None:
    standin.link((0, 1), (2, 3), (4, 5, 6, 7))
    device = device_object(found_devices(tmp_path), "n", "u", None, 0.0)
    table = read_partitions(device.metadata.annotations)
    assert table is not None
    assert {size: [partition.minors for partition in found] for size, found in table.items() if size > 1} == {
        2: [[0, 1], [2, 3], [4, 5], [6, 7]],
        4: [[4, 5, 6, 7]],
    }
    engine = engine_with(device, **{"node.koordinator.sh/gpu-partition-policy": "Honor"})
    assert [share["minor"] for share in placed(engine, "four", {GPU: "400"})["gpu"]] == [4, 5, 6, 7]
    assert placed(engine, "eight", {GPU: "800"}) == {}


@pytest.mark.parametrize("minors", [(1, 0), (-1, -1)], ids=["own", "as-koordinator-reports"])
def test_the_scheduler_gives_each_virtual_function_once(
    standin: Standin, tmp_path: Path, minors: tuple[int, int]
) -> None:
    device = device_object(found_devices(tmp_path), "n", "u", None, 0.0)
    text = msgspec.json.encode(device).replace(b'"minor":1,"busID"', b'"minor":%d,"busID"' % minors[0])
    text = text.replace(b'"minor":0,"busID"', b'"minor":%d,"busID"' % minors[1])
    engine = engine_with(msgspec.json.decode(text, type=Device))
    hint = {ANNOTATION_DEVICE_ALLOCATE_HINT: '{"rdma":{"vfSelector":{}}}'}
    given = [placed(engine, name, {RDMA: "10"}, **hint) for name in ("a", "b", "c")]
    assert [share["rdma"][0]["extension"]["vfs"] for share in given[:2]] == [
        [{"minor": minors[0], "busID": "0000:1a:00.1"}],
        [{"minor": minors[1], "busID": "0000:1a:00.2"}],
    ]
    assert given[2] == {}
