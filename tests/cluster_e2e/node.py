"""A real cluster of one node on this machine, from a folder of binaries, and its complete removal.

with node_running(assets) as node:
    node.client.list(PODS)
"""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster import NODES, Client, ClientSettings, Document, Key, Resource, connect
from tests.cluster_e2e import machine
from tests.cluster_e2e.control_plane import (
    NODE_NAME,
    Credentials,
    Ports,
    apiserver_command,
    controllers_command,
    etcd_command,
    free_ports,
    is_ready,
)
from tests.cluster_e2e.kubelet import Kubelet
from tests.cluster_e2e.processes import end_of, start, stop
from tests.cluster_e2e.record import Record, locked
from tests.cluster_e2e.runtime import Runtime
from tests.waiting import wait_for

BINARIES = (
    "kube-apiserver",
    "kube-controller-manager",
    "etcd",
    "kubelet",
    "kubectl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "cni/bridge",
    "cni/host-local",
    "cni/loopback",
)
START_SECONDS = 120.0
SERVICE_ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", dict)


@dataclass(frozen=True)
class Node:
    """A running cluster of one node."""

    assets: Path
    directory: Path
    keys: Credentials
    url: str
    kubeconfig: Path
    """Of an administrator."""
    node_kubeconfig: Path
    """Of the kubelet."""
    client: Client
    runtime: Runtime
    kubelet: Kubelet
    name: str = NODE_NAME

    def object(self) -> Document:
        """Return the node object."""
        return self.client.get(NODES, Key("", self.name))


def missing_binaries(assets: Path) -> list[str]:
    """Return which of the needed binaries are not in the folder."""
    return [name for name in BINARIES if not os.access(assets / name, os.X_OK)]


@contextmanager
def node_running(assets: Path, kubelet_settings: Mapping[str, Any] | None = None) -> Iterator[Node]:
    """Start everything; on leaving, and on any error and Ctrl-C before, remove every trace of it.

    Raises NodeRunningError and MachineBusyError.
    """
    with locked() as left_over:
        if left_over is not None:
            remove(assets, left_over)
        record = Record(tempfile.mkdtemp(prefix="koord-node-"))
        record.save()
        try:
            with ExitStack() as stack:
                machine.prepare(record)
                yield _start(assets, record, kubelet_settings or {}, stack)
        finally:
            remove(assets, record)


def remove(assets: Path, record: Record) -> None:
    """End the node's programs and containers, and undo what it did to the machine; raises AssertionError if not all."""
    runtime = Runtime(assets, record.path)
    for process in reversed(record.started):
        if process.name == "containerd":
            runtime.remove_containers()
            for shim in runtime.shims():
                stop(shim, grace_seconds=3.0)
        stop(process)
    for shim in runtime.shims():
        stop(shim, grace_seconds=1.0)
    machine.restore(record)
    left = machine.leftovers(record)
    assert not left, f"left behind: {left}"


def _start(assets: Path, record: Record, kubelet_settings: Mapping[str, Any], stack: ExitStack) -> Node:
    directory = record.path
    keys = Credentials.make(directory / "pki")
    *ports, kubelet_port, health_port = free_ports(6)
    control = Ports(*ports)
    runtime, kubelet = Runtime(assets, directory), Kubelet(directory, kubelet_port, health_port)
    admin = keys.kubeconfig(directory / "admin.kubeconfig", control.url, keys.admin)
    controllers = keys.kubeconfig(directory / "controllers.kubeconfig", control.url, keys.controllers)
    own = keys.kubeconfig(directory / "node.kubeconfig", control.url, keys.node)
    runtime.configure()
    kubelet.configure(keys, runtime, kubelet_settings)
    environment = runtime.environment()

    def launch(name: str, command: list[str | Path]) -> None:
        record.started.append(start(name, command, _log(directory, name), environment))
        record.save()

    def check() -> str:
        ended = [each for each in record.started if not each.is_alive]
        assert not ended, f"{ended[0].name} ended\n{end_of(_log(directory, ended[0].name))}"
        return "\n".join(f"{each.name}: {end_of(_log(directory, each.name))[-600:]}" for each in record.started)

    launch("etcd", etcd_command(assets, directory, control))
    launch("kube-apiserver", apiserver_command(assets, keys, control))
    launch("containerd", runtime.command())
    wait_for(runtime.answers, START_SECONDS, check=check, interval_seconds=0.1)
    runtime.import_images()
    wait_for(lambda: is_ready(keys, control.url), START_SECONDS, check=check, interval_seconds=0.1)
    launch("kube-controller-manager", controllers_command(assets, keys, control, controllers))
    launch("kubelet", kubelet.command(assets, own))
    client = stack.enter_context(connect(ClientSettings(), kubeconfig=admin))
    wait_for(lambda: _is_node_ready(client), START_SECONDS, check=check, interval_seconds=0.1)
    account = Key("default", "default")
    wait_for(lambda: client.find(SERVICE_ACCOUNTS, account), START_SECONDS, check=check, interval_seconds=0.1)
    return Node(assets, directory, keys, control.url, admin, own, client, runtime, kubelet)


def _is_node_ready(client: Client) -> bool:
    node = client.find(NODES, Key("", NODE_NAME)) or {}
    conditions = node.get("status", {}).get("conditions") or ()
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _log(directory: Path, name: str) -> Path:
    return directory / f"{name}.log"
