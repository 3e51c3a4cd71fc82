"""Ranks pods so that a workload which scales down leaves whole nodes empty.

Score and order are Koordinator's: first the nodes where the pods in question ask for much and others for little, there
the largest and newest pods.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from api.kube.objects import Node, Pod
from api.kube.times import epoch_seconds
from controllers.descheduler.cluster_view import allocatable, requests
from controllers.descheduler.order import ANNOTATION_DELETION_COST, COST_LIMIT
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class ScaleDownBinPackArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as Koordinator's."""

    strategy: Literal["CalculateOnly", "EvictDirectly"] = "CalculateOnly"
    """CalculateOnly states the rank as the pod's deletion cost, which ReplicaSets follow when they scale down."""
    max_pods_to_evict: Annotated[int, msgspec.Meta(ge=1)] | None = None
    resources: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("cpu", "memory")
    resource_weights: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e6)]] = {}
    """1 for a resource that is not listed."""

    def __post_init__(self) -> None:
        if self.strategy == "EvictDirectly" and self.max_pods_to_evict is None:
            raise ValueError("strategy EvictDirectly needs maxPodsToEvict")


class ScaleDownBinPack(Plugin[ScaleDownBinPackArgs]):
    """Pods that its arguments select; those of them that may not be moved are to be scaled down last."""

    name = "ScaleDownBinPack"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = ScaleDownBinPackArgs

    def run(self, session: Session) -> None:
        """State ranks as deletion costs, or move the pods with the lowest."""
        ranked, blocked = self._ranked(session)
        if self.args.strategy == "EvictDirectly":
            self._evict(session, ranked)
            return
        places = [*((pod, rank) for rank, pod in enumerate(ranked)), *((pod, COST_LIMIT) for pod in blocked)]
        for pod, cost in places:
            session.annotate(pod, ANNOTATION_DELETION_COST, str(cost), "rank of the pod when its workload scales down")

    def _evict(self, session: Session, ranked: Sequence[Pod]) -> None:
        moved, emptied = 0, set()
        for pod in ranked:
            if moved == self.args.max_pods_to_evict:
                return
            emptied.add(pod.spec.node_name)
            moved += session.evict(pod, f"node {pod.spec.node_name} is emptied", avoid=sorted(emptied))

    def _ranked(self, session: Session) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that may be moved, in their order, and those that may not, of nodes with some that may."""
        found: list[tuple[float, int, str, list[Pod]]] = []
        blocked: list[Pod] = []
        for node in session.nodes:
            pods = session.cluster.pods_by_node.get(node.name, ())
            chosen = [pod for pod in pods if session.selected(pod)]
            movable = [pod for pod in chosen if not session.refusal(pod)]
            if not movable:
                continue
            own = frozenset(pod.metadata.uid for pod in movable)
            others = [pod for pod in pods if pod.metadata.uid not in own]
            blocked += [pod for pod in chosen if pod.metadata.uid not in own]
            found.append((self._score(node, movable, others), len(movable), node.name, self._by_size(node, movable)))
        return [pod for *_, pods in sorted(found, key=lambda each: each[:3]) for pod in pods], blocked

    def _score(self, node: Node, movable: Sequence[Pod], others: Sequence[Pod]) -> float:
        """Return what stays on a node over what goes, by weighted shares of the node."""
        goes, stays = self._share(node, movable), self._share(node, others)
        if goes:
            return stays / goes
        return float("inf") if stays else 0.0

    def _share(self, node: Node, pods: Sequence[Pod]) -> float:
        have = allocatable(node)
        return sum(
            self.args.resource_weights.get(name, 1.0) * sum(requests(pod).get(name, 0) for pod in pods) / have[name]
            for name in dict.fromkeys((*self.args.resources, *self.args.resource_weights))
            if have.get(name)
        )

    def _by_size(self, node: Node, pods: Sequence[Pod]) -> list[Pod]:
        return sorted(
            pods,
            key=lambda pod: (
                -self._share(node, [pod]),
                -(epoch_seconds(pod.metadata.creation_timestamp) or 0.0),
                pod.metadata.namespace,
                pod.metadata.name,
            ),
        )
