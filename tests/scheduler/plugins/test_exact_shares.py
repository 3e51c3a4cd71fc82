"""CPUs and devices under random histories: arrivals, departures, failed bindings, lost nodes, and restarts.

No CPU is held by two pods, no device beyond 100 percent, and a scheduler restarted at any moment, told of the bound
pods in any order, holds exactly what the one before held.
"""

import json
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kube.device import Device
from api.kube.numa import NodeResourceTopology
from api.kube.objects import Node, Pod
from api.protocol import (
    ANNOTATION_RESOURCE_SPEC,
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    LABEL_NODE_NUMA_TOPOLOGY_POLICY,
    LABEL_QOS_CLASS,
    SCHEDULER_NAME,
)
from cluster.resources import Key
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.numa.topology import CpuTopology
from scheduler.plugins.deviceshare import DEVICES, DeviceShare
from scheduler.plugins.nodenumaresource import TOPOLOGIES, NodeNUMAResource

NODES = {"plain": "", "aligned": "SingleNUMANode", "gentle": "BestEffort"}
TOPOLOGY = CpuTopology.regular(2, 1, 4, 2)


def node_of(name: str) -> Node:
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110", GPU: "400"}
    labels = {LABEL_NODE_NUMA_TOPOLOGY_POLICY: NODES[name]} if NODES[name] else {}
    document = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}
    return msgspec.convert(document, Node)


def reports_of(name: str) -> list[ObjectEvent]:
    amounts = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}
    gpus = [
        {"type": "gpu", "minor": minor, "health": True, "resources": amounts, "topology": {"nodeID": minor // 2}}
        for minor in range(4)
    ]
    detail = [{"id": c.id, "core": c.core, "socket": c.socket, "node": c.node} for c in TOPOLOGY.cpus.values()]
    notes = {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})}
    device = msgspec.convert({"metadata": {"name": name}, "spec": {"devices": gpus}}, Device)
    topology = msgspec.convert({"metadata": {"name": name, "annotations": notes}}, NodeResourceTopology)
    key = Key("", name)
    return [
        ObjectEvent(DEVICES, Action.ADD, key, None, device),
        ObjectEvent(TOPOLOGIES, Action.ADD, key, None, topology),
    ]


def pod_of(name: str, cpus: int, gpu: int, qos: str, bind: str) -> Pod:
    requests: dict[str, Any] = {"cpu": str(cpus), "memory": "1Gi"} | ({GPU: str(gpu)} if gpu else {})
    preferences = json.dumps({"preferredCPUBindPolicy": bind})
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": name,
        "labels": {LABEL_QOS_CLASS: qos},
        "annotations": {ANNOTATION_RESOURCE_SPEC: preferences},
    }
    containers = [{"name": "main", "resources": {"requests": requests}}]
    spec = {"schedulerName": SCHEDULER_NAME, "priority": 9500, "containers": containers}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


class Cluster:
    """State of the API server, and the running scheduler."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.nodes = set(NODES)
        self.bound: dict[str, Pod] = {}
        self.engine = self.started()

    def started(self) -> Engine:
        """A scheduler that was just told of everything, in random order."""
        engine = Engine()
        events: list[Any] = [event for name in self.nodes for event in (name, *reports_of(name))]
        events += list(self.bound.values())
        self.random.shuffle(events)
        for event in events:
            if isinstance(event, str):
                engine.on_node(Action.ADD, node_of(event), 0.0)
            elif isinstance(event, ObjectEvent):
                engine.on_object(event, 0.0)
            else:
                engine.on_pod(Action.ADD, event, 0.0)
        return engine

    def arrive(self, pod: Pod, *, binding_fails: bool) -> None:
        self.engine.on_pod(Action.ADD, pod, 0.0)
        self.engine.schedule_one(0.0)
        while self.engine.bindings:
            binding = self.engine.bindings.popleft()
            if binding_fails:
                self.engine.bind_failed(binding, "refused", 0.0)
                continue
            info = binding.placed.info
            metadata = msgspec.structs.replace(
                info.pod.metadata, annotations=info.pod.metadata.annotations | info.patch
            )
            spec = msgspec.structs.replace(info.pod.spec, node_name=binding.placed.node)
            self.bound[info.uid] = msgspec.structs.replace(info.pod, metadata=metadata, spec=spec)
            self.engine.bound(binding, 0.0)
            self.engine.on_pod(Action.UPDATE, self.bound[info.uid], 0.0)
        if pod.metadata.uid not in self.bound:
            self.engine.on_pod(Action.DELETE, pod, 0.0)

    def depart(self) -> None:
        if self.bound:
            pod = self.bound.pop(self.random.choice(sorted(self.bound)))
            self.engine.on_pod(Action.DELETE, pod, 0.0)

    def toggle_node(self) -> None:
        """A node leaves with its pods, or comes back empty."""
        name = self.random.choice(sorted(NODES))
        if name not in self.nodes:
            self.nodes.add(name)
            told: list[Any] = [name, *reports_of(name)]
            self.random.shuffle(told)
            for event in told:
                if isinstance(event, str):
                    self.engine.on_node(Action.ADD, node_of(event), 0.0)
                else:
                    self.engine.on_object(event, 0.0)
            return
        self.nodes.remove(name)
        for uid in [uid for uid, pod in self.bound.items() if pod.spec.node_name == name]:
            self.engine.on_pod(Action.DELETE, self.bound.pop(uid), 0.0)
        self.engine.on_node(Action.DELETE, node_of(name), 0.0)


def shares(engine: Engine) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Holders of CPUs and devices, by node; free counts as the columns show them."""
    numa, devices = engine.plugins["NodeNUMAResource"], engine.plugins["DeviceShare"]
    assert isinstance(numa, NodeNUMAResource)
    assert isinstance(devices, DeviceShare)
    held: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for row in range(engine.snapshot.rows_used):
        if not engine.snapshot.live[row]:
            assert row not in numa.machines
            assert row not in devices.ledger.nodes
            continue
        machine, ledger = numa.machines[row], devices.ledger.nodes[row]
        taken = sorted(cpu for hold in machine.holders.values() for cpu in hold.cpus)
        assert len(taken) == len(set(taken))
        assert numa.columns.free(slice(row, row + 1))[0] == 16 - len(taken)
        free = devices.ledger.columns.gpu_percent(slice(row, row + 1))[0]
        for position, device in enumerate(ledger.of_kind(next(iter(ledger.devices)))):
            used = ledger.used(device).get(GPU_CORE, 0)
            assert 0 <= used <= 100
            assert free[position] == 100 - used
        held[engine.snapshot.names[row]] = (dict(machine.holders), dict(ledger.holders))
    return held


events = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.integers(1, 8),
        st.sampled_from([0, 0, 30, 70, 100, 200]),
        st.sampled_from(["LSR", "LSE", "LS"]),
        st.sampled_from(["FullPCPUs", "SpreadByPCPUs"]),
    ),
    st.just(("fail", 4, 50, "LSR", "FullPCPUs")),
    st.just(("depart",)),
    st.just(("node",)),
    st.just(("restart",)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=25), st.randoms(use_true_random=False))
def test_exact_shares_survive_any_history(history: list[tuple[Any, ...]], random: Random) -> None:
    cluster = Cluster(random)
    for number, event in enumerate(history):
        match event:
            case ("arrive" | "fail" as how, cpus, gpu, qos, bind):
                cluster.arrive(pod_of(f"p{number}", cpus, gpu, qos, bind), binding_fails=how == "fail")
            case ("depart",):
                cluster.depart()
            case ("node",):
                cluster.toggle_node()
            case ("restart",):
                before = shares(cluster.engine)
                cluster.engine = cluster.started()
                assert shares(cluster.engine) == before
        held = {uid for machines, ledgers in shares(cluster.engine).values() for uid in (*machines, *ledgers)}
        assert held <= set(cluster.bound)
