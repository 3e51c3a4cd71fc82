"""Attempts that decide for many pods at once: plans of gangs in a network, and reservations over running pods.

CPU time of the thread, as in `scale`: each attempt and each tick is a step of its own, and `longest_step_cpu_ms` is the
longest time for which nothing else was placed.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec

from api.crds import NODE_METRIC, ClusterNetworkTopology, NodeMetric, Reservation
from api.kube.device import Device
from api.kube.objects import Node, Pod
from api.kube.times import rfc3339
from api.protocol import ANNOTATION_NETWORK_TOPOLOGY_SPEC, GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from bench.schedule.decisions import feed
from bench.schedule.scale import EPOCH, Steps, decoded, printed
from bench.schedule.scene import Scene, metric_documents, node_documents
from cluster import Key
from cluster.resources import custom
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.loop import settle_collector
from scheduler.plugins.deviceshare import DEVICES
from scheduler.plugins.networktopology import TOPOLOGIES
from scheduler.reservation.ledger import RESERVATIONS

BLOCK_NODES, SPINE_BLOCKS = 50, 10
GANG = "gang.scheduling.koordinator.sh/"
MOST_SECONDS = 60
"""Simulated time after which a gang is not waited for any more."""
LAYERS = [
    {"topologyLayer": "Spine", "labelKey": ["spine"]},
    {"topologyLayer": "Block", "parentTopologyLayer": "Spine", "labelKey": ["block"]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Block"},
]
PORT = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
FILLER_CPUS = 64
HALF_GPU = {GPU_CORE: "60", GPU_MEMORY_RATIO: "60"}


def plans(scene: Scene, per_node: int) -> dict[str, Any]:
    """Measure each case on a cluster of its own; `per_node` is the number of pods on each node of the last one."""
    cases: dict[str, Callable[[], dict[str, Any]]] = {
        "40 members with a host port": lambda: _gang(scene, 40, PORT),
        "64 members with a host port, in no block": lambda: _gang(scene, 64, PORT),
        "64 members with 60 % of a GPU, in no block": lambda: _gang(scene, 64, {}, HALF_GPU, gpus=1),
        "40 members with 60 % of a GPU": lambda: _gang(scene, 40, {}, HALF_GPU, gpus=1),
        "120 members with 60 % of a GPU, of which no block takes more than 100": lambda: _gang(
            scene, 120, {}, HALF_GPU, gpus=2
        ),
        "64 members that preempt": lambda: _gang(scene, 64, {}, {"cpu": "20"}, priority=9),
        f"pre-allocation over {scene.nodes * per_node} pods": lambda: _pre_allocation(scene, per_node),
        f"pre-allocation over {scene.nodes * per_node} pods, none to take": lambda: _pre_allocation(
            scene, per_node, owner="other"
        ),
    }
    return {name: case() for name, case in cases.items()}


def _summary(steps: Steps, placed: int, seconds: float, attempted: float) -> dict[str, Any]:
    found = steps.summary()
    return {
        "placed": placed,
        "seconds_to_the_last": seconds,
        "seconds_to_the_last_attempt": attempted,
        "longest_step_cpu_ms": max(each["most_ms"] for each in found.values()),
        "cpu_ms_in_all": sum(each["sum_ms"] for each in found.values()),
        "steps": found,
    }


def _until_quiet(engine: Engine, steps: Steps, wanted: int) -> dict[str, Any]:
    """Attempt pods and let seconds pass until so many are placed, or time is up."""
    placed, last, attempted, now = 0, 0.0, 0.0, EPOCH
    while placed < wanted and now < EPOCH + MOST_SECONDS:
        while True:
            with steps.step("attempt"):
                outcome = engine.schedule_one(now)
            if outcome is None:
                break
            attempted = now - EPOCH
            while engine.bindings:
                engine.bound(engine.bindings.popleft(), now)
                placed, last = placed + 1, now - EPOCH
        now += 1.0
        with steps.step("tick"):
            engine.tick(now)
        engine.writes.clear()
        engine.chains.clear()
        engine.outcomes.clear()
    return _summary(steps, placed, last, attempted)


def _cluster(scene: Scene, gpus: int = 0) -> Engine:
    engine = Engine()
    for index, document in enumerate(node_documents(scene)):
        block = index // BLOCK_NODES
        document["metadata"]["labels"] |= {"block": f"b{block}", "spine": f"s{block // SPINE_BLOCKS}"}
        if gpus:
            document["status"]["allocatable"] |= dict.fromkeys((GPU, GPU_CORE, GPU_MEMORY_RATIO), str(100 * gpus))
        engine.on_node(Action.ADD, decoded(document, Node), EPOCH)
        if gpus:
            _show(engine, DEVICES, _device(document["metadata"]["name"], gpus), Device)
    feed(engine, custom(NODE_METRIC), metric_documents(scene, EPOCH), NodeMetric, EPOCH)
    topology = {"metadata": {"name": "default"}, "spec": {"networkTopologySpec": LAYERS}}
    _show(engine, TOPOLOGIES, topology, ClusterNetworkTopology)
    return engine


def _device(node: str, gpus: int) -> dict[str, Any]:
    amounts = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100", GPU_MEMORY: "16Gi"}
    devices = [
        {"type": "gpu", "id": f"{node}-{minor}", "minor": minor, "health": True, "resources": amounts}
        for minor in range(gpus)
    ]
    return {"metadata": {"name": node}, "spec": {"devices": devices}}


def _show(engine: Engine, kind: Any, document: dict[str, Any], model: type[Any]) -> None:
    item = decoded(document, model)
    engine.on_object(ObjectEvent(kind, Action.ADD, Key("", item.metadata.name), None, item), EPOCH)


def _gang(
    scene: Scene,
    members: int,
    container: dict[str, Any],
    requests: dict[str, str] | None = None,
    *,
    gpus: int = 0,
    priority: int = 0,
) -> dict[str, Any]:
    """Place a gang that must be in one block; with a priority, over pods that take all nodes."""
    engine, steps = _cluster(scene, gpus), Steps()
    pods = [decoded(each, Pod) for each in _members(members, container, requests or {})]
    if priority:
        pods = [msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=priority)) for pod in pods]
        for name in [name for name in engine.snapshot.names if name]:
            engine.on_pod(Action.ADD, decoded(_filler(name), Pod), EPOCH)
    settle_collector()
    for pod in pods:
        engine.on_pod(Action.ADD, pod, EPOCH)
    return _until_quiet(engine, steps, members)


def _filler(node: str) -> dict[str, Any]:
    """A pod that takes all CPUs of a node."""
    metadata = {"name": f"low-{node}", "namespace": "default", "uid": f"low-{node}"}
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": str(FILLER_CPUS)}}}
    spec = {"nodeName": node, "priority": 0, "containers": [container]}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def _members(count: int, container: dict[str, Any], requests: dict[str, str]) -> Iterator[dict[str, Any]]:
    gathered = {"gatherStrategy": [{"layer": "Block", "strategy": "MustGather"}]}
    annotations = {
        GANG + "name": "g",
        GANG + "min-available": str(count),
        ANNOTATION_NETWORK_TOPOLOGY_SPEC: json.dumps(gathered),
    }
    for number in range(count):
        metadata = {"name": f"m{number}", "namespace": "default", "uid": f"m{number}", "annotations": annotations}
        amounts = {"requests": {"cpu": "1", "memory": "1Gi", **requests}}
        spec = {
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "main", "image": "app", "resources": amounts, **container}],
        }
        yield {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _pre_allocation(scene: Scene, per_node: int, owner: str = "web") -> dict[str, Any]:
    """Place reservations over full nodes, two of whose pods they may take."""
    engine, steps = Engine(), Steps()
    names = []
    for document in node_documents(scene):
        names.append(document["metadata"]["name"])
        document["status"]["allocatable"] |= {"cpu": str(per_node), "memory": "256Gi"}
        engine.on_node(Action.ADD, decoded(document, Node), EPOCH)
    for index, name in enumerate(names):
        for number in range(per_node):
            labels = {"app": "web" if number < 2 else f"other-{number}"}
            metadata = {"name": f"p{index}-{number}", "namespace": "default", "uid": f"p{index}-{number}"}
            resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
            spec = {"nodeName": name, "containers": [{"name": "main", "image": "app", "resources": resources}]}
            document = {"metadata": metadata | {"labels": labels}, "spec": spec, "status": {"phase": "Running"}}
            engine.on_pod(Action.ADD, decoded(document, Pod), EPOCH)
    settle_collector()
    wanted = 5
    for number in range(wanted):
        with steps.step("reservation"):
            _show(engine, RESERVATIONS, _reservation(number, owner), Reservation)
    return _until_quiet(engine, steps, wanted if owner == "web" else 1)


def _reservation(number: int, owner: str) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    spec = {
        "template": {"spec": {"schedulerName": "koord-scheduler", "containers": [container]}},
        "owners": [{"labelSelector": {"matchLabels": {"app": owner}}}],
        "allocatePolicy": "Restricted",
        "allocateOnce": False,
        "preAllocation": True,
        "ttl": "1h",
    }
    name = f"r{number}"
    return {"metadata": {"name": name, "uid": name, "creationTimestamp": rfc3339(EPOCH)}, "spec": spec}


@click.command(name="plans")
@click.option("--per-node", default=8, show_default=True, help="Pods on each node under the reservations.")
@click.pass_obj
def run_plans(scene: Scene, per_node: int) -> None:
    """Attempts that decide for many pods at once."""
    print(printed(plans(scene, per_node)))
