"""DeviceShare in the engine: annotations, reasons, restarts, reservations, scoring, and never over 100 percent."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.crds import RESERVATION
from api.kube.device import Device
from api.kube.objects import Node, Pod
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_DEVICE_JOINT_ALLOCATE,
    ANNOTATION_RESERVATION_ALLOCATED,
    GPU,
    GPU_MEMORY_RATIO,
    LABEL_NODE_GPU_PARTITION_POLICY,
    LABEL_NODE_GPU_VENDOR,
    RDMA,
    SCHEDULER_NAME,
)
from cluster.resources import NODES, Key, custom
from scheduler.devices.request import DeviceKind
from scheduler.engine import Engine
from scheduler.framework import Action, Attempt, ObjectEvent, Restored
from scheduler.outcome import AttemptOutcome, Result
from scheduler.plugins.deviceshare import DEVICES, DeviceShare
from scheduler.profile import SchedulerSettings


def make_node(name: str, gpus: int, cpu: int = 64, annotations: dict[str, str] | None = None, **labels: str) -> Node:
    allocatable = {"cpu": str(cpu), "memory": "256Gi", "pods": "110", GPU: str(100 * gpus), RDMA: "800"}
    metadata = {"name": name, "labels": labels, "annotations": annotations or {}}
    document = {"metadata": metadata, "status": {"allocatable": allocatable}}
    return msgspec.convert(document, Node)


def make_device(name: str, gpus: int, nics: int = 0) -> Device:
    gpu = {"koordinator.sh/gpu-core": "100", GPU_MEMORY_RATIO: "100", "koordinator.sh/gpu-memory": "16Gi"}
    devices: list[dict[str, Any]] = []
    for minor in range(gpus):
        place = {"nodeID": minor // 4, "pcieID": str(minor // 2), "socketID": 0, "busID": ""}
        devices.append({"type": "gpu", "minor": minor, "health": True, "resources": gpu, "topology": place})
    for minor in range(nics):
        place = {"nodeID": 0, "pcieID": str(minor), "socketID": 0, "busID": ""}
        devices.append(
            {
                "type": "rdma",
                "minor": minor,
                "id": f"nic{minor}",
                "health": True,
                "resources": {RDMA: "100"},
                "topology": place,
            }
        )
    return msgspec.convert({"metadata": {"name": name}, "spec": {"devices": devices}}, Device)


def make_pod(name: str, requests: dict[str, Any], *, node: str = "", **annotations: Any) -> Pod:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": annotations},
            "spec": {
                "schedulerName": SCHEDULER_NAME,
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": {k: str(v) for k, v in requests.items()}}}],
            },
        },
        Pod,
    )


def make_engine(nodes: dict[str, int], *, nics: int = 0, plugin: dict[str, Any] | None = None, **labels: str) -> Engine:
    engine = Engine(SchedulerSettings(plugins={"deviceshare": plugin or {}}))
    for name, gpus in nodes.items():
        engine.on_node(Action.ADD, make_node(name, gpus, **labels), 0.0)
        report(engine, make_device(name, gpus, nics))
    return engine


def report(engine: Engine, device: Device) -> None:
    key = Key("", device.metadata.name)
    engine.on_object(ObjectEvent(DEVICES, Action.UPDATE, key, None, device), 0.0)


def place(engine: Engine, pod: Pod) -> AttemptOutcome:
    engine.on_pod(Action.ADD, pod, 0.0)
    outcome = engine.schedule_one(0.0)
    assert outcome is not None
    return outcome


def allocated(outcome: AttemptOutcome) -> dict[str, list[int]]:
    payload = json.loads(outcome.info.annotation(ANNOTATION_DEVICE_ALLOCATED) or "{}")
    return {kind: [entry["minor"] for entry in entries] for kind, entries in payload.items()}


def test_annotation_names_minor_and_resources() -> None:
    outcome = place(make_engine({"n": 2}), make_pod("p", {"cpu": 1, GPU: 50}))
    payload = json.loads(outcome.info.annotation(ANNOTATION_DEVICE_ALLOCATED) or "")
    assert payload == {
        "gpu": [
            {
                "minor": 0,
                "resources": {
                    "koordinator.sh/gpu-core": "50",
                    "koordinator.sh/gpu-memory-ratio": "50",
                    "koordinator.sh/gpu-memory": str(8 << 30),
                },
            }
        ]
    }


def test_reasons_name_the_shortage() -> None:
    engine = make_engine({"n": 2})
    assert place(engine, make_pod("a", {GPU: 60})).node == "n"
    assert place(engine, make_pod("b", {GPU: 60})).node == "n"
    outcome = place(engine, make_pod("c", {GPU: 60}))
    assert outcome.result is Result.UNSCHEDULABLE
    assert "Insufficient gpu devices" in outcome.message


def test_contradictory_request_is_refused_for_good() -> None:
    outcome = place(make_engine({"n": 2}), make_pod("a", {"koordinator.sh/gpu-core": 50}))
    assert "do not go together" in outcome.message


def test_running_pods_are_charged_after_a_restart_and_given_back() -> None:
    first = make_engine({"n": 1})
    outcome = place(first, make_pod("a", {GPU: 60}))
    text = outcome.info.annotation(ANNOTATION_DEVICE_ALLOCATED) or ""
    second = make_engine({"n": 1})
    bound = make_pod("a", {GPU: 60}, node="n", **{ANNOTATION_DEVICE_ALLOCATED: text})
    second.on_pod(Action.ADD, bound, 0.0)
    assert place(second, make_pod("b", {GPU: 60})).result is Result.UNSCHEDULABLE
    second.on_pod(Action.DELETE, bound, 0.0)
    assert place(second, make_pod("c", {GPU: 60})).node == "n"


def test_pods_known_before_the_devices_count() -> None:
    engine = Engine()
    engine.on_node(Action.ADD, make_node("n", 1), 0.0)
    text = json.dumps({"gpu": [{"minor": 0, "resources": {GPU_MEMORY_RATIO: "100", "koordinator.sh/gpu-core": "100"}}]})
    engine.on_pod(Action.ADD, make_pod("a", {GPU: 100}, node="n", **{ANNOTATION_DEVICE_ALLOCATED: text}), 0.0)
    report(engine, make_device("n", 1))
    assert place(engine, make_pod("b", {GPU: 10})).result is Result.UNSCHEDULABLE


def test_devices_reported_before_the_node() -> None:
    engine = Engine()
    report(engine, make_device("n", 1))
    engine.on_node(Action.ADD, make_node("n", 1), 0.0)
    assert allocated(place(engine, make_pod("a", {GPU: 100}))) == {"gpu": [0]}


def test_device_that_falls_ill_is_not_given() -> None:
    engine = make_engine({"n": 2})
    healthy = make_device("n", 2)
    ill = msgspec.structs.replace(healthy.spec.devices[0], health=False)
    report(engine, msgspec.structs.replace(healthy, spec=type(healthy.spec)(devices=[ill, healthy.spec.devices[1]])))
    assert allocated(place(engine, make_pod("a", {GPU: 100}))) == {"gpu": [1]}
    assert place(engine, make_pod("b", {GPU: 100})).result is Result.UNSCHEDULABLE


def test_joint_allocation_follows_the_switch() -> None:
    engine = make_engine({"n": 8}, nics=4)
    joint = {ANNOTATION_DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}'}
    place(engine, make_pod("a", {GPU: 200}))
    outcome = place(engine, make_pod("b", {GPU: 200, RDMA: 100}, **joint))
    assert allocated(outcome) == {"gpu": [2, 3], "rdma": [1]}


def test_honored_partitions_bind_the_filter() -> None:
    labels = {LABEL_NODE_GPU_PARTITION_POLICY: "Honor", "node.koordinator.sh/gpu-model": "H100"}
    engine = make_engine({"n": 8}, **labels)
    assert allocated(place(engine, make_pod("a", {GPU: 100}))) == {"gpu": [0]}
    assert allocated(place(engine, make_pod("b", {GPU: 400}))) == {"gpu": [4, 5, 6, 7]}
    assert allocated(place(engine, make_pod("c", {GPU: 200}))) == {"gpu": [2, 3]}
    refused = place(engine, make_pod("d", {GPU: 300}))
    assert refused.result is Result.UNSCHEDULABLE


def test_model_that_cannot_be_shared() -> None:
    labels = {"node.koordinator.sh/gpu-model": "Ascend-910B", "node.koordinator.sh/gpu-vendor": "huawei"}
    engine = make_engine({"n": 2}, plugin={"gpu_share_unsupported_models": [{"vendor": "huawei"}]}, **labels)
    assert "cannot be shared" in place(engine, make_pod("a", {GPU: 50})).message
    assert place(engine, make_pod("b", {GPU: 100})).node == "n"


def test_a_more_important_pod_evicts_for_a_gpu_and_finds_it_free() -> None:
    engine = make_engine({"n": 1})
    held = json.dumps({"gpu": [{"minor": 0, "resources": {GPU_MEMORY_RATIO: "100", "koordinator.sh/gpu-core": "100"}}]})
    victim = make_pod("victim", {GPU: 100}, node="n", **{ANNOTATION_DEVICE_ALLOCATED: held})
    engine.on_pod(Action.ADD, victim, 0.0)
    plain = make_pod("urgent", {GPU: 50})
    urgent = msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, priority=1000))
    assert [info.uid for info in place(engine, urgent).victims] == ["victim"]
    engine.on_pod(Action.DELETE, victim, 1.0)
    outcome = engine.schedule_one(20.0)
    assert outcome is not None
    assert allocated(outcome) == {"gpu": [0]}


def test_a_reservation_object_keeps_its_gpu_for_its_owners() -> None:
    engine = make_engine({"n": 2})
    template = {
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "2", GPU: "100"}}}],
        }
    }
    owners = [{"labelSelector": {"matchLabels": {"app": "x"}}}]
    spec = {"ttl": "0s", "owners": owners, "allocateOnce": False, "template": template}
    reservation = msgspec.convert({"metadata": {"name": "r", "uid": "ruid"}, "spec": spec}, RESERVATION.model)
    engine.on_object(ObjectEvent(custom(RESERVATION), Action.ADD, Key("", "r"), None, reservation), 1.0)
    kept = engine.schedule_one(1.0)
    assert kept is not None
    while engine.bindings:
        engine.bound(engine.bindings.popleft(), 1.0)
    engine.tick(2.0)
    (minor,) = allocated(kept)["gpu"]
    assert allocated(place(engine, make_pod("stranger", {GPU: 100}))) == {"gpu": [1 - minor]}
    assert place(engine, make_pod("another", {GPU: 50})).result is Result.UNSCHEDULABLE
    owner = make_pod("owner", {GPU: 50})
    labelled = msgspec.structs.replace(owner.metadata, labels={"app": "x"})
    engine.on_pod(Action.DELETE, make_pod("another", {GPU: 50}), 2.0)
    assert allocated(place(engine, msgspec.structs.replace(owner, metadata=labelled))) == {"gpu": [minor]}


NPU_SHARE = {"huawei.com/npu-core": 3, "huawei.com/npu-cpu": 1, "koordinator.sh/gpu-memory": 4 << 30}


def npu_engine(templates: dict[str, dict[str, str]]) -> Engine:
    labels = {"node.koordinator.sh/gpu-model": "Ascend-310P3", "node.koordinator.sh/gpu-vendor": "huawei"}
    plugin = {"gpu_shared_resource_templates": {"huawei-Ascend-310P3": templates}}
    engine = Engine(SchedulerSettings(plugins={"deviceshare": plugin}))
    node = make_node("n", 1, **labels)
    extra = {"huawei.com/npu-core": "8", "huawei.com/npu-cpu": "7", "koordinator.sh/gpu-memory": "24Gi"}
    status = msgspec.structs.replace(node.status, allocatable=node.status.allocatable | extra)
    engine.on_node(Action.ADD, msgspec.structs.replace(node, status=status), 0.0)
    card = {"type": "gpu", "minor": 0, "health": True, "resources": extra | {GPU_MEMORY_RATIO: "100"}}
    report(engine, msgspec.convert({"metadata": {"name": "n"}, "spec": {"devices": [card]}}, Device))
    return engine


def test_shared_npu_takes_the_smallest_template_that_covers() -> None:
    engine = npu_engine(
        {
            "vir02": {"huawei.com/npu-core": "2", "huawei.com/npu-cpu": "2", "koordinator.sh/gpu-memory": "6Gi"},
            "vir04": {"huawei.com/npu-core": "4", "huawei.com/npu-cpu": "4", "koordinator.sh/gpu-memory": "12Gi"},
            "vir04_3c": {"huawei.com/npu-core": "4", "huawei.com/npu-cpu": "3", "koordinator.sh/gpu-memory": "12Gi"},
        }
    )
    for name in ("a", "b"):
        outcome = place(engine, make_pod(name, NPU_SHARE))
        (entry,) = json.loads(outcome.info.annotation(ANNOTATION_DEVICE_ALLOCATED) or "")["gpu"]
        assert entry["extension"] == {"gpuSharedResourceTemplate": "vir04_3c"}
        assert entry["resources"]["huawei.com/npu-core"] == "4"
    assert place(engine, make_pod("c", NPU_SHARE)).result is Result.UNSCHEDULABLE


def test_share_that_no_template_covers_is_refused() -> None:
    engine = npu_engine({"vir01": {"huawei.com/npu-core": "1", "huawei.com/npu-cpu": "1"}})
    assert place(engine, make_pod("a", NPU_SHARE)).result is Result.UNSCHEDULABLE


def restored(engine: Engine, pod: Pod, holder: str) -> Attempt:
    """An attempt of a pod that may use what a reservation's stand-in holds."""
    attempt = engine.cycle.attempt(engine.classes.info(pod), 0.0)
    placement = engine.snapshot.pods[holder]
    share = Restored(placement.info, engine.snapshot.vector(placement.info))
    attempt.restored = {placement.row: [share]}
    return attempt


def test_pod_uses_what_its_reservation_holds_and_both_count_once() -> None:
    engine = make_engine({"n": 2})
    share = engine.plugins["DeviceShare"]
    assert isinstance(share, DeviceShare)
    held = json.dumps({"gpu": [{"minor": 1, "resources": {GPU_MEMORY_RATIO: "100", "koordinator.sh/gpu-core": "100"}}]})
    engine.on_pod(Action.ADD, make_pod("resv", {GPU: 100}, node="n", **{ANNOTATION_DEVICE_ALLOCATED: held}), 0.0)
    place(engine, make_pod("other", {GPU: 100}))
    attempt = restored(engine, make_pod("owner", {GPU: 100}), "resv")
    attempt.pod.patch[ANNOTATION_RESERVATION_ALLOCATED] = '{"name":"r","uid":"resv"}'
    spec = share.prepare(attempt.pod)
    assert spec is not None
    bits = share.filter(attempt, spec, slice(0, 1))
    assert bits is not None
    assert bits[0] == 0
    assert share.reserve(attempt, spec, 0) is None
    engine.snapshot.add_pod(attempt.pod, 0, assumed=True)
    ledger = share.ledger.nodes[0]
    assert ledger.used(ledger.of_kind(DeviceKind.GPU)[1])["koordinator.sh/gpu-core"] == 100
    engine.on_pod(Action.DELETE, engine.snapshot.pods["resv"].info.pod, 0.0)
    assert ledger.used(ledger.of_kind(DeviceKind.GPU)[1])["koordinator.sh/gpu-core"] == 100


@pytest.mark.parametrize(
    ("strategy", "expected"), [("LeastAllocated", "empty"), ("MostAllocated", "used"), ("Fragmentation", "used")]
)
def test_strategies(strategy: str, expected: str) -> None:
    mix = [
        {"cpu_millicores": 1000, "gpu_percent": 50, "gpus": 1},
        {"cpu_millicores": 1000, "gpu_percent": 100, "gpus": 1},
    ]
    plugin: dict[str, Any] = {"scoring_strategy": strategy, "weight": 100, "workload": mix}
    engine = make_engine({"used": 2}, plugin=plugin)
    assert place(engine, make_pod("a", {"cpu": 1, GPU: 50})).node == "used"
    engine.on_node(Action.ADD, make_node("empty", 2), 0.0)
    report(engine, make_device("empty", 2))
    assert place(engine, make_pod("b", {"cpu": 1, GPU: 50})).node == expected


def test_fragmentation_learns_the_mix_from_arrivals() -> None:
    engine = make_engine({"a": 2, "b": 2}, plugin={"scoring_strategy": "Fragmentation", "weight": 100})
    nodes = []
    for number in range(4):
        engine.on_pod(Action.ADD, make_pod(f"p{number}", {"cpu": 1, GPU: 50}), 0.0)
    engine.tick(1.0)
    while (outcome := engine.schedule_one(1.0)) is not None:
        nodes.append((outcome.node, *allocated(outcome)["gpu"]))
    assert len(set(nodes)) == 2


def test_summaries_show_allocation() -> None:
    engine = make_engine({"n": 1})
    place(engine, make_pod("a", {GPU: 60}))
    routes = engine.plugins["DeviceShare"].routes()
    shown = routes["nodeDeviceSummaries/{name}"]("n")
    assert shown["devices"][0]["free"][GPU_MEMORY_RATIO] == 40
    assert set(routes["nodeDeviceSummaries"]()["n"]["allocateSet"]) == {"a"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([10, 33, 50, 81, 100, 200, 400, 800]), st.booleans()), max_size=30),
    st.sampled_from(["LeastAllocated", "MostAllocated", "Fragmentation"]),
)
def test_no_device_over_100_percent_under_arrivals_and_departures(
    events: list[tuple[int, bool]], strategy: str
) -> None:
    engine = make_engine({"a": 8, "b": 2}, plugin={"scoring_strategy": strategy})
    plugin = engine.plugins["DeviceShare"]
    assert isinstance(plugin, DeviceShare)
    placed: list[Pod] = []
    for number, (percent, leaves) in enumerate(events):
        pod = make_pod(f"p{number}", {"cpu": 1, GPU: percent})
        if place(engine, pod).node:
            placed.append(pod)
        if leaves and placed:
            gone = placed.pop(0)
            engine.on_pod(Action.DELETE, gone, 0.0)
        for ledger in plugin.ledger.nodes.values():
            used: dict[int, int] = {}
            for held in ledger.holders.values():
                for grant in held.grants:
                    used[grant.minor] = used.get(grant.minor, 0) + grant.amounts["koordinator.sh/gpu-core"]
            assert all(amount <= 100 for amount in used.values())
        held_by = {uid for ledger in plugin.ledger.nodes.values() for uid in ledger.holders}
        assert held_by == {pod.metadata.uid for pod in placed}


def test_a_plugin_that_serves_one_pod_at_a_time_keeps_further_ones_away_until_it_has_served() -> None:
    labels = {LABEL_NODE_GPU_VENDOR: "metax"}
    engine = make_engine({"n": 2}, plugin={"device_plugin_adaption": True}, **labels)
    first = place(engine, make_pod("a", {GPU: 50}))
    assert json.loads(first.info.patch["metax-tech.com/gpu-devices-allocated"])[0][0]["compute"] == 50
    (lock,) = (write for write in engine.bindings.popleft().writes if write.resource is NODES)
    patch: Any = lock.body
    shown = patch.body["metadata"]["annotations"]
    second = place(engine, make_pod("b", {GPU: 50}))
    assert "node n is locked for pod ns/a" in second.message
    for now, annotations, placed in ((60.0, shown, False), (120.0, {}, True)):
        engine.on_node(Action.UPDATE, make_node("n", 2, annotations=annotations, **labels), now)
        outcome = engine.schedule_one(now)
        assert bool(engine.bindings) is placed, outcome


def test_a_plugin_that_cannot_give_what_was_asked_for_is_told_nothing() -> None:
    engine = make_engine({"n": 2}, plugin={"device_plugin_adaption": True}, **{LABEL_NODE_GPU_VENDOR: "cambricon"})
    outcome = place(engine, make_pod("a", {GPU: 200}))
    assert outcome.message.endswith("Cambricon's device plugin shares one card with a pod, not 2.")
    assert not engine.bindings


def test_plugins_are_told_nothing_unless_it_is_on() -> None:
    outcome = place(make_engine({"n": 2}, **{LABEL_NODE_GPU_VENDOR: "metax"}), make_pod("a", {GPU: 50}))
    assert outcome.info.patch.keys() == {ANNOTATION_DEVICE_ALLOCATED}
