"""Costs of a large cluster in the scheduling thread: each step's CPU time, and the memory of nodes and pods.

CPU time of the thread, not of the clock: a step that others push aside is no longer for it. Time is simulated; what
a watch would bring is decoded from JSON beforehand, as informers do in threads of their own.
"""

import json
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from api.crds import NODE_METRIC, WORKLOAD_PROFILE, NodeMetric, WorkloadProfile
from api.kube.objects import Node, Pod
from api.kube.storage import Claim, CsiNode, PersistentVolume, StorageClass
from bench.schedule.decisions import feed
from bench.schedule.scene import (
    Scene,
    metric_documents,
    node_documents,
    pod_documents,
    profile_documents,
    with_priority,
)
from cluster import Key
from cluster.resources import custom
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.loop import settle_collector
from scheduler.matching.volumes import CLAIMS, CLASSES, NODE_DRIVERS, VOLUMES
from scheduler.outcome import Result

REPORT_SECONDS = 60.0
"""Interval of a node's reports."""
EPOCH = 1_800_000_000.0
PROVISIONER = "disk.example.com"
SECONDS_BEFORE = 3
"""Ticks between the first lists and the first pod with a claim."""


@dataclass
class Steps:
    """CPU milliseconds of the thread by kind of step."""

    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def step(self, kind: str) -> Iterator[None]:
        """Measure one step."""
        began = time.thread_time()
        yield
        self.milliseconds[kind].append((time.thread_time() - began) * 1000)

    def summary(self) -> dict[str, dict[str, float]]:
        """Number, sum, p50, p99.9 and the most of each kind."""
        return {
            kind: {
                "count": len(found),
                "sum_ms": sum(found),
                "p50_ms": float(np.percentile(found, 50)),
                "p99_9_ms": float(np.percentile(found, 99.9)),
                "most_ms": max(found),
            }
            for kind, found in self.milliseconds.items()
        }


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def decoded(document: dict[str, Any], model: type[Any]) -> Any:
    """The object as an informer decodes it."""
    return msgspec.json.decode(msgspec.json.encode(document), type=model)


def pods_of(scene: Scene, count: int, prefix: str) -> Iterator[dict[str, Any]]:
    """Documents of so many pods, one at a time."""
    for document in pod_documents(replace(scene, pods=count), prefix=prefix):
        yield with_priority(document)


class LargeCluster:
    """An engine with running pods, to which pods come while others end."""

    def __init__(self, scene: Scene, running: int) -> None:
        self.steps = Steps()
        self.bytes: dict[str, float] = {}
        self._scene = scene
        self._running: deque[Pod] = deque()
        settle_collector()
        before = resident_bytes()
        self.engine = Engine()
        for document in node_documents(scene):
            self.engine.on_node(Action.ADD, decoded(document, Node), EPOCH)
        kind = custom(NODE_METRIC)
        feed(self.engine, kind, metric_documents(scene, EPOCH), NodeMetric, EPOCH)
        with_nodes = resident_bytes()
        names = [f"node-{index:05d}" for index in range(scene.nodes)]
        for index, document in enumerate(pods_of(scene, running, "old")):
            document["spec"]["nodeName"] = names[index % scene.nodes]
            pod = decoded(document, Pod)
            self._running.append(pod)
            self.engine.on_pod(Action.ADD, pod, EPOCH)
        with_pods = resident_bytes()
        self.bytes["bytes_per_node"] = (with_nodes - before) / scene.nodes
        self.bytes["bytes_per_pod"] = (with_pods - with_nodes) / running
        self.bytes["resident_bytes"] = float(with_pods)
        feed(self.engine, custom(WORKLOAD_PROFILE), profile_documents(scene), WorkloadProfile, EPOCH)

    def live(self, arrivals_per_second: int, seconds: int) -> int:
        """Let pods come and as many end, nodes report and time pass; return the placed."""
        engine, steps = self.engine, self.steps
        kind = custom(NODE_METRIC)
        reports = [decoded(each, NodeMetric) for each in metric_documents(self._scene, EPOCH + REPORT_SECONDS)]
        arriving = [decoded(each, Pod) for each in pods_of(self._scene, arrivals_per_second * seconds, "new")]
        settle_collector()
        placed = 0
        pending = iter(arriving)
        next_report = 0.0
        for second in range(seconds):
            now = EPOCH + second
            with steps.step("tick"):
                engine.tick(now)
            next_report += len(reports) / REPORT_SECONDS
            while next_report >= 1.0:
                next_report -= 1.0
                report = reports[int(second * len(reports) / REPORT_SECONDS + next_report) % len(reports)]
                event = ObjectEvent(kind, Action.UPDATE, Key("", report.metadata.name), report, report)
                with steps.step("report"):
                    engine.on_object(event, now)
            for index in range(arrivals_per_second):
                at = now + index / arrivals_per_second
                with steps.step("arrival"):
                    engine.on_pod(Action.ADD, next(pending), at)
                with steps.step("attempt"):
                    outcome = engine.schedule_one(at)
                if outcome is None or outcome.result is Result.UNSCHEDULABLE:
                    raise click.ClickException(outcome.message if outcome else "the queue is empty")
                while engine.bindings:
                    plan = engine.bindings.popleft()
                    with steps.step("answer"):
                        engine.bound(plan, at)
                    bound = msgspec.structs.replace(
                        plan.placed.info.pod,
                        spec=msgspec.structs.replace(plan.placed.info.pod.spec, node_name=plan.placed.node),
                    )
                    with steps.step("bound"):
                        engine.on_pod(Action.UPDATE, bound, at)
                    self._running.append(bound)
                    placed += 1
                with steps.step("end"):
                    engine.on_pod(Action.DELETE, self._running.popleft(), at)
                engine.outcomes.clear()
                engine.writes.clear()
        return placed


def scale(scene: Scene, running: int, arrivals_per_second: int, seconds: int) -> dict[str, Any]:
    """Measure a cluster with pods that come and end."""
    cluster = LargeCluster(scene, running)
    began = time.thread_time()
    placed = cluster.live(arrivals_per_second, seconds)
    steps = cluster.steps.summary()
    used = sum(each["sum_ms"] for each in steps.values()) / 1000
    return {
        "nodes": scene.nodes,
        "running_pods": running,
        "placed": placed,
        "pods_per_cpu_second": placed / used,
        "thread_share_at_this_rate": used / seconds,
        "cpu_seconds_in_all": time.thread_time() - began,
        "longest_step_cpu_ms": max(each["most_ms"] for each in steps.values()),
        "steps": steps,
        **cluster.bytes,
    }


def claims(scene: Scene, volumes: int, attempts: int) -> dict[str, Any]:
    """Measure attempts of pods whose claim waits for its first consumer, with one free local volume on each node.

    The driver that makes volumes of the class is on every node and states its limit.
    Each attempt follows the binding of a claim, as in a running cluster: a volume and a claim have changed.
    """
    engine, steps = Engine(), Steps()
    for document in node_documents(scene):
        engine.on_node(Action.ADD, decoded(document, Node), EPOCH)
    feed(engine, custom(NODE_METRIC), metric_documents(scene, EPOCH), NodeMetric, EPOCH)
    for document in node_documents(scene):
        driver = {"name": PROVISIONER, "nodeID": "n", "allocatable": {"count": 20}}
        _show(engine, CsiNode, {"metadata": {"name": document["metadata"]["name"]}, "spec": {"drivers": [driver]}})
    local = {"metadata": {"name": "local"}, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer"}
    _show(engine, StorageClass, local)
    for index in range(volumes):
        _show(engine, PersistentVolume, _volume(index, f"node-{index % scene.nodes:05d}"))
    wanted = [_claim(index) for index in range(attempts)]
    for document in wanted:
        _show(engine, Claim, document)
    pods = []
    for index, document in enumerate(pods_of(scene, attempts, "claimant")):
        document["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{index}"}}]
        pods.append(decoded(document, Pod))
    settle_collector()
    for _ in range(SECONDS_BEFORE):
        with steps.step("tick"):
            engine.tick(EPOCH)
    for index, pod in enumerate(pods):
        engine.on_pod(Action.ADD, pod, EPOCH)
        with steps.step("attempt" if pod is not pods[0] else "first attempt"):
            outcome = engine.schedule_one(EPOCH)
        if outcome is None or outcome.result is Result.UNSCHEDULABLE:
            raise click.ClickException(outcome.message if outcome else "the queue is empty")
        chosen = int(outcome.node.rpartition("-")[2])
        with steps.step("change"):
            _show(engine, PersistentVolume, _volume(chosen, outcome.node, claim=wanted[index]))
            _show(engine, Claim, wanted[index] | {"spec": {**wanted[index]["spec"], "volumeName": f"volume-{chosen}"}})
        engine.tick(EPOCH)
    return {"nodes": scene.nodes, "volumes": volumes, "attempts": attempts, "steps": steps.summary()}


_KINDS = {Claim: CLAIMS, CsiNode: NODE_DRIVERS, PersistentVolume: VOLUMES, StorageClass: CLASSES}


def _show(engine: Engine, model: type[Any], document: dict[str, Any]) -> None:
    item = decoded(document, model)
    kind = _KINDS[model]
    key = Key(item.metadata.namespace, item.metadata.name)
    known = engine.objects(kind).get(key)
    engine.on_object(ObjectEvent(kind, Action.ADD if known is None else Action.UPDATE, key, known, item), EPOCH)


def _volume(index: int, node: str, claim: dict[str, Any] | None = None) -> dict[str, Any]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    spec: dict[str, Any] = {
        "capacity": {"storage": "10Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    if claim is not None:
        spec["claimRef"] = {key: claim["metadata"][key] for key in ("name", "namespace", "uid")}
    metadata = {"name": f"volume-{index}", "resourceVersion": "2" if claim else "1"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Bound" if claim else "Available"}}


def _claim(index: int) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "5Gi"}},
    }
    return {
        "metadata": {"name": f"claim-{index}", "namespace": "default", "uid": f"claim-{index}"},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def printed(result: dict[str, Any]) -> str:
    """The result as JSON with three digits behind the point."""
    return json.dumps(json.loads(json.dumps(result), parse_float=lambda text: round(float(text), 3)), indent=2)
