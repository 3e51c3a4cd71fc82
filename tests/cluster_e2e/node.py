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

from api.protocol import BATCH_CPU, BATCH_MEMORY
from cluster import NODES, Client, ClientSettings, Document, Key, Patch, PatchType, Resource, Unavailable, connect
from tests.cluster_e2e import machine
from tests.cluster_e2e.control_plane import (
    CONTROL_PLANE,
    NODE_NAME,
    ControlPlane,
    Credentials,
    elsewhere,
    free_ports,
    launch_control_plane,
)
from tests.cluster_e2e.kubelet import Kubelet
from tests.cluster_e2e.processes import stop
from tests.cluster_e2e.programs import Programs
from tests.cluster_e2e.record import Record, locked
from tests.cluster_e2e.runtime import Runtime
from tests.waiting import wait_for

CONTROL_PLANE_BINARIES = ("kube-apiserver", "kube-controller-manager", "etcd", "kubectl")
NODE_BINARIES = (
    "kubelet",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "cni/bridge",
    "cni/host-local",
    "cni/loopback",
)
START_SECONDS = 120.0
BATCH_AMOUNTS = {BATCH_CPU: "100000", BATCH_MEMORY: "100Gi"}
BATCH_STATUS = {"capacity": BATCH_AMOUNTS, "allocatable": BATCH_AMOUNTS}
"""What koord-manager advertises on a node: the kubelet rejects pods that request a resource the node lacks."""
SERVICE_ACCOUNTS = Resource("ServiceAccount", "serviceaccounts", dict)


@dataclass(frozen=True)
class Node:
    """A running cluster of one node."""

    assets: Path
    directory: Path
    control: ControlPlane
    kubeconfig: Path
    """Of an administrator."""
    node_kubeconfig: Path
    """Of the kubelet."""
    agent_kubeconfig: Path
    """Of the node agent."""
    client: Client
    runtime: Runtime
    kubelet: Kubelet
    programs: Programs
    name: str = NODE_NAME

    @property
    def keys(self) -> Credentials:
        """Certificates of the cluster."""
        return self.control.keys

    @property
    def url(self) -> str:
        """Address of the API server."""
        return self.control.url

    def is_ready(self) -> bool:
        """Return whether the API server answers and holds the node for Ready."""
        try:
            status = (self.client.find(NODES, Key("", self.name)) or {}).get("status", {})
        except Unavailable:
            return False
        return any(item["type"] == "Ready" and item["status"] == "True" for item in status.get("conditions") or ())

    def object(self) -> Document:
        """Return the node object."""
        return self.client.get(NODES, Key("", self.name))


def missing_binaries(assets: Path) -> list[str]:
    """Return which of the needed binaries are not in the folder."""
    needed = NODE_BINARIES if CONTROL_PLANE in os.environ else (*CONTROL_PLANE_BINARIES, *NODE_BINARIES)
    return [name for name in needed if not os.access(assets / name, os.X_OK)]


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
    kubelet_port, health_port = free_ports(2)
    runtime, kubelet = Runtime(assets, directory), Kubelet(directory, kubelet_port, health_port)
    runtime.configure()
    programs = Programs(record, runtime.environment())
    programs.launch("containerd", runtime.command())
    control = elsewhere(os.environ.get(CONTROL_PLANE, "")) or launch_control_plane(programs, assets)
    kubelet.configure(control.keys, runtime, kubelet_settings)
    wait_for(runtime.answers, START_SECONDS, check=programs.check, interval_seconds=0.1)
    runtime.import_images()
    own = control.kubeconfig(directory / "node.kubeconfig", control.keys.node)
    programs.launch("kubelet", kubelet.command(assets, own))
    admin = control.kubeconfig(directory / "admin.kubeconfig", control.keys.admin)
    agent = control.kubeconfig(directory / "agent.kubeconfig", control.keys.agent)
    client = stack.enter_context(connect(ClientSettings(), kubeconfig=admin))
    node = Node(assets, directory, control, admin, own, agent, client, runtime, kubelet, programs)
    wait_for(node.is_ready, START_SECONDS, check=programs.check, interval_seconds=0.1)
    client.patch(NODES, Key("", NODE_NAME), Patch(PatchType.MERGE, {"status": BATCH_STATUS}), subresource="status")
    account = Key("default", "default")
    wait_for(lambda: client.find(SERVICE_ACCOUNTS, account), START_SECONDS, check=programs.check, interval_seconds=0.1)
    return node
