"""Decisions of one engine on one core, bindings answered at once."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click
import msgspec
import numpy as np

from api.crds import NODE_METRIC, WORKLOAD_PROFILE, NodeMetric, WorkloadProfile
from api.kube.objects import Node, Pod
from bench.schedule.scene import (
    Scene,
    metric_documents,
    node_documents,
    pod_documents,
    profile_documents,
    with_priority,
)
from cluster import Key, Resource
from cluster.resources import custom
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.loop import settle_collector
from scheduler.outcome import Result


@dataclass(frozen=True, slots=True)
class Measured:
    """Rates in pods per second, times in milliseconds of one decision."""

    nodes: int
    placed: int
    pods_per_second: float
    pods_per_cpu_second: float
    """The same by the CPU time used: the rate on a core without other load."""
    decision_p50_ms: float
    decision_p99_ms: float
    decision_max_ms: float


def filled_engine(scene: Scene, now: float) -> Engine:
    """An engine that knows the nodes, their load and the profiles."""
    engine = Engine()
    feed(engine, custom(WORKLOAD_PROFILE), profile_documents(scene), WorkloadProfile, now)
    for document in node_documents(scene):
        engine.on_node(Action.ADD, msgspec.convert(document, Node), now)
    feed(engine, custom(NODE_METRIC), metric_documents(scene, now), NodeMetric, now)
    return engine


def feed(engine: Engine, kind: Resource[Any], documents: Iterable[dict[str, Any]], model: Any, now: float) -> None:
    """Show the engine objects of a custom kind."""
    for document in documents:
        key = Key(document["metadata"].get("namespace", ""), document["metadata"]["name"])
        engine.on_object(ObjectEvent(kind, Action.ADD, key, None, msgspec.convert(document, model)), now)


def measure(scene: Scene) -> Measured:
    """Place all pods with one engine in this thread."""
    now = time.time()
    engine = filled_engine(scene, now)
    pods = [msgspec.convert(with_priority(document), Pod) for document in pod_documents(scene)]
    settle_collector()
    seconds: list[float] = []
    placed = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    for pod in pods:
        engine.on_pod(Action.ADD, pod, now)
    while True:
        started = time.perf_counter()
        outcome = engine.schedule_one(now)
        if outcome is None:
            break
        while engine.bindings:
            engine.bound(engine.bindings.popleft(), now)
            placed += 1
        seconds.append(time.perf_counter() - started)
        engine.outcomes.clear()
        engine.writes.clear()
        if outcome.result is Result.UNSCHEDULABLE:
            raise click.ClickException(f"{outcome.info.key}: {outcome.message}")
    took, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return Measured(scene.nodes, placed, placed / took, placed / cpu, float(p50), float(p99), max(seconds) * 1000)
