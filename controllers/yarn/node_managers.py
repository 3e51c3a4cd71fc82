"""Projection: the pods of NodeManagers, and which node of YARN each of them is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cluster.resources import Key, Resource
from cluster.store import StoreDelta
from controllers.kinds import POD, Pod
from controllers.runtime.view import Projection
from controllers.yarn.protocol import (
    ANNOTATION_CLUSTER_ID,
    ANNOTATION_NODE_ID,
    COMPONENT,
    LABEL_COMPONENT,
    NodeReport,
)


@dataclass(frozen=True, slots=True)
class NodeManagerPod:
    """A running or starting pod of a NodeManager."""

    key: Key
    node: str
    """Node of Kubernetes."""
    node_id: str
    """HOST:PORT as annotated; empty for the host name of the node."""
    cluster: str
    """As annotated; empty for the only one."""


class NodeManagerPods(Projection[Mapping[Key, NodeManagerPod]]):
    """Pods of NodeManagers by key, of any namespace."""

    watches: ClassVar[tuple[Resource[Any], ...]] = (POD,)

    def __init__(self) -> None:
        self._pods: dict[Key, NodeManagerPod] = {}

    def apply(self, resource: Resource[Any], changes: Sequence[StoreDelta[Any]]) -> None:
        """Take in changes of pods, the one kind that it watches."""
        del resource
        found = {change.key: None if change.new is None else _manager(change.key, change.new) for change in changes}
        differ = {key: each for key, each in found.items() if each != self._pods.get(key)}
        if differ:
            # Views that were given out keep their table.
            merged = {**self._pods, **differ}
            self._pods = {key: each for key, each in merged.items() if each is not None}

    def value(self) -> Mapping[Key, NodeManagerPod]:
        """Return the present table."""
        return self._pods


def _manager(key: Key, pod: Pod) -> NodeManagerPod | None:
    if pod.metadata.labels.get(LABEL_COMPONENT) != COMPONENT or not pod.spec.node_name:
        return None
    if pod.status.phase not in ("Running", "Pending"):
        return None
    marks = pod.metadata.annotations
    return NodeManagerPod(
        key, pod.spec.node_name, marks.get(ANNOTATION_NODE_ID, ""), marks.get(ANNOTATION_CLUSTER_ID, "")
    )


def report_of(manager: NodeManagerPod, reports: Mapping[str, NodeReport]) -> tuple[NodeReport | None, str]:
    """Return a NodeManager's report, None where there is none, and why it is not clear which one is its.

    A NodeManager that restarts on another port leaves its old id behind as LOST: those count only by themselves.
    """
    if manager.node_id:
        return reports.get(manager.node_id), ""
    named = [each for each in reports.values() if each.host == manager.node]
    present = [each for each in named if each.state in ("RUNNING", "UNHEALTHY", "DECOMMISSIONING", "NEW")]
    if len(present) > 1:
        ids = ", ".join(sorted(each.node_id for each in present))
        return None, f"several NodeManagers run on host {manager.node} ({ids}): annotate {ANNOTATION_NODE_ID}"
    if present:
        return present[0], ""
    return (max(named, key=lambda each: each.node_id), "") if named else (None, "")
