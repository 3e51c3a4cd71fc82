"""Moves pods from full to empty domains until the skew of their topology spread constraints holds."""

from collections import defaultdict
from typing import ClassVar, Literal

import msgspec

from api.kube.objects import Pod, TopologySpreadConstraint
from api.kube.selectors import label_selector_matches
from controllers.descheduler.node_fit import required_affinity_holds
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class TopologySpreadArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's."""

    constraints: tuple[Literal["DoNotSchedule", "ScheduleAnyway"], ...] = ("DoNotSchedule",)
    topology_balance_node_fit: bool = True


class RemovePodsViolatingTopologySpreadConstraint(Plugin[TopologySpreadArgs]):
    """Each constraint of each group of pods on its own."""

    name = "RemovePodsViolatingTopologySpreadConstraint"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = TopologySpreadArgs

    def run(self, session: Session) -> None:
        """Move pods from the fullest domain of each constraint."""
        groups: dict[tuple[str, bytes], tuple[TopologySpreadConstraint, Pod]] = {}
        for pod in session.pods:
            for each in pod.spec.topology_spread_constraints:
                if each.when_unsatisfiable in self.args.constraints and label_selector_matches(
                    each.label_selector, pod.metadata.labels
                ):
                    groups.setdefault((pod.metadata.namespace, msgspec.json.encode(each)), (each, pod))
        for (namespace, _), (constraint, example) in sorted(groups.items()):
            self._spread(session, namespace, constraint, example)

    def _spread(self, session: Session, namespace: str, constraint: TopologySpreadConstraint, example: Pod) -> None:
        key = constraint.topology_key
        domains: dict[str, list[Pod]] = defaultdict(list)
        for node in session.cluster.nodes.values():
            if key not in node.metadata.labels:
                continue
            counted = constraint.node_affinity_policy != "Honor" or required_affinity_holds(node, example)
            if counted:
                domains[node.metadata.labels[key]] += [
                    pod
                    for pod in session.cluster.pods_by_node.get(node.name, ())
                    if pod.metadata.namespace == namespace
                    and not pod.metadata.deletion_timestamp
                    and label_selector_matches(constraint.label_selector, pod.metadata.labels)
                ]
        sizes = {name: len(pods) for name, pods in domains.items()}
        queues = {name: session.in_order(pods) for name, pods in domains.items()}
        while sizes:
            fullest, emptiest = max(sizes, key=lambda name: sizes[name]), min(sizes, key=lambda name: sizes[name])
            if sizes[fullest] - sizes[emptiest] <= constraint.max_skew or sizes[fullest] - sizes[emptiest] < 2:
                return
            reason = f"{sizes[fullest]} pods in {key} {fullest}, {sizes[emptiest]} in {emptiest}"
            avoid = [node.name for node in session.cluster.nodes.values() if node.metadata.labels.get(key) == fullest]
            moved = False
            while queues[fullest] and not moved:
                moved = session.evict(queues[fullest].pop(0), reason, avoid=avoid)
            if not moved:
                del sizes[fullest]
                continue
            sizes[fullest] -= 1
            sizes[emptiest] += 1
