"""Moves pods from nodes of which much is requested to those of which little is."""

from typing import Annotated, ClassVar

import msgspec

from api.kube.objects import Node
from api.kube.resources import Resources
from controllers.descheduler.cluster_view import allocatable, requested, requests
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

Percent = Annotated[float, msgspec.Meta(ge=0, le=100)]


class LowNodeUtilizationArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's: percents of what a node gives, by resource."""

    thresholds: dict[str, Percent]
    target_thresholds: dict[str, Percent]
    use_deviation_thresholds: bool = False
    number_of_nodes: int = 0


def percents(session: Session, node: Node) -> dict[str, float]:
    """Return what is requested of a node in percent, by resource."""
    have, asked = allocatable(node), requested(session.cluster.pods_by_node.get(node.name, ()))
    return {name: 100.0 * asked.get(name, 0) / amount for name, amount in have.items() if amount}


class LowNodeUtilization(Plugin[LowNodeUtilizationArgs]):
    """By requests; LowNodeLoad balances by measured usage."""

    name = "LowNodeUtilization"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = LowNodeUtilizationArgs

    def run(self, session: Session) -> None:
        """Move pods from the fullest nodes while the others have room."""
        found = {node.name: percents(session, node) for node in session.nodes}
        if not found:
            return
        low, high = dict(self.args.thresholds), dict(self.args.target_thresholds)
        if self.args.use_deviation_thresholds:
            mean = {name: sum(each.get(name, 0.0) for each in found.values()) / len(found) for name in {*low, *high}}
            low = {name: max(0.0, mean[name] - value) for name, value in low.items()}
            high = {name: min(100.0, mean[name] + value) for name, value in high.items()}
        under = [
            node
            for node in session.nodes
            if not node.spec.unschedulable
            and all(found[node.name].get(name, 0.0) <= most for name, most in low.items())
        ]
        over = [
            node for node in session.nodes if any(found[node.name].get(name, 0.0) > most for name, most in high.items())
        ]
        if not over or len(under) <= self.args.number_of_nodes or len(under) == len(session.nodes):
            return
        room: Resources = {}
        for node in under:
            have, asked = allocatable(node), requested(session.cluster.pods_by_node.get(node.name, ()))
            for name, most in high.items():
                room[name] = room.get(name, 0) + int(most * 0.01 * have.get(name, 0)) - asked.get(name, 0)
        names = [node.name for node in over]
        for node in sorted(over, key=lambda each: -sum(found[each.name].get(name, 0.0) for name in high)):
            have, asked = allocatable(node), requested(session.cluster.pods_by_node.get(node.name, ()))
            limit = {name: int(most * 0.01 * have.get(name, 0)) for name, most in high.items()}
            for pod in session.in_order(session.cluster.pods_by_node.get(node.name, ())):
                above = [name for name, most in limit.items() if asked.get(name, 0) > most]
                if not above or any(amount <= 0 for amount in room.values()):
                    break
                reason = ", ".join(
                    f"{name} {found[node.name].get(name, 0.0):.0f} % > {high[name]:.0f} %" for name in above
                )
                if session.evict(pod, f"of node {node.name} is requested {reason}", avoid=names):
                    for name, amount in {**requests(pod), "pods": 1}.items():
                        asked[name] = asked.get(name, 0) - amount
                        if name in room:
                            room[name] -= amount
