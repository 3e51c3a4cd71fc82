"""Placements through an API server: a backlog, and pods that arrive at a steady rate; columns of schedulers in turn.

Each column is a scheduler in a process of its own that is started for the measurement and ended after it; its pods are
deleted before the next one begins. The same watch sees the bindings of all columns.
"""

import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import click
import msgspec
import numpy as np

from api.crds import DEFINITIONS, NODE_METRIC, WORKLOAD_PROFILE
from api.crds.definition import definition_document
from api.kube.objects import Pod
from bench.schedule.scene import (
    NAMESPACE,
    PRIORITY,
    PRIORITY_CLASS,
    Scene,
    metric_documents,
    node_documents,
    pod_documents,
    profile_documents,
)
from cluster import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    AlreadyExists,
    Client,
    DeleteOptions,
    Informer,
    Key,
    NotFound,
    Resource,
    StoreDelta,
    Unavailable,
    merge_patch,
)
from cluster.resources import custom

PLACES = PODS.of(Pod)
OURS, STOCK = "koord-scheduler", "default-scheduler"
SETTLE_SECONDS = 3.0
"""Time for a scheduler to take in the cluster before pods arrive."""
WARM_PODS = 20
"""Pods that are placed, and deleted again, before those that are measured."""


@dataclass(frozen=True, slots=True)
class Column:
    """A scheduler to measure: the name that pods give, and how to start it."""

    name: str
    command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One column once. Rates in pods per second, from first to last binding; times of pods in milliseconds."""

    column: str
    nodes: int
    pods: int
    pods_per_second: float
    created_per_second: float
    create_to_bound_p50_ms: float
    create_to_bound_p99_ms: float
    cpu_ms_per_pod: float
    """CPU time of the scheduler's process from its first binding on."""
    server_cpu_ms_per_pod: float
    """CPU time of the API server's processes meanwhile; 0 where they are not named."""
    start_cpu_seconds: float
    """CPU time of the scheduler's process up to its first binding."""


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


def own_column(flags: Sequence[str]) -> Column:
    """This project's scheduler."""
    run = ["run", "--no-leader-elect", "--port", "0", "--qps", "100000"]
    return Column(OURS, [sys.executable, "-m", "scheduler", *flags, *run])


def stock_column(binary: Path, kubeconfig: Path, folder: Path) -> Column:
    """The stock scheduler with its defaults, but for the limits of its client."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 100_000, "burst": 100_000},
        "leaderElection": {"leaderElect": False},
    }
    file = folder / "kube-scheduler.yaml"
    file.write_bytes(msgspec.yaml.encode(document))
    return Column(STOCK, [str(binary), f"--config={file}", "--secure-port=0"])


def cpu_seconds(*pids: int) -> float:
    """CPU time of processes so far."""
    texts = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in texts) / 100.0


@contextmanager
def running(column: Column) -> Iterator[Callable[[], float]]:
    """Run a column's scheduler; gives what says its CPU time."""
    with subprocess.Popen(column.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def used() -> float:
            if process.poll() is not None:
                raise click.ClickException(f"{column.name} ended with {process.returncode}: {' '.join(column.command)}")
            return cpu_seconds(process.pid)

        try:
            yield used
        finally:
            process.terminate()


class Bindings:
    """Notes when a watch shows each pod bound, and which pods there are."""

    def __init__(self) -> None:
        self.times: dict[Key, float] = {}
        self.present: set[Key] = set()
        self._changed = threading.Condition()

    def __call__(self, deltas: Iterable[StoreDelta[Pod]]) -> None:
        now = time.perf_counter()
        with self._changed:
            for delta in deltas:
                if delta.new is None:
                    self.present.discard(delta.key)
                    continue
                self.present.add(delta.key)
                if delta.new.spec.node_name:
                    self.times.setdefault(delta.key, now)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until the condition holds; it is asked after each change."""
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)


def create(client: Client, kind: Resource[Any], document: dict[str, Any]) -> None:
    """Create an object, and write its status the way the API wants it: separately."""
    with contextlib.suppress(AlreadyExists):
        client.create(kind, document)
    if "status" in document:
        key = Key(document["metadata"].get("namespace", ""), document["metadata"]["name"])
        client.patch(kind, key, merge_patch({"status": document["status"]}), subresource="status")


class Cluster:
    """An API server with the scene's nodes, reports and profiles."""

    def __init__(self, client: Client, scene: Scene, timeout_seconds: float, server_pids: Sequence[int]) -> None:
        self._client = client
        self._scene = scene
        self._server_pids = server_pids
        self._timeout = timeout_seconds
        self._pool = ThreadPoolExecutor(16)
        self._bindings = Bindings()
        self._informer = Informer(client, PLACES)
        self._informer.subscribe(self._bindings)

    def __enter__(self) -> Self:
        for definition in DEFINITIONS:
            create(self._client, CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
        create(self._client, PRIORITY_CLASSES, {"metadata": {"name": PRIORITY_CLASS}, "value": PRIORITY})
        self._await_kinds()
        self._create(NODES, node_documents(self._scene))
        self._create(custom(WORKLOAD_PROFILE), profile_documents(self._scene))
        self._informer.start()
        self._informer.wait_synced(60.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._informer.stop()
        self._pool.shutdown()

    def measure(self, column: Column, name: str, arrivals_per_second: float) -> Measurement:
        """Measure a column: pods that are there before the scheduler starts, or that arrive at a rate above 0."""
        self._create(custom(NODE_METRIC), metric_documents(self._scene, time.time()))
        pods = list(pod_documents(self._scene, column.name, name))
        keys = {Key(NAMESPACE, each["metadata"]["name"]) for each in pods}
        created: dict[Key, float] = {}
        began = time.perf_counter()
        if not arrivals_per_second:
            self._arrive(pods, created, 0.0)
            created_seconds = time.perf_counter() - began
        times = self._bindings.times
        with running(column) as cpu:
            if arrivals_per_second:
                self._warm(column, name)
                start, served, before = cpu(), cpu_seconds(*self._server_pids), 0
                began = time.perf_counter()
                self._arrive(pods, created, arrivals_per_second)
                created_seconds = time.perf_counter() - began
            else:
                self._bindings.wait(lambda: not keys.isdisjoint(times), self._timeout)
                start, served, before = cpu(), cpu_seconds(*self._server_pids), len(keys & times.keys())
            if not self._bindings.wait(lambda: len(times) >= len(keys) and keys <= times.keys(), self._timeout):
                cpu()
                raise click.ClickException(
                    f"{column.name}: {len(keys & times.keys())} of {len(keys)} pods bound in {self._timeout} s"
                )
            used, served = cpu() - start, cpu_seconds(*self._server_pids) - served
        bound = {key: times[key] for key in keys}
        waits = [(bound[key] - created[key]) * 1000 for key in keys]
        p50, p99 = np.percentile(waits, [50, 99])
        self._clear(pods)
        return Measurement(
            column.name,
            self._scene.nodes,
            len(keys),
            len(keys) / (max(bound.values()) - min(bound.values())),
            len(keys) / created_seconds,
            float(p50),
            float(p99),
            used * 1000 / (len(keys) - before),
            served * 1000 / (len(keys) - before),
            start,
        )

    def _create(self, kind: Resource[Any], documents: Iterable[dict[str, Any]]) -> None:
        list(self._pool.map(lambda document: create(self._client, kind, document), documents))

    def _await_kinds(self) -> None:
        """Wait until the API server serves the custom kinds."""
        until = time.monotonic() + 60.0
        for kind in (custom(NODE_METRIC), custom(WORKLOAD_PROFILE)):
            while True:
                try:
                    self._client.list(kind)
                    break
                except (NotFound, Unavailable):
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.2)

    def _warm(self, column: Column, name: str) -> None:
        """Let the scheduler take in the cluster and place a few pods, that are then deleted."""
        few = Scene(self._scene.nodes, WARM_PODS, self._scene.workloads, self._scene.burst, self._scene.seed)
        pods = list(pod_documents(few, column.name, f"{name}-warm"))
        self._arrive(pods, {}, 0.0)
        keys = {Key(NAMESPACE, each["metadata"]["name"]) for each in pods}
        if not self._bindings.wait(lambda: keys <= self._bindings.times.keys(), self._timeout):
            raise click.ClickException(f"{column.name} bound nothing in {self._timeout} s")
        self._clear(pods)
        time.sleep(SETTLE_SECONDS)

    def _arrive(self, pods: Sequence[dict[str, Any]], created: dict[Key, float], per_second: float) -> None:
        """Create pods, at a rate or as fast as may be; note when each request was sent."""
        began = time.perf_counter()

        def one(numbered: tuple[int, dict[str, Any]]) -> None:
            index, document = numbered
            if per_second:
                time.sleep(max(0.0, began + index / per_second - time.perf_counter()))
            created[Key(NAMESPACE, document["metadata"]["name"])] = time.perf_counter()
            self._client.create(PODS, document)

        list(self._pool.map(one, enumerate(pods)))

    def _clear(self, pods: Sequence[dict[str, Any]]) -> None:
        keys = {Key(NAMESPACE, each["metadata"]["name"]) for each in pods}
        at_once = DeleteOptions(grace_period_seconds=0)
        list(self._pool.map(lambda key: self._client.delete(PODS, key, at_once), keys))
        self._bindings.wait(lambda: not keys & self._bindings.present, self._timeout)


def live(
    client: Client,
    scene: Scene,
    columns: Sequence[Column],
    *,
    rounds: int,
    arrivals_per_second: float,
    timeout_seconds: float,
    server_pids: Sequence[int] = (),
) -> dict[str, Any]:
    """Measure the columns in turn, beside them the processes of the API server; all measurements, and medians."""
    found: list[Measurement] = []
    with Cluster(client, scene, timeout_seconds, server_pids) as cluster:
        for number in range(rounds):
            # Each column is first in every other round.
            for column in columns if number % 2 == 0 else columns[::-1]:
                measured = cluster.measure(column, f"r{number}-{column.name}", arrivals_per_second)
                print(measured, file=sys.stderr, flush=True)
                found.append(measured)
    medians: dict[str, dict[str, float]] = {}
    for column in columns:
        rows = [asdict(each) for each in found if each.column == column.name]
        medians[column.name] = {key: float(np.median([row[key] for row in rows])) for key in rows[0] if key != "column"}
    return {"measurements": [asdict(each) for each in found], "medians": medians}
