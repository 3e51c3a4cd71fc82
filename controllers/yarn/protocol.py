"""What a ResourceManager says of its nodes over REST, and how pods of NodeManagers are marked. Pure.

Fields as in "ResourceManager REST API's" of Hadoop 3.3 (Cluster Nodes API). Setting a node's resource, `POST
/ws/v1/cluster/nodes/{id}/resource`, came with Hadoop 3.3.0. A MB of YARN is 2**20 bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from controllers.capacity.pods import MOST, Amounts

LABEL_COMPONENT = "app.kubernetes.io/component"
COMPONENT = "node-manager"
"""Marks the pods of NodeManagers, as Koordinator's copilot and charts do."""
ANNOTATION_NODE_ID = "yarn.hadoop.apache.org/node-id"
"""HOST:PORT under which the NodeManager registers; without it the host name of the pod's node counts."""
ANNOTATION_CLUSTER_ID = "yarn.hadoop.apache.org/cluster-id"
NODES_PATH = "/ws/v1/cluster/nodes"
MIB = 1 << 20


class NodeState(StrEnum):
    """State of a NodeManager as its ResourceManager sees it."""

    NEW = "NEW"
    RUNNING = "RUNNING"
    UNHEALTHY = "UNHEALTHY"
    DECOMMISSIONING = "DECOMMISSIONING"
    DECOMMISSIONED = "DECOMMISSIONED"
    LOST = "LOST"
    REBOOTED = "REBOOTED"
    SHUTDOWN = "SHUTDOWN"


@dataclass(frozen=True, slots=True)
class Capability:
    """An amount as YARN counts it."""

    vcores: int
    mib: int

    def __str__(self) -> str:
        return f"{self.vcores} vcores and {self.mib} MiB"


NOTHING = Capability(0, 0)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One NodeManager as its ResourceManager reports it."""

    node_id: str
    host: str
    state: str
    """A `NodeState`, or a later version's."""
    total: Capability
    used: Capability
    """Of running containers; a ResourceManager allows them to exceed a total that was lowered."""
    health: str = ""


class _Resource(msgspec.Struct, frozen=True, rename={"vcores": "vCores"}):
    memory: int = 0
    vcores: int = 0


class _Node(msgspec.Struct, frozen=True):
    id: str
    state: str = ""
    host: str = msgspec.field(default="", name="nodeHostName")
    health: str = msgspec.field(default="", name="healthReport")
    used_mib: int = msgspec.field(default=0, name="usedMemoryMB")
    free_mib: int = msgspec.field(default=0, name="availMemoryMB")
    used_vcores: int = msgspec.field(default=0, name="usedVirtualCores")
    free_vcores: int = msgspec.field(default=0, name="availableVirtualCores")
    total: _Resource | None = msgspec.field(default=None, name="totalResource")


class _Nodes(msgspec.Struct, frozen=True):
    node: list[_Node] | _Node = []


class _Answer(msgspec.Struct, frozen=True):
    nodes: _Nodes | str | None


class _RemoteError(msgspec.Struct, frozen=True):
    exception: str = ""
    message: str = ""


class _ErrorAnswer(msgspec.Struct, frozen=True):
    remote: _RemoteError = msgspec.field(name="RemoteException")


def nodes_of(body: bytes) -> dict[str, NodeReport]:
    """Return the nodes of an answer by id. Raises ValueError for what is no list of nodes.

    An empty list comes as null or an empty text, and one node of old versions without the array around it.
    """
    try:
        nodes = msgspec.json.decode(body, type=_Answer, strict=False).nodes
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"no list of nodes: {error}") from error
    if not isinstance(nodes, _Nodes):
        return {}
    listed = [nodes.node] if isinstance(nodes.node, _Node) else nodes.node
    return {each.id: _report(each) for each in listed}


def _report(node: _Node) -> NodeReport:
    used = _capability(node.used_vcores, node.used_mib)
    if node.total is not None:
        total = _capability(node.total.vcores, node.total.memory)
    else:  # before Hadoop 3.1
        total = _capability(node.used_vcores + node.free_vcores, node.used_mib + node.free_mib)
    host = node.host or node.id.partition(":")[0]
    return NodeReport(node.id, host, node.state, total, used, node.health)


def _capability(vcores: int, mib: int) -> Capability:
    return Capability(min(max(vcores, 0), MOST), min(max(mib, 0), MOST // MIB))


def problem_of(body: bytes) -> str:
    """Return the sentence of an error's answer, cut to 200 characters."""
    try:
        said = msgspec.json.decode(body, type=_ErrorAnswer).remote
        text = f"{said.exception}: {said.message}"
    except (msgspec.DecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
    return " ".join(text.split())[:200]


def resource_option(wanted: Capability, overcommit_timeout_seconds: float) -> bytes:
    """Return the body that sets a node's resource.

    Containers beyond it are preempted after the timeout; never, for a negative one.
    """
    timeout = -1 if overcommit_timeout_seconds < 0 else round(overcommit_timeout_seconds * 1000)
    body: dict[str, Any] = {
        "resource": {"memory": wanted.mib, "vCores": wanted.vcores},
        "overCommitTimeout": timeout,
    }
    return msgspec.json.encode(body)


def at_most(amounts: Amounts, millicores_per_vcore: int) -> Capability:
    """Return millicores and bytes as YARN counts them, rounded down."""
    return Capability(max(amounts[0], 0) // millicores_per_vcore, max(amounts[1], 0) // MIB)


def amounts_of(capability: Capability, millicores_per_vcore: int) -> Amounts:
    """Return millicores and bytes."""
    return capability.vcores * millicores_per_vcore, capability.mib * MIB


def marked_cluster(marked: str, known: Mapping[str, object]) -> str:
    """Return the YARN cluster of a pod marked so: the only one for a pod without a mark; empty if there is none."""
    if marked:
        return marked if marked in known else ""
    return next(iter(known)) if len(known) == 1 else ""
