"""Empties nodes of which little is requested, so that they can be switched off."""

from typing import Annotated, ClassVar, Literal

import msgspec

from api.kube.objects import Node
from api.kube.resources import Resources, fits
from controllers.descheduler.cluster_view import allocatable, requested, requests
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class HighNodeUtilizationArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's: percents of what a node gives, by resource."""

    thresholds: dict[str, Percent]
    number_of_nodes: int = 0
    eviction_modes: list[Literal["OnlyThresholdingResources"]] = []


class HighNodeUtilization(Plugin[HighNodeUtilizationArgs]):
    """By requests; the scheduler should prefer full nodes, or the pods come back."""

    name = "HighNodeUtilization"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = HighNodeUtilizationArgs

    def run(self, session: Session) -> None:
        """Move the pods of the emptiest nodes while the others have room for them."""
        limits = self.args.thresholds
        under: list[tuple[float, Node]] = []
        others: list[tuple[float, Node]] = []
        for node in session.nodes:
            have, asked = allocatable(node), requested(session.cluster.pods_by_node.get(node.name, ()))
            full = {name: 100.0 * asked.get(name, 0) / have[name] for name in limits if have.get(name)}
            (under if all(full.get(name, 0.0) <= most for name, most in limits.items()) else others).append(
                (sum(full.values()), node)
            )
        if not others or len(under) <= self.args.number_of_nodes:
            return
        room: dict[str, Resources] = {}
        for _, node in others:
            if not node.spec.unschedulable:
                have, asked = allocatable(node), requested(session.cluster.pods_by_node.get(node.name, ()))
                room[node.name] = {name: amount - asked.get(name, 0) for name, amount in have.items()}
        names = [node.name for _, node in under]
        for _, node in sorted(under, key=lambda each: (each[0], each[1].name)):
            for pod in session.in_order(session.cluster.pods_by_node.get(node.name, ())):
                needed = requests(pod)
                if self.args.eviction_modes and not needed.keys() & limits.keys():
                    continue
                targets = session.destinations(pod, [each for _, each in others])
                target = next((each.name for each in targets if fits(needed, room.get(each.name, {}))), None)
                if target is not None and session.evict(pod, f"little is requested of node {node.name}", avoid=names):
                    for name, amount in needed.items():
                        room[target][name] = room[target].get(name, 0) - amount
