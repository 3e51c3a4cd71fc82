"""Moves pods from nodes of a dearer level to those of a cheaper one, by levels that the configuration names."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import msgspec

from api.kube.meta import LabelSelector
from api.kube.objects import Node, Pod
from api.kube.resources import Resources, fits
from api.kube.selectors import label_selector_matches
from controllers.descheduler.cluster_view import allocatable, requests
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]
MISSES = 5
"""Pods in a row without a place after which the rest of a node, which asks for more, is not tried."""


class Level(msgspec.Struct, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Nodes of one price. Thresholds are percents of what is requested of a node, by resource."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    node_selector: LabelSelector
    keep_threshold: dict[str, Percent] = {}
    """A node of which less of every resource is requested keeps its pods."""
    reject_threshold: dict[str, Percent] = {}
    """A node takes no pod that lifts a resource above this."""


class CustomPriorityArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as Koordinator's; the dearest level first."""

    eviction_order: Annotated[list[Level], msgspec.Meta(min_length=2)]
    mode: Literal["BestEffort", "DrainNode"] = "BestEffort"
    """DrainNode moves the pods of a node only if each of them has a place."""
    auto_cordon: bool = False
    """Without effect: a place on another node is reserved before a pod goes."""

    def __post_init__(self) -> None:
        names = [level.name for level in self.eviction_order]
        if len(set(names)) < len(names):
            raise ValueError("two levels of evictionOrder have one name; rename one")


class CustomPriority(Plugin[CustomPriorityArgs]):
    """By requests; a node belongs to the first level that selects it."""

    name = "CustomPriority"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = CustomPriorityArgs

    def run(self, session: Session) -> None:
        """Move from each level to the cheaper ones while they have room."""
        levels: list[list[Node]] = [[] for _ in self.args.eviction_order]
        for node in session.nodes:
            for rank, level in enumerate(self.args.eviction_order):
                if label_selector_matches(level.node_selector, node.metadata.labels):
                    levels[rank].append(node)
                    break
        room = {
            node.name: self._room(session, node, level)
            for level, nodes in zip(self.args.eviction_order, levels, strict=True)
            for node in nodes
        }
        for rank, level in enumerate(self.args.eviction_order[:-1]):
            targets = [node for nodes in levels[rank + 1 :] for node in nodes if not node.spec.unschedulable]
            # A pod that came back to this level, or to a dearer one, would be moved for ever.
            avoid = sorted(node.name for nodes in levels[: rank + 1] for node in nodes)
            for node in levels[rank]:
                if session.spent:
                    return
                if targets and not self._keeps(session, node, level):
                    self._relieve(session, node, level, targets, avoid, room)

    def _relieve(
        self,
        session: Session,
        node: Node,
        level: Level,
        targets: Sequence[Node],
        avoid: Sequence[str],
        room: dict[str, Resources],
    ) -> None:
        """Move what fits of one node; with DrainNode all or nothing."""
        pods = [pod for pod in session.cluster.pods_by_node.get(node.name, ()) if not session.refusal(pod)]
        # The smallest first: more of them find a place.
        pods.sort(key=lambda pod: (requests(pod).get("cpu", 0), requests(pod).get("memory", 0), pod.key))
        reason = f"node {node.name} is of level {level.name}, cheaper ones have room"
        if self.args.mode == "DrainNode":
            for pod, found in self._places_of_all(session, pods, targets, room):
                if not session.evict(pod, reason, avoid=avoid):
                    return
                _take(room[found], requests(pod))
            return
        misses = 0
        for pod in pods:
            place = self._place(session, pod, targets, room)
            misses = misses + 1 if place is None else 0
            if misses >= MISSES:
                return
            if place is not None and session.evict(pod, reason, avoid=avoid):
                _take(room[place], requests(pod))
            if session.spent:
                return

    def _places_of_all(
        self, session: Session, pods: Sequence[Pod], targets: Sequence[Node], room: dict[str, Resources]
    ) -> list[tuple[Pod, str]]:
        """Return a place for each pod; nothing where one has none."""
        taken: dict[str, Resources] = {}
        left = ChainMap(taken, room)
        chosen = []
        for pod in pods:
            place = self._place(session, pod, targets, left)
            if place is None:
                return []
            _take(taken.setdefault(place, dict(room[place])), requests(pod))
            chosen.append((pod, place))
        return chosen

    def _place(self, session: Session, pod: Pod, targets: Sequence[Node], left: Mapping[str, Resources]) -> str | None:
        needed = {**requests(pod), "pods": 1}
        places = session.destinations(pod, targets) if self.args.node_fit else targets
        return next((node.name for node in places if fits(needed, left[node.name])), None)

    @staticmethod
    def _keeps(session: Session, node: Node, level: Level) -> bool:
        have, free = allocatable(node), session.cluster.free(node)
        return bool(level.keep_threshold) and all(
            100.0 * (have.get(name, 0) - free.get(name, 0)) < least * have.get(name, 0)
            for name, least in level.keep_threshold.items()
        )

    @staticmethod
    def _room(session: Session, node: Node, level: Level) -> Resources:
        """Return what pods may still ask for on a node."""
        have, found = allocatable(node), dict(session.cluster.free(node))
        for name, most in level.reject_threshold.items():
            if name in found:
                found[name] -= have.get(name, 0) - int(have.get(name, 0) * most / 100.0)
        return found


def _take(room: Resources, needed: Mapping[str, int]) -> None:
    for name, amount in {**needed, "pods": 1}.items():
        room[name] = room.get(name, 0) - amount
