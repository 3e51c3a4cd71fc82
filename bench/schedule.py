"""Rate of placements, with load and interference awareness on: `python -m bench.schedule {inprocess,live}`.

`inprocess` measures decisions of one engine on one core, bindings answered at once. `live` starts an API server
(the in-process twin in a process of its own, or the one that --kubeconfig names), fills it with nodes, starts
`koord-scheduler run` and measures from the first to the last binding that a watch shows.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

import click
import msgspec
import numpy as np

from api.crds import NODE_METRIC, WORKLOAD_PROFILE, NodeMetric, WorkloadProfile
from api.kube.objects import Node, Pod
from cluster import (
    NODES,
    PODS,
    Client,
    ClientSettings,
    Informer,
    Key,
    Resource,
    StoreDelta,
    connect,
    merge_patch,
    plain_endpoint,
)
from cluster.resources import custom
from scheduler.engine import Engine
from scheduler.framework import Action, ObjectEvent
from scheduler.loop import settle_collector
from scheduler.outcome import Result

PLACES = PODS.of(Pod)
NAMESPACE = "default"
RESOURCES = ("cpu", "cache", "memory-bandwidth")


@dataclass(frozen=True, slots=True)
class Scene:
    """A cluster and the pods to place on it. Pods arrive in the order of their workloads, `burst` of one at a time."""

    nodes: int
    pods: int
    workloads: int
    burst: int
    seed: int


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


def node_documents(scene: Scene) -> Iterator[dict[str, Any]]:
    """Nodes of three sizes in three zones."""
    for index in range(scene.nodes):
        cores = (32, 48, 64)[index % 3]
        name = f"node-{index:05d}"
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{index % 3}"}
        amounts = {"cpu": str(cores), "memory": f"{cores * 4}Gi", "pods": "250"}
        yield {
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": amounts, "capacity": amounts},
        }


def metric_documents(scene: Scene, now: float) -> Iterator[dict[str, Any]]:
    """One report per node: between 5 and 50 percent of it in use."""
    draw = Random(scene.seed)
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for index in range(scene.nodes):
        cores = (32, 48, 64)[index % 3] * draw.uniform(0.05, 0.5)
        usage = {"cpu": f"{int(cores * 1000)}m", "memory": f"{int(cores * 4096)}Mi"}
        yield {
            "metadata": {"name": f"node-{index:05d}"},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            "status": {"updateTime": stamp, "nodeMetric": {"nodeUsage": {"resources": usage}}},
        }


def profile_documents(scene: Scene) -> Iterator[dict[str, Any]]:
    """One profile per workload, with its own sensitivity and aggressiveness."""
    draw = Random(scene.seed + 1)
    for index in range(scene.workloads):
        resources = [
            {
                "name": name,
                "aggressiveness": draw.random(),
                "sensitivity": [
                    {"loadFrom": 0.0, "loadTo": 10.0, "lostSecondsPerPressure": draw.random() / 100, "samples": 100}
                ],
            }
            for name in RESOURCES
        ]
        yield {
            "metadata": {"name": f"app-{index}", "namespace": NAMESPACE},
            "spec": {"workload": {"kind": "ReplicaSet", "name": f"app-{index}"}, "container": "main"},
            "status": {"resources": resources, "samples": 1000},
        }


def pod_documents(scene: Scene) -> Iterator[dict[str, Any]]:
    """Pods of small requests, `burst` of one workload after the other; every fourth workload spreads by zone."""
    draw = Random(scene.seed + 2)
    sizes = [draw.choice((50, 100, 200, 400)) for _ in range(scene.workloads)]
    for index in range(scene.pods):
        app = index // scene.burst % scene.workloads
        name, cpu = f"app-{app}", sizes[app]
        spec: dict[str, Any] = {
            "schedulerName": "koord-scheduler",
            "priority": 9500,
            "containers": [
                {
                    "name": "main",
                    "image": f"registry/{name}:1",
                    "resources": {"requests": {"cpu": f"{cpu}m", "memory": f"{cpu * 3}Mi"}},
                }
            ],
        }
        if app % 4 == 0:
            spec["topologySpreadConstraints"] = [
                {
                    "topologyKey": "topology.kubernetes.io/zone",
                    "maxSkew": 5,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ]
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
        yield {
            "metadata": {
                "name": f"pod-{index:06d}",
                "namespace": NAMESPACE,
                "labels": {"app": name, "koordinator.sh/qosClass": "LS"},
                "ownerReferences": [owner],
            },
            "spec": spec,
        }


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
    pods = []
    for document in pod_documents(scene):
        document["metadata"]["uid"] = document["metadata"]["name"]
        pods.append(msgspec.convert(document, Pod))
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


@contextmanager
def twin_process() -> Iterator[str]:
    """The in-process API server in a process of its own; gives its URL."""
    command = [sys.executable, "-m", "cluster.twin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            # The twin ends with its input.
            assert process.stdin is not None
            process.stdin.close()


@contextmanager
def scheduler_process(flags: list[str]) -> Iterator[None]:
    """`koord-scheduler run` against the same server."""
    command = [sys.executable, "-m", "scheduler", *flags, "run", "--no-leader-elect", "--port", "0", "--qps", "100000"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


class Bindings:
    """Notes when a watch shows each pod bound."""

    def __init__(self, expected: int) -> None:
        self.times: dict[Key, float] = {}
        self.complete = threading.Event()
        self._expected = expected

    def __call__(self, deltas: Iterable[StoreDelta[Pod]]) -> None:
        now = time.perf_counter()
        for delta in deltas:
            if delta.new is not None and delta.new.spec.node_name:
                self.times.setdefault(delta.key, now)
        if len(self.times) >= self._expected:
            self.complete.set()


def create(client: Client, kind: Resource[Any], document: dict[str, Any]) -> None:
    """Create an object, and write its status the way the API wants it: separately."""
    client.create(kind, document)
    if "status" in document:
        key = Key(document["metadata"].get("namespace", ""), document["metadata"]["name"])
        client.patch(kind, key, merge_patch({"status": document["status"]}), subresource="status")


def live(client: Client, scene: Scene, flags: list[str], timeout_seconds: float) -> dict[str, float]:
    """Pods per second from first to last binding, with the pods created while the scheduler runs."""
    from api.crds import DEFINITIONS
    from api.crds.definition import definition_document
    from cluster import CUSTOM_RESOURCE_DEFINITIONS

    now = time.time()
    with ThreadPoolExecutor(8) as pool:
        for definition in DEFINITIONS:
            client.create(CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
        kinds = (
            (NODES, node_documents(scene)),
            (custom(NODE_METRIC), metric_documents(scene, now)),
            (custom(WORKLOAD_PROFILE), profile_documents(scene)),
        )
        for kind, documents in kinds:
            list(pool.map(lambda document, kind=kind: create(client, kind, document), documents))
        bindings = Bindings(scene.pods)
        with Informer(client, PLACES) as informer, scheduler_process(flags):
            informer.subscribe(bindings)
            time.sleep(3.0)
            began = time.perf_counter()
            list(pool.map(lambda document: client.create(PODS, document), pod_documents(scene)))
            created = time.perf_counter()
            if not bindings.complete.wait(timeout_seconds):
                raise click.ClickException(f"{len(bindings.times)} of {scene.pods} pods bound in {timeout_seconds} s")
    first, last = min(bindings.times.values()), max(bindings.times.values())
    return {
        "nodes": scene.nodes,
        "pods": scene.pods,
        "pods_per_second": scene.pods / (last - first),
        "created_per_second": scene.pods / (created - began),
        "first_to_last_seconds": last - first,
    }


@click.group()
@click.option("--nodes", default=1000, show_default=True)
@click.option("--pods", default=5000, show_default=True)
@click.option("--workloads", default=50, show_default=True, help="Workloads that the pods belong to.")
@click.option("--burst", default=20, show_default=True, help="Pods of one workload in a row.")
@click.option("--seed", default=0, show_default=True)
@click.pass_context
def main(ctx: click.Context, nodes: int, pods: int, workloads: int, burst: int, seed: int) -> None:
    """Measure placements per second."""
    ctx.obj = Scene(nodes, pods, workloads, burst, seed)


@main.command()
@click.pass_obj
def inprocess(scene: Scene) -> None:
    """Decisions of one engine on one core."""
    print(json.dumps(asdict(measure(scene)), indent=2))


@main.command(name="live")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="A cluster instead of the twin.")
@click.option("--timeout", default=300.0, show_default=True, help="Seconds to wait for the last binding.")
@click.pass_obj
def run_live(scene: Scene, kubeconfig: str | None, timeout: float) -> None:
    """First to last binding through an API server."""
    from pathlib import Path

    settings = ClientSettings(requests_per_second=100_000, burst=100_000)
    with nullcontext("") if kubeconfig else twin_process() as url:
        client = Client(plain_endpoint(url), settings) if url else connect(settings, kubeconfig=Path(kubeconfig or ""))
        flags = ["--server", url] if url else ["--kubeconfig", str(kubeconfig)]
        with client:
            print(json.dumps(live(client, scene, flags, timeout), indent=2))


if __name__ == "__main__":
    main()
