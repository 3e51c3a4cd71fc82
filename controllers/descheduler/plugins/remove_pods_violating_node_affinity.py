"""Moves pods whose required node affinity their node does not meet any more."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from api.kube.objects import Node, PreferredSchedulingTerm
from api.kube.selectors import node_term_matches
from controllers.descheduler.node_fit import required_affinity_holds
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session

AffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class NodeAffinityArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's."""

    node_affinity_type: tuple[AffinityType, ...] = ("requiredDuringSchedulingIgnoredDuringExecution",)


class RemovePodsViolatingNodeAffinity(Plugin[NodeAffinityArgs]):
    """Required affinity; with the preferred type also pods that another node suits better."""

    name = "RemovePodsViolatingNodeAffinity"
    point = Point.DESCHEDULE
    args_type: ClassVar[type[PluginArgs]] = NodeAffinityArgs

    def run(self, session: Session) -> None:
        """Move each pod that another node suits."""
        for node in session.nodes:
            for pod in session.cluster.pods_by_node.get(node.name, ()):
                if REQUIRED in self.args.node_affinity_type and not required_affinity_holds(node, pod):
                    session.evict(pod, f"node {node.name} does not meet its node affinity")
                    continue
                affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
                if PREFERRED not in self.args.node_affinity_type or affinity is None or not affinity.preferred:
                    continue

                terms = affinity.preferred
                own = weight(terms, node)
                if max((weight(terms, each) for each in session.destinations(pod)), default=own) > own:
                    session.evict(pod, f"another node meets more of its preferred node affinity than {node.name}")


def weight(terms: Sequence[PreferredSchedulingTerm], node: Node) -> int:
    """Return the sum of the weights of the terms that a node meets."""
    labels = node.metadata.labels
    return sum(each.weight for each in terms if node_term_matches(each.preference, labels, node.name))
