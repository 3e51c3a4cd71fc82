"""Ranks pods so that a workload which scales down leaves whole nodes empty.

Score and order are Koordinator's: first the nodes where the pods in question ask for much and others for little, there
the largest and newest pods. Deletion costs are compared among the pods of one controller, so each controller's pods are
ranked by themselves, with room between the ranks: most pods keep theirs when others come, go or change places.
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import msgspec

from api.kube.objects import Node, Pod
from api.kube.times import epoch_seconds
from controllers.descheduler.cluster_view import allocatable, requests
from controllers.descheduler.order import ANNOTATION_DELETION_COST, COST_LIMIT, cost
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

ANNOTATION_STATED_COST = "descheduler.koordinator.sh/deletion-cost"
"""The deletion cost that this plugin stated. A pod with another one has its owner's, which stays."""
STEP = 1000
"""Between two new ranks."""


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
        by_owner: dict[str, list[Pod]] = {}
        for pod in ranked:
            owner = pod.metadata.controlled_by
            if not _is_the_owners(pod):
                by_owner.setdefault(owner.uid if owner is not None else "", []).append(pod)
        for pods in by_owner.values():
            for pod, rank in zip(pods, ranks([_stated(pod) for pod in pods]), strict=True):
                self._state(session, pod, rank)
        for pod in blocked:
            if not _is_the_owners(pod):
                self._state(session, pod, COST_LIMIT)

    def _state(self, session: Session, pod: Pod, rank: int) -> None:
        stated = dict.fromkeys((ANNOTATION_DELETION_COST, ANNOTATION_STATED_COST), str(rank))
        session.annotate(pod, stated, "rank of the pod when its workload scales down")

    def _evict(self, session: Session, ranked: Sequence[Pod]) -> None:
        moved, emptied = 0, set()
        for pod in ranked:
            if moved == self.args.max_pods_to_evict:
                return
            emptied.add(pod.spec.node_name)
            moved += session.evict(pod, f"node {pod.spec.node_name} is emptied", avoid=sorted(emptied))

    def _ranked(self, session: Session) -> tuple[list[Pod], list[Pod]]:
        """Return the pods that may be moved, in their order, and those that may not."""
        found: list[tuple[float, int, str, list[Pod]]] = []
        blocked: list[Pod] = []
        for node in session.nodes:
            pods = session.cluster.pods_by_node.get(node.name, ())
            chosen = [pod for pod in pods if session.selected(pod)]
            movable = [pod for pod in chosen if not self._stays(session, pod)]
            own = frozenset(pod.metadata.uid for pod in movable)
            blocked += [pod for pod in chosen if pod.metadata.uid not in own]
            if not movable:
                continue
            others = [pod for pod in pods if pod.metadata.uid not in own]
            found.append((self._score(node, movable, others), len(movable), node.name, self._by_size(node, movable)))
        return [pod for *_, pods in sorted(found, key=lambda each: each[:3]) for pod in pods], blocked

    def _stays(self, session: Session, pod: Pod) -> bool:
        """Return whether a pod may not be moved; for a rank only what does not pass counts, lest ranks come and go."""
        if self.args.strategy == "EvictDirectly":
            return bool(session.refusal(pod))
        return session.filter.permanent(pod) is not None

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


def ranks(present: Sequence[int | None]) -> list[int]:
    """Return rising ranks of pods in their order; `present` are those that they have, of which most are kept."""
    kept = _longest_rising(present)
    found: list[int] = []
    for before, after in pairwise((-1, *kept, len(present))):
        missing = after - before - 1
        low = found[-1] if found else 0
        high = present[after] if after < len(present) else low + (missing + 1) * STEP
        if high is None or high - low <= missing or high > COST_LIMIT:
            return [number * STEP for number in range(1, len(present) + 1)]
        found += [low + (high - low) * number // (missing + 1) for number in range(1, missing + 1)]
        found += [high] if after < len(present) else []
    return found


def _longest_rising(values: Sequence[int | None]) -> list[int]:
    """Return the places of the most values that rise from first to last."""
    lowest: list[int] = []
    """The lowest value with which a run of each length ends."""
    ends: list[int] = []
    before: dict[int, int] = {}
    for place, value in enumerate(values):
        if value is None:
            continue
        length = bisect_left(lowest, value)
        lowest[length : length + 1], ends[length : length + 1] = [value], [place]
        if length:
            before[place] = ends[length - 1]
    run = ends[-1:]
    while run and run[-1] in before:
        run.append(before[run[-1]])
    return run[::-1]


def _is_the_owners(pod: Pod) -> bool:
    text = pod.metadata.annotations.get(ANNOTATION_DELETION_COST)
    return text is not None and text != pod.metadata.annotations.get(ANNOTATION_STATED_COST)


def _stated(pod: Pod) -> int | None:
    """Return the rank that a pod has; None without one."""
    found = cost(pod, ANNOTATION_DELETION_COST)
    return found if 0 < found < COST_LIMIT else None
