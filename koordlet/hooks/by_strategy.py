"""Start-time decisions that a strategy of the node makes for running pods: it is asked as if the pod ran already.

So class settings, annotations and gates are read in one place, and a pod starts with what the next tick would set.
"""

from api.intents import Knob, Setting
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.rule import RuleProblem
from koordlet.identity.pods import PodContainer, PodFacts
from koordlet.strategies.view import Group, GroupKind, KubeQoS, NodeView

POD_PATH = "/pod"
CONTAINER_PATH = "/pod/container"
_DIRECTORY_PATH = "/kubepods"
_KUBE_QOS = {kube_qos.value: kube_qos for kube_qos in KubeQoS}


def asked_of_strategy(name: str, pod: PodFacts, container: PodContainer | None, node: NodeFacts) -> dict[Knob, str]:
    """Return what the strategy would set on the container, or on the pod where `container` is None.

    Nothing where the node has no such strategy. Raises RuleProblem for what the strategy could not follow.
    """
    groups = [_group(pod, POD_PATH, GroupKind.POD, pod.name)]
    if container is not None:
        groups.append(_group(pod, CONTAINER_PATH, GroupKind.CONTAINER, container.name))
    return _settings(name, tuple(groups), groups[-1].path, node)


def asked_for_directory(name: str, kube_qos: KubeQoS, node: NodeFacts) -> dict[Knob, str]:
    """Return what the strategy would set on the kubelet's directory of a class."""
    directory = Group(path=_DIRECTORY_PATH, kind=GroupKind.QOS_DIR, kube_qos=kube_qos)
    return _settings(name, (directory,), _DIRECTORY_PATH, node)


def _settings(name: str, groups: tuple[Group, ...], path: str, node: NodeFacts) -> dict[Knob, str]:
    configured = node.strategies.get(name)
    if configured is None:
        return {}
    strategy = type(configured)(configured.settings, configured.gates)
    intents = strategy.decide(NodeView(node=node.info, groups=groups), 0.0)
    if strategy.problems:
        raise RuleProblem("; ".join(strategy.problems.values()))
    return {intent.knob: intent.value for intent in intents if isinstance(intent, Setting) and intent.target == path}


def _group(pod: PodFacts, path: str, kind: GroupKind, name: str) -> Group:
    return Group(
        path=path,
        kind=kind,
        name=name,
        uid=pod.uid,
        pod=POD_PATH if kind is GroupKind.CONTAINER else "",
        qos=pod.qos,
        kube_qos=_KUBE_QOS.get(pod.kube_qos, KubeQoS.BURSTABLE),
        priority=pod.priority,
        labels=pod.labels,
        annotations=pod.annotations,
        requests=pod.requests,
        limits=pod.limits,
    )
