"""A backlog handed from kube-scheduler to koord-scheduler and back, on one file and one lease, by SIGKILL.

The pods fill the nodes exactly: a scheduler that counts one pod of the other wrongly overfills a node, or leaves pods.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.table import Table

from cluster import (
    NAMESPACES,
    NODES,
    PODS,
    Client,
    DeltaType,
    Document,
    Informer,
    Key,
    StoreDelta,
    connect,
    merge_patch,
)
from tests.cluster import apiserver
from tests.waiting import LOG_CHARS, wait_for

pytestmark = pytest.mark.cluster

NODES_COUNT, PODS_PER_NODE = 20, 30
TOTAL = NODES_COUNT * PODS_PER_NODE
REQUESTS_PER_SECOND = 60
"""Of either scheduler: slow enough to be stopped in mid-backlog."""


def configuration(kubeconfig: Path) -> Document:
    """The file that both schedulers read."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": REQUESTS_PER_SECOND, "burst": REQUESTS_PER_SECOND},
        "leaderElection": {
            "leaderElect": True,
            "leaseDuration": "4s",
            "renewDeadline": "3s",
            "retryPeriod": "500ms",
            "resourceName": "kube-scheduler",
            "resourceNamespace": "kube-system",
        },
        "profiles": [{"schedulerName": "default-scheduler"}],
    }


class Bindings:
    """Every node that any version of a pod named, from a watch."""

    def __init__(self, client: Client) -> None:
        self.nodes: dict[str, set[str]] = defaultdict(set)
        self._informer = Informer(client, PODS.of(dict))
        self._informer.subscribe(self._take)
        self._informer.start()

    def _take(self, deltas: list[StoreDelta[Document]]) -> None:
        for delta in deltas:
            if delta.type is not DeltaType.DELETED and delta.new is not None:
                node = delta.new["spec"].get("nodeName")
                if node:
                    self.nodes[delta.new["metadata"]["uid"]].add(node)

    def stop(self) -> None:
        self._informer.stop()

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def moved(self) -> int:
        return sum(len(nodes) > 1 for nodes in list(self.nodes.values()))

    @property
    def fullest(self) -> int:
        """Pods on the fullest node."""
        return max(Counter(node for nodes in list(self.nodes.values()) for node in nodes).values(), default=0)


@contextlib.contextmanager
def running(command: list[str], log: Path) -> Iterator[Callable[[], str]]:
    """A scheduler that ends by SIGKILL; yields what raises where it ended by itself."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=Path(__file__).parents[2])

    def alive() -> str:
        text = log.read_text(errors="replace")[-LOG_CHARS:]
        assert process.poll() is None, f"{command[0]} ended\n{text}"
        return text

    try:
        yield alive
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


def fill(client: Client) -> None:
    resources = {"cpu": str(PODS_PER_NODE), "memory": "64Gi", "pods": "110"}
    for index in range(NODES_COUNT):
        name = f"n{index}"
        client.create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        client.patch(NODES, Key("", name), merge_patch({"spec": {"taints": None}}))
        status = {"capacity": resources, "allocatable": resources, "conditions": [{"type": "Ready", "status": "True"}]}
        client.patch(NODES, Key("", name), merge_patch({"status": status}), subresource="status")
    client.create(NAMESPACES, {"metadata": {"name": "backlog"}})
    container = {"name": "main", "image": "registry.invalid/app", "resources": {"requests": {"cpu": "1"}}}
    for index in range(TOTAL):
        meta = {"name": f"p{index}", "namespace": "backlog"}
        client.create(PODS, {"metadata": meta, "spec": {"containers": [container]}})


def test_a_backlog_changes_hands_twice_and_every_pod_is_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assets = Path(os.environ["KUBEBUILDER_ASSETS"])
    if not (assets / "kube-scheduler").exists():
        pytest.skip(f"KUBEBUILDER_ASSETS={assets} lacks kube-scheduler")
    with apiserver.running(assets, tmp_path) as kubeconfig, connect(kubeconfig=kubeconfig) as client:
        fill(client)
        file = tmp_path / "scheduler.yaml"
        file.write_bytes(msgspec.yaml.encode(configuration(kubeconfig)))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        stock = [str(assets / "kube-scheduler"), f"--config={file}", "--bind-address=127.0.0.1"]
        stock += [f"--secure-port={port}", f"--cert-dir={tmp_path / 'stock'}"]
        stock += [f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}"]
        ours = [sys.executable, "-m", "scheduler", "--config", str(file), "run", "--port", "0"]
        seen = Bindings(client)
        table = Table("scheduler", "bound before", "bound at its end", "moved", "fullest node", "to the first [s]")
        phases = (("kube-scheduler", stock, TOTAL // 4), ("koord-scheduler", ours, TOTAL // 2))
        try:
            for name, command, until in (*phases, ("kube-scheduler", stock, TOTAL)):
                before, started = seen.count, time.monotonic()
                with running(command, tmp_path / f"{name}.log") as alive:
                    wait_for(lambda before=before: seen.count > before, 90, check=alive)
                    first = time.monotonic() - started
                    wait_for(lambda until=until: seen.count >= until, 120, check=alive)
                time.sleep(0.5)
                numbers = [str(number) for number in (before, seen.count, seen.moved, seen.fullest)]
                table.add_row(name, *numbers, f"{first:.1f}")
                assert seen.count < TOTAL or until == TOTAL, "the backlog was gone before the scheduler was stopped"
        finally:
            seen.stop()
        with capsys.disabled():
            Console(width=110).print(table)
        assert (seen.count, seen.moved, seen.fullest) == (TOTAL, 0, PODS_PER_NODE)
        pods = client.list(PODS).values
        assert Counter(pod["spec"]["nodeName"] for pod in pods) == {f"n{i}": PODS_PER_NODE for i in range(NODES_COUNT)}
