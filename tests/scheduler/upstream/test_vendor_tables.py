"""Koordinator's tables of its adapters for device plugins of vendors, row by row."""

from typing import Any

import msgspec
import pytest

from api.kube.device import Device
from api.kube.objects import Pod
from api.kube.resources import parse_quantity
from api.kube.times import rfc3339
from api.protocol import (
    ANNOTATION_BIND_TIMESTAMP,
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_GPU_MINORS,
    FPGA,
    GPU_CORE,
    GPU_MEMORY,
    LABEL_GPU_ISOLATION_PROVIDER,
    LABEL_NODE_GPU_VENDOR,
)
from cluster.resources import Key
from scheduler.devices.candidates import DeviceError
from scheduler.devices.inventory import Grant
from scheduler.devices.request import DeviceKind
from scheduler.devices.vendors import LABEL_HAMI_NODE, GivenGpu, gpu_annotations
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Verb, Write
from scheduler.plugins.deviceshare import DEVICES, DeviceShare
from tests.schedobjects import engine, node, pod
from tests.scheduler.upstream.reading import table

TABLES = table("vendors")
NOW = 1_000_000.0
KEYS = {"minors": ANNOTATION_GPU_MINORS, "time": ANNOTATION_BIND_TIMESTAMP}


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in TABLES[name]]


def given(minor: int, id_: str = "", core: int = 0, memory: str | int = 0, template: str = "") -> GivenGpu:
    amounts = {GPU_CORE: core, GPU_MEMORY: parse_quantity(memory)}
    grant = Grant(DeviceKind.GPU, minor, {name: amount for name, amount in amounts.items() if amount}, (), template)
    return GivenGpu(grant, id_)


@pytest.mark.parametrize("case", cases("adapt"))
def test_what_plugins_are_told(case: dict[str, Any]) -> None:
    gpus = [given(*each) for each in case["gpus"]]
    if "refused" in case:
        with pytest.raises(DeviceError, match=case["refused"]):
            gpu_annotations(gpus, case["vendor"], case.get("model", ""))
        return
    told = {KEYS.get(key, key): value for key, value in case["told"].items()}
    assert gpu_annotations(gpus, case["vendor"], case.get("model", "")) == told


def made_for(case: dict[str, Any], node_labels: dict[str, str]) -> Engine:
    annotations: dict[str, str] = {}
    placed: list[Pod] = []
    if "lock" in case:
        age, present = case["lock"]
        annotations = {"cambricon.com/dsmlu.lock": f"{rfc3339(NOW - age)},default,existing"}
        placed = [pod("existing", nodeName="n")] if present else []
    offered = {GPU_CORE: "100", GPU_MEMORY: "16Gi", "koordinator.sh/gpu-memory-ratio": "100", FPGA: "100"}
    config = {"deviceshare": {"device_plugin_adaption": True}}
    there = node("n", allocatable=offered, annotations=annotations, labels=node_labels)
    made = engine([there], placed, kinds={"deviceshare": DeviceShare}, plugins=config)
    gpu = {name: amount for name, amount in offered.items() if name != FPGA}
    devices = [
        {"type": "gpu", "id": "GPU-0", "minor": 0, "health": True, "resources": gpu},
        {"type": "fpga", "minor": 0, "health": True, "resources": {FPGA: "100"}},
    ]
    labels = {LABEL_NODE_GPU_VENDOR: case["vendor"]}
    device = msgspec.convert({"metadata": {"name": "n", "labels": labels}, "spec": {"devices": devices}}, Device)
    made.on_object(ObjectEvent(DEVICES, Action.ADD, Key("", "n"), None, device), NOW)
    return made


@pytest.mark.parametrize("case", cases("bind"))
def test_what_is_written_with_a_binding(case: dict[str, Any]) -> None:
    labels = {LABEL_GPU_ISOLATION_PROVIDER: case["isolation"]} if "isolation" in case else {}
    made = made_for(case, labels)
    asked = {FPGA: 100} if "fpga" in case else {GPU_CORE: 5, GPU_MEMORY: "1Gi"}
    made.on_pod(Action.ADD, pod("p", asked, labels=labels), NOW)
    outcome = made.schedule_one(NOW)
    assert outcome is not None
    if case["told"] == "refused":
        assert "node n is locked for pod default/existing" in outcome.message
        assert not made.bindings
        return
    (binding,) = made.bindings
    told = {KEYS.get(key, key) for key in case["told"]}
    assert outcome.info.patch.keys() - {ANNOTATION_DEVICE_ALLOCATED} == told
    assert all(
        outcome.info.patch[key] == str(int(NOW * 1e9))
        for key in (ANNOTATION_BIND_TIMESTAMP, "predicate-time")
        if key in told
    )
    patches = {write.resource.plural: body(write) for write in binding.writes if write.verb is Verb.PATCH}
    expected: dict[str, Any] = {}
    if "locks" in case:
        expected["nodes"] = {"annotations": {case["locks"]: f"{rfc3339(NOW)},default,p"}}
    if "isolation" in case:
        expected["pods"] = {"uid": "uid-p", "labels": {LABEL_HAMI_NODE: "n"}}
    assert patches == expected


def body(write: Write) -> Any:
    patch: Any = write.body
    return patch.body["metadata"]
