"""Spreads pods of one workload that share a node while others have none of it."""

from collections import defaultdict
from typing import ClassVar

from api.kube.objects import Pod
from controllers.descheduler.node_fit import node_admits
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class RemoveDuplicatesArgs(PluginArgs, frozen=True, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Arguments, as upstream's."""

    exclude_owner_kinds: list[str] = []


class RemoveDuplicates(Plugin[RemoveDuplicatesArgs]):
    """A workload's pods beyond the mean of the nodes that would take them."""

    name = "RemoveDuplicates"
    point = Point.BALANCE
    args_type: ClassVar[type[PluginArgs]] = RemoveDuplicatesArgs

    def run(self, session: Session) -> None:
        """Move what is above the mean, rounded up."""
        groups: dict[tuple[str, str, str, tuple[str, ...]], list[Pod]] = defaultdict(list)
        for pod in session.pods:
            owner = pod.metadata.controlled_by
            if owner is not None and owner.kind not in self.args.exclude_owner_kinds:
                images = tuple(sorted(each.image for each in pod.spec.containers))
                groups[pod.metadata.namespace, owner.kind, owner.name, images].append(pod)
        for (namespace, kind, name, _), pods in sorted(groups.items()):
            takes = sum(1 for node in session.nodes if node_admits(node, pods[0]))
            most = -(-len(pods) // takes) if takes else len(pods)
            by_node: dict[str, list[Pod]] = defaultdict(list)
            for pod in pods:
                by_node[pod.spec.node_name].append(pod)
            full = [node for node, here in by_node.items() if len(here) >= most]
            for node, here in sorted(by_node.items()):
                surplus = len(here) - most
                for pod in session.in_order(here) if surplus > 0 and takes > 1 else ():
                    if surplus <= 0:
                        break
                    reason = f"{len(here)} pods of {kind} {namespace}/{name} on {node}, {most} would be even"
                    surplus -= session.evict(pod, reason, avoid=full)
