"""NodeNUMAResource in the engine: cpusets in the annotation, policies, restarts, alignment, exclusivity."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.cpuset import parse_cpuset
from api.kube.device import Device
from api.kube.numa import NodeResourceTopology
from api.kube.objects import Node, Pod
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_NODE_AMPLIFICATION,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_NUMA_TOPOLOGY_SPEC,
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    GPU,
    LABEL_NODE_CPU_BIND_POLICY,
    LABEL_NODE_NUMA_TOPOLOGY_POLICY,
    LABEL_QOS_CLASS,
    SCHEDULER_NAME,
)
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent, Restored
from scheduler.numa.topology import CpuTopology
from scheduler.outcome import AttemptOutcome, Result
from scheduler.plugins.deviceshare import DEVICES
from scheduler.plugins.nodenumaresource import TOPOLOGIES, NodeNUMAResource
from scheduler.profile import SchedulerSettings

SHAPE = (2, 1, 4, 2)
FULL_ONLY = {LABEL_NODE_CPU_BIND_POLICY: "FullPCPUsOnly"}
SINGLE = {LABEL_NODE_NUMA_TOPOLOGY_POLICY: "SingleNUMANode"}


def make_node(name: str, cpus: int, labels: dict[str, str], annotations: dict[str, str]) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "status": {"allocatable": {"cpu": str(cpus), "memory": "64Gi", "pods": "110", GPU: "400"}},
        },
        Node,
    )


def make_report(name: str, shape: tuple[int, int, int, int] = SHAPE, **annotations: str) -> NodeResourceTopology:
    topology = CpuTopology.regular(*shape)
    detail = [{"id": c.id, "core": c.core, "socket": c.socket, "node": c.node} for c in topology.cpus.values()]
    per_node = len(topology.cpus) // len(topology.numa_nodes)
    zones = [
        {
            "name": f"node-{node}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "allocatable": str(per_node)},
                {"name": "memory", "allocatable": "32Gi"},
            ],
        }
        for node in topology.numa_nodes
    ]
    notes = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})} | annotations
    return msgspec.convert({"metadata": {"name": name, "annotations": notes}, "zones": zones}, NodeResourceTopology)


def make_pod(
    name: str, cpu: str, qos: str = "LSR", *, node: str = "", memory: str = "1Gi", gpu: int = 0, **notes: Any
) -> Pod:
    requests = {"cpu": cpu, "memory": memory} | ({GPU: str(gpu)} if gpu else {})
    annotations = {key: value if isinstance(value, str) else json.dumps(value) for key, value in notes.items()}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": name,
                "labels": {LABEL_QOS_CLASS: qos},
                "annotations": annotations,
            },
            "spec": {
                "schedulerName": SCHEDULER_NAME,
                "nodeName": node,
                "priority": 9500,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
        },
        Pod,
    )


def make_engine(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    reported: bool = True,
    config: dict[str, Any] | None = None,
    cpus: int = 16,
    **report: str,
) -> Engine:
    engine = Engine(SchedulerSettings(plugins={"nodenumaresource": config or {}}))
    engine.on_node(Action.ADD, make_node("n", cpus, labels or {}, annotations or {}), 0.0)
    if reported:
        engine.on_object(ObjectEvent(TOPOLOGIES, Action.ADD, Key("", "n"), None, make_report("n", **report)), 0.0)
    return engine


def place(engine: Engine, pod: Pod) -> AttemptOutcome:
    engine.on_pod(Action.ADD, pod, 0.0)
    outcome = engine.schedule_one(0.0)
    assert outcome is not None
    return outcome


def status(outcome: AttemptOutcome) -> dict[str, Any]:
    text = outcome.info.annotation(ANNOTATION_RESOURCE_STATUS)
    return json.loads(text) if text else {}


@pytest.mark.parametrize(
    ("spec", "cpu", "cpuset"),
    [
        pytest.param({}, "4", "0-3", id="no-policy"),
        pytest.param({"preferredCPUBindPolicy": "SpreadByPCPUs"}, "4", "0,2,4,6", id="spread"),
        pytest.param({"requiredCPUBindPolicy": "FullPCPUs"}, "2", "0-1", id="full"),
        pytest.param({"preferredCPUBindPolicy": "Default"}, "2", "0-1", id="default"),
        pytest.param({"preferredCPUBindPolicy": "ConstrainedBurst"}, "2", None, id="unknown-here"),
    ],
)
def test_latency_sensitive_pods_get_cpus(spec: dict[str, str], cpu: str, cpuset: str | None) -> None:
    outcome = place(make_engine(), make_pod("p", cpu, **{ANNOTATION_RESOURCE_SPEC: spec}))
    assert outcome.node == "n"
    assert status(outcome).get("cpuset") == cpuset


def test_amounts_by_numa_node_stand_in_the_annotation() -> None:
    outcome = place(make_engine(), make_pod("p", "12"))
    assert status(outcome)["numaNodeResources"] == [
        {"node": 0, "resources": {"cpu": "8"}},
        {"node": 1, "resources": {"cpu": "4"}},
    ]


@pytest.mark.parametrize("qos", ["LS", "BE"])
def test_shared_pods_get_none(qos: str) -> None:
    assert status(place(make_engine(), make_pod("p", "2", qos))) == {}


def test_no_default_policy_leaves_pods_unbound() -> None:
    engine = make_engine(config={"default_cpu_bind_policy": ""})
    assert status(place(engine, make_pod("p", "2"))) == {}


@pytest.mark.parametrize(
    ("engine", "pod", "sentence"),
    [
        pytest.param({}, make_pod("p", "1500m"), "must be integer", id="half-a-cpu"),
        pytest.param({"reported": False}, make_pod("p", "2"), "valid CPU topology", id="no-topology"),
        pytest.param({"labels": FULL_ONLY}, make_pod("p", "1500m", "LS"), "not integer", id="half-a-cpu-by-node-label"),
        pytest.param({"labels": FULL_ONLY}, make_pod("p", "3", "LS"), "threads per core", id="half-a-core"),
        pytest.param(
            {"labels": FULL_ONLY},
            make_pod("p", "2", **{ANNOTATION_RESOURCE_SPEC: {"requiredCPUBindPolicy": "SpreadByPCPUs"}}),
            "conflicts",
            id="pod-against-node-binding",
        ),
        pytest.param(
            {"labels": SINGLE},
            make_pod("p", "2", "LS", **{ANNOTATION_NUMA_TOPOLOGY_SPEC: {"numaTopologyPolicy": "Restricted"}}),
            "conflicts",
            id="pod-against-node-numa",
        ),
        pytest.param(
            {"labels": SINGLE}, make_pod("p", "10", "LS"), "NUMA topology affinity", id="too-much-for-one-node"
        ),
        pytest.param(
            {"cpus": 32},
            make_pod("p", "9", **{ANNOTATION_RESOURCE_SPEC: {"requiredCPUBindPolicy": "SpreadByPCPUs"}}),
            "Insufficient CPUs to bind",
            id="too-few-cores",
        ),
    ],
)
def test_refusals_say_why(engine: dict[str, Any], pod: Pod, sentence: str) -> None:
    outcome = place(make_engine(**engine), pod)
    assert outcome.result is Result.UNSCHEDULABLE
    assert sentence in outcome.message


def test_node_policy_binds_every_pod() -> None:
    assert status(place(make_engine(labels=FULL_ONLY), make_pod("p", "2", "LS")))["cpuset"] == "0-1"


def test_withheld_cpus_are_not_given() -> None:
    engine = make_engine(
        annotations={ANNOTATION_NODE_RESERVATION: json.dumps({"reservedCPUs": "0-1"})},
        **{
            "kubelet.koordinator.sh/cpu-manager-policy": json.dumps({"policy": "static", "reservedCPUs": "2"}),
            "node.koordinator.sh/pod-cpu-allocs": json.dumps([{"cpuset": "4-5", "managedByKubelet": True}]),
        },
    )
    assert status(place(engine, make_pod("p", "6")))["cpuset"] == "8-13"
    given = status(place(engine, make_pod("q", "5")))["cpuset"]
    assert not parse_cpuset(given) & {0, 1, 2, 4, 5}


def test_running_pods_are_charged_after_a_restart_and_given_back() -> None:
    engine = make_engine()
    bound = make_pod("a", "12", node="n", **{ANNOTATION_RESOURCE_STATUS: {"cpuset": "0-11"}})
    engine.on_pod(Action.ADD, bound, 0.0)
    assert status(place(engine, make_pod("b", "4")))["cpuset"] == "12-15"
    engine.on_pod(Action.DELETE, bound, 0.0)
    assert status(place(engine, make_pod("c", "8")))["cpuset"] == "0-7"


def test_amplified_node_charges_bound_pods_by_the_ratio() -> None:
    amplified = {ANNOTATION_NODE_AMPLIFICATION: '{"cpu":1.5}'}
    engine = make_engine(annotations=amplified, cpus=24)
    assert place(engine, make_pod("a", "8")).node == "n"
    assert place(engine, make_pod("b", "13", "LS")).result is Result.UNSCHEDULABLE
    assert place(engine, make_pod("c", "12", "LS")).node == "n"


def test_single_numa_node_keeps_a_pod_on_one_node() -> None:
    engine = make_engine(labels=SINGLE)
    first = status(place(engine, make_pod("a", "6", "LS", memory="20Gi")))["numaNodeResources"]
    second = status(place(engine, make_pod("b", "6", "LS", memory="20Gi")))["numaNodeResources"]
    assert [len(first), len(second)] == [1, 1]
    assert {entry["node"] for entry in (*first, *second)} == {0, 1}
    assert place(engine, make_pod("c", "2", "LS", memory="13Gi")).result is Result.UNSCHEDULABLE
    assert place(engine, make_pod("d", "2", "LS", memory="10Gi")).node == "n"


def test_bound_and_aligned_pod_has_its_cpus_on_the_chosen_node() -> None:
    engine = make_engine(labels=SINGLE)
    place(engine, make_pod("a", "5", "LS"))
    given = status(place(engine, make_pod("b", "4")))
    assert given["cpuset"] == "8-11"


def test_devices_and_cpus_meet_on_one_numa_node() -> None:
    engine = make_engine(labels=SINGLE)
    gpus = [
        {
            "type": "gpu",
            "minor": minor,
            "health": True,
            "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"},
            "topology": {"nodeID": 1 if minor < 2 else 0, "pcieID": str(minor), "socketID": 0, "busID": ""},
        }
        for minor in range(3)
    ]
    device = msgspec.convert({"metadata": {"name": "n"}, "spec": {"devices": gpus}}, Device)
    engine.on_object(ObjectEvent(DEVICES, Action.ADD, Key("", "n"), None, device), 0.0)
    outcome = place(engine, make_pod("p", "4", gpu=200))
    assert status(outcome)["cpuset"] == "8-11"
    payload = json.loads(outcome.info.annotation(ANNOTATION_DEVICE_ALLOCATED) or "")
    assert [entry["minor"] for entry in payload["gpu"]] == [0, 1]
    third = place(engine, make_pod("q", "6", gpu=100))
    assert parse_cpuset(status(third)["cpuset"]) <= set(range(8))
    assert place(engine, make_pod("r", "1", gpu=100)).result is Result.UNSCHEDULABLE


def test_spanning_and_single_pods_do_not_meet_when_required() -> None:
    engine = make_engine()
    annotations = {ANNOTATION_NUMA_TOPOLOGY_SPEC: {"numaTopologyPolicy": "Restricted"}}
    assert place(engine, make_pod("wide", "10", "LS", memory="40Gi", **annotations)).node == "n"
    assert place(engine, make_pod("narrow", "2", "LS", **annotations)).result is Result.UNSCHEDULABLE
    lenient = {
        ANNOTATION_NUMA_TOPOLOGY_SPEC: {"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "Preferred"}
    }
    assert place(engine, make_pod("lenient", "2", "LS", **lenient)).node == "n"


def test_pod_uses_the_cpus_its_reservation_holds() -> None:
    engine = make_engine()
    plugin = engine.plugins["NodeNUMAResource"]
    assert isinstance(plugin, NodeNUMAResource)
    held = {ANNOTATION_RESOURCE_STATUS: {"cpuset": "4-7", "numaNodeResources": []}}
    engine.on_pod(Action.ADD, make_pod("resv", "4", node="n", **held), 0.0)
    engine.on_pod(
        Action.ADD, make_pod("rest", "12", node="n", **{ANNOTATION_RESOURCE_STATUS: {"cpuset": "0-3,8-15"}}), 0.0
    )
    assert place(engine, make_pod("stranger", "2")).result is Result.UNSCHEDULABLE
    pod = make_pod("owner", "2", **{ANNOTATION_RESERVATION_ALLOCATED: {"name": "r", "uid": "resv"}})
    attempt = engine.cycle.attempt(engine.classes.info(pod), 0.0)
    holder = engine.snapshot.pods["resv"].info
    attempt.restored = {0: [Restored(holder, engine.snapshot.vector(holder))]}
    spec = plugin.prepare(attempt.pod)
    assert spec is not None
    bits = plugin.filter(attempt, spec, slice(0, 1))
    assert bits is not None
    assert bits[0] == 0
    assert plugin.reserve(attempt, spec, 0) is None
    assert json.loads(attempt.pod.annotation(ANNOTATION_RESOURCE_STATUS) or "")["cpuset"] == "4-5"
    engine.snapshot.add_pod(attempt.pod, 0, assumed=True)
    engine.on_pod(Action.DELETE, holder.pod, 0.0)
    assert plugin.machines[0].free == {6, 7}


def test_state_endpoint_shows_free_cpus() -> None:
    engine = make_engine()
    place(engine, make_pod("a", "4"))
    shown = engine.plugins["NodeNUMAResource"].routes()["nodes/{name}"]("n")
    assert shown["freeCPUs"] == "4-15"
    assert shown["pods"] == {"a": "0-3"}


pods = st.tuples(
    st.integers(1, 9),
    st.sampled_from(["LSE", "LSR", "LS"]),
    st.sampled_from(["FullPCPUs", "SpreadByPCPUs", ""]),
    st.sampled_from(["PCPULevel", "NUMANodeLevel", "None"]),
    st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(pods, max_size=25), st.sampled_from(["", "BestEffort", "Restricted", "SingleNUMANode"]))
def test_cpus_are_never_shared_and_never_beyond_the_machine(
    arrivals: list[tuple[int, str, str, str, bool]], policy: str
) -> None:
    engine = make_engine(labels={LABEL_NODE_NUMA_TOPOLOGY_POLICY: policy} if policy else {})
    plugin = engine.plugins["NodeNUMAResource"]
    assert isinstance(plugin, NodeNUMAResource)
    running: dict[str, Pod] = {}
    held: dict[str, frozenset[int]] = {}
    for number, (cpus, qos, bind, exclusive, leaves) in enumerate(arrivals):
        annotations = {"preferredCPUBindPolicy": bind, "preferredCPUExclusivePolicy": exclusive}
        pod = make_pod(f"p{number}", str(cpus), qos, **{ANNOTATION_RESOURCE_SPEC: annotations})
        outcome = place(engine, pod)
        if outcome.node:
            running[f"p{number}"] = pod
            given = parse_cpuset(status(outcome).get("cpuset", ""))
            assert len(given) == (0 if qos == "LS" else cpus)
            assert given <= set(range(16))
            assert all(not given & other for other in held.values())
            held[f"p{number}"] = given
        else:
            engine.on_pod(Action.DELETE, pod, 0.0)
        if leaves and running:
            gone = next(iter(running))
            engine.on_pod(Action.DELETE, running.pop(gone), 0.0)
            held.pop(gone)
        machine = next(iter(plugin.machines.values()))
        assert machine.allocated == frozenset().union(*held.values())
        assert plugin.columns.free(slice(0, 1))[0] == 16 - len(machine.allocated)
