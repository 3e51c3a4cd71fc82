"""A node with 110 pods of every kind, started and ended at once: each container is matched and dropped in time.

The truth is containerd's own stream of events, which tells when each container started and ended. Set KOORD_FULL_NODE=1
to run it, which takes some minutes; KOORD_FULL_NODE_SECONDS is the time for which the agent's memory is watched then.
"""

import os
import re
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest

from bench.agent import cpu_seconds, resident_bytes
from cluster import NAMESPACES, PODS, DeleteOptions, Document, Key, Query, Resource
from koordlet.identity.describe import Sources, describe
from koordlet.identity.pods import ContainerRole, PodTable
from koordlet.identity.workloads import ContainerFacts
from koordlet.kubelet.source import PodSource
from tests.cluster_e2e.agent import agent_running
from tests.cluster_e2e.conftest import Pods
from tests.cluster_e2e.images import BUSYBOX
from tests.cluster_e2e.node import Node
from tests.cluster_e2e.objects import QOS_CLASS, install
from tests.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("KOORD_FULL_NODE" not in os.environ, reason="KOORD_FULL_NODE is not set: it takes minutes"),
]
AGENT_SECONDS = float(os.environ.get("KOORD_FULL_NODE_SECONDS", "60"))
LIMIT_SECONDS = 2.0
MOST_LATE = 0.04
"""Share of starts and of ends that may be told later: everything begins and ends at once."""
DEPLOYMENTS = Resource("Deployment", "deployments", dict, group="apps")
JOBS = Resource("Job", "jobs", dict, group="batch")
PRIORITY_CLASSES = Resource("PriorityClass", "priorityclasses", dict, group="scheduling.k8s.io", namespaced=False)
PRIORITIES = {"full-prod": 9500, "full-batch": 5500}
BURSTABLE: Document = {"requests": {"cpu": "5m", "memory": "4Mi"}}
GUARANTEED: Document = {kind: {"cpu": "20m", "memory": "16Mi"} for kind in ("requests", "limits")}
LASTING, MOMENT = ["sleep", "3600"], ["sleep", "1"]
CRASHING = ["sh", "-c", "sleep 1; exit 1"]


@dataclass(frozen=True)
class Kind:
    """Pods of one kind, and what the agent is to say of them."""

    name: str
    made_by: str
    """`Deployment`, `Job`, `Pod`, or `static`."""
    pods: int
    qos: str
    priority: int | None = None
    command: list[str] = field(default_factory=lambda: LASTING)
    resources: Document = field(default_factory=dict)
    labels: Document = field(default_factory=dict)
    priority_class: str = ""
    sidecar: bool = False


KINDS = (
    Kind("ls", "Deployment", 24, "LS", 9500, LASTING, BURSTABLE, {QOS_CLASS: "LS"}, "full-prod", sidecar=True),
    Kind("be", "Deployment", 24, "BE", 5500, LASTING, {}, {QOS_CLASS: "BE"}, "full-batch"),
    Kind("burstable", "Deployment", 20, "LS", 0, LASTING, BURSTABLE),
    Kind("best-effort", "Deployment", 14, "BE", 0),
    Kind("guaranteed", "Pod", 9, "LSR", 0, LASTING, GUARANTEED),
    Kind("crashing", "Deployment", 8, "BE", 0, CRASHING),
    Kind("job", "Job", 8, "BE", 0, MOMENT),
    Kind("critical", "Pod", 2, "SYSTEM", 2_000_001_000, priority_class="system-node-critical"),
    Kind("static", "static", 1, "SYSTEM"),
)


def template(kind: Kind, node: str) -> Document:
    """Metadata and spec of a pod of a kind."""
    main = {"image": BUSYBOX, "imagePullPolicy": "Never", "resources": kind.resources}
    spec: Document = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        "containers": [{**main, "name": "main", "command": kind.command}],
    }
    if kind.sidecar:
        spec["initContainers"] = [{**main, "name": "side", "command": LASTING, "restartPolicy": "Always"}]
    if kind.priority_class:
        spec["priorityClassName"] = kind.priority_class
    if kind.made_by == "Job":
        spec["restartPolicy"] = "Never"
    return {"metadata": {"labels": {"app": kind.name, **kind.labels}}, "spec": spec}


def create(pods: Pods, kind: Kind) -> None:
    """Create the pods of a kind."""
    node, namespace = pods.node, pods.namespace
    pod = template(kind, node.name)
    named = {"metadata": {"name": kind.name, "namespace": namespace}}
    if kind.made_by == "Deployment":
        spec = {"replicas": kind.pods, "selector": {"matchLabels": {"app": kind.name}}, "template": pod}
        node.client.create(DEPLOYMENTS, {**named, "spec": spec})
    elif kind.made_by == "Job":
        spec = {"parallelism": kind.pods, "completions": kind.pods, "template": pod}
        node.client.create(JOBS, {**named, "spec": spec})
    elif kind.made_by == "static":
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {**named["metadata"], **pod["metadata"]}}
        (node.kubelet.static_pods / "full.json").write_bytes(msgspec.json.encode({**document, "spec": pod["spec"]}))
    else:
        for number in range(kind.pods):
            metadata = {**pod["metadata"], "name": f"{kind.name}-{number}", "namespace": namespace}
            node.client.create(PODS, {"metadata": metadata, "spec": pod["spec"]})


def workload_of(kind: Kind, namespace: str, pod: str) -> str:
    """What the agent is to call the workload."""
    return f"{kind.made_by}/{namespace}/{kind.name}" if kind.made_by in ("Deployment", "Job") else pod


class Witness:
    """Looks at each new table, and keeps when each container was first there with all that belongs to it, and gone."""

    def __init__(self, source: PodSource, namespace: str) -> None:
        self.matched: dict[str, float] = {}
        self.dropped: dict[str, float] = {}
        self.kind_of: dict[str, Kind] = {}
        self.wrong: dict[str, str] = {}
        self.tables = 0
        self._source = source
        self._namespace = namespace
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last: PodTable | None = None
        while not self._stopping.wait(0.01):
            table = self._source.table()
            if table is not last:
                last = table
                self.tables += 1
                self._look(table, time.time())

    def _look(self, table: PodTable, now: float) -> None:
        sources = Sources().with_pods(table)
        running = set()
        for pod in table.pods:
            if pod.namespace != self._namespace:
                continue
            kind = next(each for each in KINDS if pod.name.split("/")[1].startswith(f"{each.name}-"))
            for container in pod.containers:
                if not container.running or not container.id or not container.cgroup_path:
                    continue
                running.add(container.id)
                if container.id in self.matched:
                    continue
                info = describe(
                    1, container.cgroup_path, sources, lambda _: ContainerFacts(), owner_uid=0, delegated=False
                ).info
                sandbox = container.role is ContainerRole.SANDBOX
                expected = (
                    container.id,
                    pod.uid or pod.cgroup_uid,
                    "POD" if sandbox else container.name,
                    kind.qos,
                    workload_of(kind, self._namespace, pod.name),
                )
                found = (info.container_id, info.pod_uid, info.container, info.qos, info.workload)
                if found != expected or kind.priority not in (None, info.priority):
                    self.wrong[container.id] = f"{found} {info.priority}, not {expected} {kind.priority}"
                    continue
                self.wrong.pop(container.id, None)
                self.matched[container.id], self.kind_of[container.id] = now, kind
        for identity in self.matched.keys() - running - self.dropped.keys():
            self.dropped[identity] = now

    def close(self) -> None:
        """Stop."""
        self._stopping.set()
        self._thread.join()


_EVENT = re.compile(r"^(\S+ \S+) \+0000 UTC \S+ /tasks/(start|exit) (\{.*\})$", re.MULTILINE)


@dataclass
class Truth:
    """When each container started and ended, in seconds since the epoch."""

    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def read(self, log: Path) -> None:
        """Read containerd's events."""
        for moment, what, payload in _EVENT.findall(log.read_text()):
            stamp = datetime.fromisoformat(moment[:26]).replace(tzinfo=UTC).timestamp()
            event = msgspec.json.decode(payload)
            if what == "start":
                self.started[event["container_id"]] = stamp
            elif event.get("id", event["container_id"]) == event["container_id"]:
                self.ended[event["container_id"]] = stamp


@contextmanager
def events_of(node: Node, log: Path) -> Iterator[None]:
    """Containerd's events, written to a file."""
    command = [node.assets / "ctr", "--address", node.runtime.socket, "--namespace", "k8s.io", "events"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def states(pods: Pods) -> dict[str, int]:
    """Pods by phase."""
    found: dict[str, int] = defaultdict(int)
    for item in pods.node.client.list(PODS, Query(pods.namespace)).items:
        found[item.value["status"].get("phase", "")] += 1
    return dict(found)


def test_each_container_of_a_full_node(node: Node, source: PodSource, tmp_path: Path) -> None:
    pods = Pods(node)
    install(node.client, node.name)
    for name, value in PRIORITIES.items():
        node.client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    witness, truth = Witness(source, pods.namespace), Truth()
    log = tmp_path / "events"
    begun = time.monotonic()
    with events_of(node, log):
        for kind in KINDS:
            create(pods, kind)
        steady = sum(kind.pods for kind in KINDS if kind.command is LASTING)

        def all_run() -> bool:
            found = states(pods)
            return found.get("Running", 0) >= steady and found.get("Succeeded", 0) == 8

        wait_for(all_run, 600, check=lambda: f"{states(pods)} {node.programs.check()}", interval_seconds=2.0)
        print(f"\n{states(pods)} after {time.monotonic() - begun:.0f} s, {len(source.table())} pods in the table")
        reuse(pods)
        if AGENT_SECONDS:
            watch_agent(node, tmp_path)
        remove(pods)
        wait_for(lambda: not pods_of(source, pods.namespace), 120, check=lambda: str(pods_of(source, pods.namespace)))
        time.sleep(3)
    witness.close()
    truth.read(log)
    never, late = report(witness, truth)
    print(f"{witness.tables} tables, {dict(source.status().counters)}")
    node.client.delete(NAMESPACES, Key("", pods.namespace))
    for name in PRIORITIES:
        node.client.delete(PRIORITY_CLASSES, Key("", name))
    assert not witness.wrong, witness.wrong
    assert not never
    assert max(late.values()) <= MOST_LATE, late


def reuse(pods: Pods) -> None:
    """Delete a pod, and make another one of the same name."""
    key = Key(pods.namespace, "guaranteed-0")
    pods.node.client.delete(PODS, key, DeleteOptions(grace_period_seconds=0))
    wait_for(lambda: pods.node.client.find(PODS, key) is None, interval_seconds=0.1)
    pod = template(next(kind for kind in KINDS if kind.name == "guaranteed"), pods.node.name)
    metadata = {**pod["metadata"], "name": "guaranteed-0", "namespace": pods.namespace}
    pods.node.client.create(PODS, {"metadata": metadata, "spec": pod["spec"]})
    pods.await_phase("guaranteed-0", "Running")


def remove(pods: Pods) -> None:
    """End everything at once."""
    client = pods.node.client
    (pods.node.kubelet.static_pods / "full.json").unlink()
    for kind in KINDS:
        if kind.made_by in ("Deployment", "Job"):
            resource = DEPLOYMENTS if kind.made_by == "Deployment" else JOBS
            client.delete(resource, Key(pods.namespace, kind.name), DeleteOptions(propagation_policy="Background"))
    for item in client.list(PODS, Query(pods.namespace)).items:
        if item.identity.key.name.startswith(("guaranteed", "critical")):
            client.delete(PODS, item.identity.key, DeleteOptions(grace_period_seconds=1))


def pods_of(source: PodSource, namespace: str) -> list[str]:
    """Pods of a namespace in the table that have a running container."""
    return [
        pod.name
        for pod in source.table().pods
        if pod.namespace == namespace and any(each.running and each.id for each in pod.containers)
    ]


def watch_agent(node: Node, folder: Path) -> None:
    """Print memory and CPU time of an enforcing agent on the full node."""
    home = folder / "agent"
    home.mkdir()
    with agent_running(node, home) as agent:
        pid, begun = agent.process.pid, time.monotonic()
        rows: list[tuple[float, float, float]] = []
        while (passed := time.monotonic() - begun) < AGENT_SECONDS:
            rows.append((passed, resident_bytes(pid) / 1e6, cpu_seconds(pid)))
            time.sleep(5)
        warm = [row for row in rows if row[0] >= min(30.0, AGENT_SECONDS / 2)]
        share = (warm[-1][2] - warm[0][2]) / max(warm[-1][0] - warm[0][0], 1.0)
        print("agent, MB:", " ".join(f"{passed:.0f}s={size:.1f}" for passed, size, _ in rows))
        print(f"agent, CPU after 30 s: {share * 100:.2f} % of a core")
        for name in ("koord_pod_source_requests_total", "koord_agent_cgroups"):
            print(name, agent.metric(name))


def report(witness: Witness, truth: Truth) -> tuple[list[str], dict[str, float]]:
    """Print the table; return the containers that were never matched, and the shares of starts and ends told late.

    An end is that of the process; its cgroup goes, and the runtime tells of it, seconds later where many end at once.
    """
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: {"start": [], "end": []})
    for identity, kind in witness.kind_of.items():
        for what, seen, true in (
            ("start", witness.matched, truth.started),
            ("end", witness.dropped, truth.ended),
        ):
            if identity in seen and identity in true:
                rows[kind.name][what].append(max(seen[identity] - true[identity], 0.0))
    everything = {what: [each for row in rows.values() for each in row[what]] for what in ("start", "end")}
    print(f"{'kind':<12} {'':<5} {'count':>5} {'p50':>6} {'p95':>6} {'max':>6}  over {LIMIT_SECONDS:g} s")
    for name, row in (*rows.items(), ("all", everything)):
        for what, values in row.items():
            if values:
                over = sum(each > LIMIT_SECONDS for each in values)
                low, high, most = np.percentile(values, [50, 95, 100])
                print(f"{name:<12} {what:<5} {len(values):>5} {low:>6.2f} {high:>6.2f} {most:>6.2f}  {over}")
    never = sorted(set(truth.started) - witness.matched.keys())
    lives = [truth.ended[each] - truth.started[each] for each in truth.started if each in truth.ended]
    short = sum(each < 1.5 for each in lives)
    print(f"{len(truth.started)} containers started, {len(never)} never seen; {short} lived for less than 1.5 s")
    return never, {what: float(np.mean(np.array(each) > LIMIT_SECONDS)) for what, each in everything.items() if each}
