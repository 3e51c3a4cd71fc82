"""Pods of this node and addresses of its kubelet from the API server, where the kubelet itself is not asked."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from api.kube.meta import Wire
from api.plugin import Unsupported
from cluster import (
    NODES,
    PODS,
    Client,
    ClientSettings,
    ClusterError,
    Informer,
    Key,
    NotConfigured,
    Query,
    StoreDelta,
    load_endpoint,
)
from koordlet.kubelet.pod_documents import NodePod

PACE = ClientSettings(
    requests_per_second=2.0,
    burst=10,
    timeout_seconds=10.0,
    connect_seconds=3.0,
    attempts=1,
    patience_seconds=5.0,
    user_agent="koordlet",
)
"""Rate of requests of one agent; thousands share one API server."""
_PODS = PODS.of(NodePod)


class _Address(Wire, frozen=True):
    type: str = ""
    address: str = ""


class _DaemonEndpoint(Wire, frozen=True):
    port: int = msgspec.field(default=0, name="Port")


class _DaemonEndpoints(Wire, frozen=True):
    kubelet_endpoint: _DaemonEndpoint = _DaemonEndpoint()


class _NodeStatus(Wire, frozen=True):
    addresses: list[_Address] = msgspec.field(default_factory=list)
    daemon_endpoints: _DaemonEndpoints = _DaemonEndpoints()


class _Node(Wire, frozen=True):
    status: _NodeStatus = _NodeStatus()


_NODES = NODES.of(_Node)


class ApiServer:
    """The API server as a source of pods and of the kubelet's addresses."""

    def __init__(self, client: Client, node: str) -> None:
        self.client = client
        self.node = node
        self._asked = 0
        self._watch: PodWatch | None = None

    @classmethod
    def connect(cls, kubeconfig: str, node: str) -> "ApiServer":
        """Return the API server that the environment configures. Raises `cluster.NotConfigured`."""
        endpoint = load_endpoint(kubeconfig=Path(kubeconfig) if kubeconfig else None, pool_size=2)
        return cls(Client(endpoint, PACE), node)

    def kubelet_endpoints(self) -> Sequence[str]:
        """Return the addresses of this node's kubelet. Raises Unsupported."""
        self._asked += 1
        try:
            status = self.client.get(_NODES, Key("", self.node)).status
        except ClusterError as error:
            raise Unsupported(
                f"node {self.node!r} cannot be read at the API server: {error}",
                "check --node, and that the agent's account may `get` nodes",
            ) from error
        port = status.daemon_endpoints.kubelet_endpoint.port or 10250
        internal = (each.address for each in status.addresses if each.type == "InternalIP")
        return tuple(f"https://[{each}]:{port}" if ":" in each else f"https://{each}:{port}" for each in internal)

    def watch(self, changed: Callable[[], None]) -> "PodWatch":
        """Return a watch of this node's pods, not yet started."""
        self._asked = self.requests
        self._watch = PodWatch(self.client, self.node, changed)
        return self._watch

    @property
    def requests(self) -> int:
        """Requests so far, those of the watches before the newest included."""
        return self._asked + (self._watch.requests if self._watch else 0)

    def close(self) -> None:
        """Drop idle connections."""
        self.client.close()


class PodWatch:
    """Watch of this node's pods; `changed` is called in its thread."""

    def __init__(self, client: Client, node: str, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._informer: Informer[NodePod] = Informer(client, _PODS, Query(fields=f"spec.nodeName={node}"))
        self._informer.subscribe(self._on_deltas)

    def start(self) -> None:
        """Start to watch."""
        self._informer.start()

    def pods(self) -> tuple[NodePod, ...] | None:
        """Return the pods by key; None before the first answer."""
        if not self._informer.wait_synced(0.0):
            return None
        return tuple(pod for _key, pod in sorted(self._informer.snapshot().items()))

    def wait(self, timeout_seconds: float) -> None:
        """Wait for the first answer."""
        self._informer.wait_synced(timeout_seconds)

    @property
    def undecodable(self) -> int:
        """Pods that were not readable."""
        return self._informer.undecodable

    @property
    def silent_seconds(self) -> float:
        """Seconds since the API server sent anything."""
        return self._informer.silent_seconds()

    @property
    def requests(self) -> int:
        """Lists and watches so far."""
        return self._informer.counters.lists + self._informer.counters.watches

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop."""
        self._informer.stop(timeout_seconds)

    def _on_deltas(self, _deltas: Sequence[StoreDelta[NodePod]]) -> None:
        self._changed()


__all__ = ["ApiServer", "NotConfigured", "PodWatch"]
