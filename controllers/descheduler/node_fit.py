"""Whether a node admits a pod by labels and taints."""

from api.kube.objects import Node, Pod
from api.kube.selectors import node_term_matches
from api.kube.taints import HARD_EFFECTS, tolerated


def required_affinity_holds(node: Node, pod: Pod) -> bool:
    """Return whether node selector and required node affinity select a node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(node_term_matches(term, labels, node.name) for term in affinity.required.node_selector_terms)


def node_admits(node: Node, pod: Pod) -> bool:
    """Return whether a node is not cordoned, and its labels and taints admit a pod."""
    if node.spec.unschedulable or not required_affinity_holds(node, pod):
        return False
    return all(tolerated(taint, pod.spec.tolerations) for taint in node.spec.taints if taint.effect in HARD_EFFECTS)
