"""Moves pods that the anti-affinity of another pod in the same domain forbids."""

from typing import ClassVar

from api.kube.objects import Pod, PodAffinityTerm
from api.kube.selectors import label_selector_matches
from controllers.descheduler.plugin import Plugin, PluginArgs, Point, Session


class RemovePodsViolatingInterPodAntiAffinity(Plugin[PluginArgs]):
    """Required terms only; of two pods that forbid each other the one that is cheaper to move goes."""

    name = "RemovePodsViolatingInterPodAntiAffinity"
    point = Point.DESCHEDULE
    args_type: ClassVar[type[PluginArgs]] = PluginArgs

    def run(self, session: Session) -> None:
        """Move pods until no term is violated."""
        labels = {node.name: node.metadata.labels for node in session.cluster.nodes.values()}
        holders = [
            (pod, term) for pods in session.cluster.pods_by_node.values() for pod in pods for term in _terms(pod)
        ]
        gone: set[str] = set()
        for pod in session.in_order(session.pods) if holders else ():
            for holder, term in holders:
                if holder is pod or holder.metadata.uid in gone:
                    continue
                own, other = (labels.get(each.spec.node_name, {}).get(term.topology_key) for each in (pod, holder))
                if own is not None and own == other and _matches(session, holder, term, pod):
                    if session.evict(pod, f"the anti-affinity of {holder.key} forbids it beside that pod"):
                        gone.add(pod.metadata.uid)
                    break


def _terms(pod: Pod) -> list[PodAffinityTerm]:
    anti = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity else None
    return anti.required if anti is not None else []


def _matches(session: Session, holder: Pod, term: PodAffinityTerm, pod: Pod) -> bool:
    namespace = pod.metadata.namespace
    named = namespace in term.namespaces
    if not named and term.namespace_selector is not None:
        named = label_selector_matches(term.namespace_selector, session.cluster.namespace_labels.get(namespace, {}))
    elif not named and not term.namespaces:
        named = namespace == holder.metadata.namespace
    return named and label_selector_matches(term.label_selector, pod.metadata.labels)
