"""Scheduling identity at the start: bvt where the kernel has it, else idle for best-effort pods."""

from typing import ClassVar

from api.intents import Knob
from koordlet.hooks.by_strategy import asked_for_directory, asked_of_strategy
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.identity.pods import PodFacts
from koordlet.strategies.view import KubeQoS

STRATEGY = "group_identity"


class GroupIdentity(Rule):
    """What the strategy `group_identity` sets: bvt by class or annotation, `cpu.idle` in its place.

    Applies: pods and the kubelet's directories, as the strategy's settings say
    Knobs: bvt, idle; pod and directory
    Source: Koordinator GroupIdentity
    """

    features: ClassVar[dict[str, bool]] = {}
    reconciled = False

    def pod(self, pod: PodFacts, node: NodeFacts) -> ContainerResources:
        """Return the pod's identity."""
        return _resources(asked_of_strategy(STRATEGY, pod, None, node))

    def directory(self, kube_qos: KubeQoS, node: NodeFacts) -> ContainerResources:
        """Return the identity of the kubelet's directory."""
        return _resources(asked_for_directory(STRATEGY, kube_qos, node))


def _resources(asked: dict[Knob, str]) -> ContainerResources:
    return ContainerResources(
        bvt=int(asked[Knob.CPU_BVT]) if Knob.CPU_BVT in asked else None,
        idle=asked[Knob.CPU_IDLE] == "1" if Knob.CPU_IDLE in asked else None,
    )
