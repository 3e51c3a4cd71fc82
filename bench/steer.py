"""koord-manager on a large cluster: processor time, memory, requests and the time of a full resync.

Usage: python -m bench.steer [--nodes 1000] [--pods 20000] [--seconds 120] [--kubeconfig FILE | --server URL]

Loads nodes, pods and reports into an API server (a twin in a process of its own, or an empty cluster), starts
`koord-manager run` and measures it as the kernel accounts for it, while every node reports once a minute and some pods
change. The API server's own cost is not counted. Prints one JSON document. `--seconds 0` only loads, `--loaded` only
measures, so that the measurement can have the machine for itself.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from api.crds import DEFINITIONS, definition_document
from api.kube.times import rfc3339
from cluster import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    AlreadyExists,
    Client,
    ClientSettings,
    Document,
    Key,
    Resource,
    connect,
    merge_patch,
    plain_endpoint,
)
from controllers.kinds import NODE_METRIC, NODE_SLO

ROOT = Path(__file__).parent.parent
NAMESPACE = "koordinator-system"
LOADERS = 8
REPORT_SECONDS = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
DUE = r"^koord_manager_objects_due{[^}]*} ([0-9.e+]+)$"
FAST = ClientSettings(requests_per_second=2000, burst=4000)


def a_node(number: int) -> Document:
    """A node of 64 cores."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    labels = {"pool": "ab"[number % 2], "kubernetes.io/hostname": f"node-{number:05d}"}
    return {
        "metadata": {"name": f"node-{number:05d}", "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def a_pod(number: int, nodes: int) -> Document:
    """A service, or a batch pod in every third place."""
    batch = number % 3 == 0
    resources = {"kubernetes.io/batch-cpu": "1000"} if batch else {"cpu": "2", "memory": "4Gi"}
    limits = {name: amount for name, amount in resources.items() if batch}
    return {
        "metadata": {
            "name": f"pod-{number:06d}",
            "namespace": "default",
            "labels": {"koordinator.sh/qosClass": "BE" if batch else "LS", "app": f"app-{number % 200}"},
        },
        "spec": {
            "nodeName": f"node-{number % nodes:05d}",
            "containers": [{"name": "main", "image": "app", "resources": {"requests": resources, "limits": limits}}],
        },
    }


def a_report(number: int, nodes: int, pods: int, draw: random.Random) -> Document:
    """The report of a node with its pods, drawn around a steady level."""
    measured = [
        {
            "name": f"pod-{pod:06d}",
            "namespace": "default",
            "podUsage": {"resources": {"cpu": f"{draw.randint(400, 1200)}m", "memory": f"{draw.randint(1, 3)}Gi"}},
            "priority": "koord-batch" if pod % 3 == 0 else "koord-prod",
            "qos": "BE" if pod % 3 == 0 else "LS",
        }
        for pod in range(number, pods, nodes)
    ]
    usage = {"resources": {"cpu": f"{draw.randint(10_000, 20_000)}m", "memory": "64Gi"}}
    return {
        "status": {
            "updateTime": rfc3339(time.time()),
            "nodeMetric": {"nodeUsage": usage, "systemUsage": {"resources": {"cpu": "1", "memory": "4Gi"}}},
            "podsMetric": measured,
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "8", "memory": "32Gi"}}},
        }
    }


@contextmanager
def server(kubeconfig: Path | None, url: str) -> Iterator[tuple[Client, list[str]]]:
    """A client, and the options that lead the manager to the same server."""
    if url:
        with Client(plain_endpoint(url), FAST) as client:
            yield client, ["--server", url]
        return
    if kubeconfig is not None:
        with connect(FAST, kubeconfig=kubeconfig) as client:
            yield client, ["--kubeconfig", str(kubeconfig)]
        return
    command = [sys.executable, "-m", "cluster.twin"]
    # In a session of its own: what is typed at the bench ends the programs first, and their server by its input.
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    try:
        with Client(plain_endpoint(url), FAST) as client:
            yield client, ["--server", url]
    finally:
        process.stdin.close()
        process.wait(20)


def make(client: Client, resource: Resource[Any], obj: Document, status: Document | None = None) -> None:
    """Create an object, and its status where it has one of its own; one that is there stays."""
    with suppress(AlreadyExists):
        client.create(resource, obj)
    if status is not None:
        key = Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        client.patch(resource, key, merge_patch({"status": status}), subresource="status")


def load(client: Client, nodes: int, pods: int) -> None:
    """Load definitions, configuration, nodes, reports and pods."""
    for definition in DEFINITIONS:
        make(client, CUSTOM_RESOURCE_DEFINITIONS, definition_document(definition))
    for name in (NAMESPACE, "default"):
        make(client, NAMESPACES, {"metadata": {"name": name}})
    strategy = json.dumps({"enable": True})
    config = {"metadata": {"name": "slo-controller-config", "namespace": NAMESPACE}}
    make(client, CONFIG_MAPS, {**config, "data": {"colocation-config": strategy}})
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            client.list(NODE_METRIC)
            client.list(NODE_SLO)
            break
        except Exception:  # noqa: BLE001 (a definition takes a moment to be served)
            time.sleep(0.5)
    draw = random.Random(1)

    def node(number: int) -> None:
        obj = a_node(number)
        make(client, NODES, obj, obj["status"])
        name = obj["metadata"]["name"]
        make(
            client, NODE_METRIC, {"metadata": {"name": name}, "spec": {}}, a_report(number, nodes, pods, draw)["status"]
        )

    with ThreadPoolExecutor(LOADERS) as pool:
        list(pool.map(node, range(nodes)))
        list(pool.map(lambda number: make(client, PODS, a_pod(number, nodes), {"phase": "Running"}), range(pods)))


class Traffic:
    """Reports of all nodes once a minute, and pods that change their status, in a thread."""

    def __init__(self, client: Client, nodes: int, pods: int) -> None:
        self._client, self._nodes, self._pods = client, nodes, pods
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.reports = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        self._thread.join(10)

    def _run(self) -> None:
        draw = random.Random(2)
        started = time.monotonic()
        while not self._stopping.is_set():
            number = self.reports % self._nodes
            body = a_report(number, self._nodes, self._pods, draw)
            key = Key("", f"node-{number:05d}")
            self._client.patch(NODE_METRIC, key, merge_patch(body), subresource="status")
            if self.reports % 4 == 0:
                pod = Key("default", f"pod-{draw.randrange(self._pods):06d}")
                self._client.patch(
                    PODS, pod, merge_patch({"metadata": {"annotations": {"example.com/seen": str(self.reports)}}})
                )
            self.reports += 1
            self._stopping.wait(max(0.0, started + self.reports * REPORT_SECONDS / self._nodes - time.monotonic()))


class Manager:
    """One `koord-manager run`, its log and its accounts."""

    def __init__(self, options: list[str], log: Path, settings: Path) -> None:
        self._log = log
        self.started = time.monotonic()
        command = [sys.executable, "-m", "controllers", "--config", str(settings), *options]
        command += ["run", "--port", "0", "--no-leader-elect"]
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def cpu_seconds(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_megabytes(self, name: str = "VmRSS") -> float:
        """Resident memory; VmHWM is the peak."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+)", text)
        return int(found[1]) / 1000 if found else 0.0

    def metrics(self) -> str:
        """The text of /metrics; empty before it serves."""
        found = re.search(r"HTTP on port (\d+)", self._log.read_text())
        if found is None:
            return ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/metrics", timeout=10) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            return ""

    def total(self, name: str) -> float:
        """Sum of all series of a counter."""
        series = re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", self.metrics(), re.MULTILINE)
        return sum(map(float, series))

    def wait_settled(self, limit_seconds: float) -> float:
        """Seconds from the start until every controller planned and nothing is due or written any more."""
        while time.monotonic() - self.started < limit_seconds:
            due = [float(each) for each in re.findall(DUE, self.metrics(), re.MULTILINE)]
            if "synced" in self._log.read_text() and len(due) >= 5 and not any(due):
                before = self.total("koord_manager_writes_total")
                settled = time.monotonic()
                time.sleep(1.5)
                if self.total("koord_manager_writes_total") == before:
                    return settled - self.started
            time.sleep(0.25)
        raise SystemExit(f"not settled within {limit_seconds:.0f} s; see {self._log}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=120.0, help="time of steady traffic that is measured")
    parser.add_argument("--kubeconfig", type=Path, help="a cluster that may be filled; default is a twin")
    parser.add_argument("--server", default="", help="URL of a twin or a proxy; default is a twin of its own")
    parser.add_argument("--loaded", action="store_true", help="the cluster has the objects already")
    arguments = parser.parse_args()
    result: dict[str, Any] = {"nodes": arguments.nodes, "pods": arguments.pods}
    with server(arguments.kubeconfig, arguments.server) as (client, options), tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        if not arguments.loaded:
            load(client, arguments.nodes, arguments.pods)
        print(f"loaded in {time.monotonic() - started:.0f} s", file=sys.stderr)
        settings = Path(folder, "m.toml")
        settings.write_text("[loop]\nrequests_per_second = 200\nburst = 400\n")
        if arguments.seconds <= 0:
            return
        with Manager(options, Path(folder, "first"), settings) as manager:
            result["first_fill_seconds"] = round(manager.wait_settled(300.0), 1)
            result["first_fill_cpu_seconds"] = round(manager.cpu_seconds(), 1)
            result["first_fill_writes"] = int(manager.total("koord_manager_writes_total"))
        with Manager(options, Path(folder, "second"), settings) as manager:
            result["resync_seconds"] = round(manager.wait_settled(300.0), 1)
            result["resync_cpu_seconds"] = round(manager.cpu_seconds(), 1)
            with Traffic(client, arguments.nodes, arguments.pods) as traffic:
                time.sleep(5)
                requests, cpu, reports = (
                    manager.total("koord_manager_requests_total"),
                    manager.cpu_seconds(),
                    traffic.reports,
                )
                writes = manager.total("koord_manager_writes_total")
                began = time.monotonic()
                time.sleep(arguments.seconds)
                took = time.monotonic() - began
                result["cores"] = round((manager.cpu_seconds() - cpu) / took, 3)
                result["requests_per_minute"] = round(
                    60 * (manager.total("koord_manager_requests_total") - requests) / took
                )
                result["writes_per_minute"] = round(60 * (manager.total("koord_manager_writes_total") - writes) / took)
                result["reports_per_minute"] = round(60 * (traffic.reports - reports) / took)
            result["memory_megabytes"] = round(manager.memory_megabytes())
            result["peak_memory_megabytes"] = round(manager.memory_megabytes("VmHWM"))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
