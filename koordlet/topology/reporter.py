"""Reporter of the CPUs: compares the state at an interval, writes the NodeResourceTopology object on change."""

import time
from collections.abc import Mapping

from api.crds import NODE_RESOURCE_TOPOLOGY
from cluster import Backoff, Client, KeptObject, Key, Repeating, custom
from koordlet.topology.cpu_state import CpuStateReader, NodeOf
from koordlet.topology.node_topology import merged, node_topology_object

LEAST_SECONDS = 3.0
"""Least time between two writes: thousands of nodes share one API server."""


class TopologyReporter:
    """Thread that reports the CPUs of one node; `counters` never waits."""

    def __init__(
        self,
        client: Client,
        name: str,
        node: NodeOf,
        state: CpuStateReader,
        retry: Backoff,
        *,
        least_seconds: float = LEAST_SECONDS,
    ) -> None:
        """`node` is the newest object of the node called `name`; nothing is written before it is known."""
        self._node = node
        self._state = state
        self._kept = KeptObject(client, custom(NODE_RESOURCE_TOPOLOGY), Key("", name))
        self._repeating = Repeating("topology-reporter", self.step, least_seconds, retry)

    def start(self) -> None:
        """Start the thread."""
        self._repeating.start()

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Stop; the object stays: its CPUs are there without this agent."""
        self._repeating.stop(timeout_seconds)

    def counters(self) -> Mapping[str, int]:
        """Return the counters since the start."""
        return {"writes": self._kept.writes, "failures": self._repeating.failures}

    def step(self) -> None:
        """Write what changed. Raises ClusterError where the API server refuses, HostError without a readable sysfs."""
        node = self._node()
        if node is None or not node.metadata.uid:
            return
        wanted = node_topology_object(self._state.current(), node)
        self._kept.sync(lambda stored: merged(stored, wanted), time.monotonic())
