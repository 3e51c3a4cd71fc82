"""Simulated placements: the request that a program sends to the running scheduler, and the answer.

`POST` of a `PlacementRequest` to `PATH` of koord-scheduler's HTTP port answers a `PlacementAnswer`, both as JSON.
Nothing is placed, evicted or reserved by it: the scheduler supposes that some pods are gone, finds a node for each
pod of the request in turn with every plugin that its profile runs, and undoes all of it. A descheduler asks before it
evicts; the pods of one request compete for the same room, those of two requests do not.

The answer holds for the state of the cluster when it was given. A request that the scheduler cannot read is answered
with status 400 and a sentence, one to a process that does not lead with 503, one that had to wait too long with 504.
"""

from typing import Annotated, Literal

import msgspec

from api.kube.objects import Pod

PATH = "/v1/placements:simulate"
SCHEMA = "koord.placement/v1"
"""Schema of request and answer. Fields are only added; what changes a meaning gets another version."""

MAX_PODS = 100
"""Largest number of pods in a request: scheduling waits while it is answered."""


class SimulatedPod(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A pod to place: one that the scheduler knows, by UID, or one in full that does not exist yet.

    A known pod is placed as if its owner had made it anew: unbound, and without the CPUs, devices and reservation
    that the scheduler gave it. A pod in full stands in for a placed pod of the same name.
    """

    uid: str = ""
    pod: Pod | None = None
    excluded_nodes: list[str] = []
    """Nodes that this pod may not use, such as the one it should leave."""

    def __post_init__(self) -> None:
        if bool(self.uid) == (self.pod is not None):
            raise ValueError("exactly one of uid and pod is needed")


class PlacementRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Pods to place, in this order, and the suppositions."""

    pods: Annotated[list[SimulatedPod], msgspec.Meta(min_length=1, max_length=MAX_PODS)]
    gone_pods: list[str] = []
    """UIDs of pods to assume gone, beside the pods to place, which leave their nodes before the first is placed."""
    excluded_nodes: list[str] = []
    """Nodes that no pod of the request may use."""
    schema: Literal["koord.placement/v1"] = "koord.placement/v1"

    def __post_init__(self) -> None:
        uids = [entry.uid for entry in self.pods if entry.uid]
        if len(set(uids)) < len(uids):
            raise ValueError("pods name a UID more than once")


class Rejection(msgspec.Struct, frozen=True):
    """A reason against a pod and the number of nodes that it rules out."""

    text: str
    plugin: str
    """Plugin that rejects; empty for the request's own exclusions and for room held for more important pods."""
    nodes: int
    resolvable: bool
    """False when the eviction of pods from these nodes cannot help."""


class PodPlacement(msgspec.Struct, frozen=True):
    """The node for one pod, or the reasons why there is none."""

    uid: str
    """As in the request; empty for a pod given in full."""
    namespace: str = ""
    name: str = ""
    node: str = ""
    """Empty when no node takes the pod."""
    score: int = 0
    """Weighted total of the node; comparable within this placement only."""
    feasible_nodes: int = 0
    """Nodes that would take the pod. Among equally good ones the first is named, where scheduling draws."""
    message: str = ""
    """Sentence of the PodScheduled condition when there is no node."""
    rejections: list[Rejection] = []


class PlacementAnswer(msgspec.Struct, frozen=True):
    """One placement per pod of the request, in its order."""

    placements: list[PodPlacement]
    nodes: int
    """Nodes in the cluster."""
    at_seconds: float
    """When the scheduler answered, in seconds since the epoch."""
    unknown_pods: list[str] = []
    """UIDs of the request that the scheduler does not know; one among the pods to place has no node."""
    unknown_nodes: list[str] = []
    """Excluded nodes that the scheduler does not know."""
    schema: Literal["koord.placement/v1"] = "koord.placement/v1"
