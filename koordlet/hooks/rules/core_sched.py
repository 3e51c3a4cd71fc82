"""Core scheduling groups at the start, on kernels that have them."""

from typing import ClassVar

from api.intents import Knob
from koordlet.hooks.by_strategy import asked_of_strategy
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.identity.pods import PodContainer, PodFacts


class CoreSched(Rule):
    """The group that the strategy `core_sched` names: by label, the pod's own, or the shared one.

    Applies: containers, as the strategy's settings and the pod's labels say
    Knobs: core scheduling group
    Source: Koordinator CoreSched
    """

    features: ClassVar[dict[str, bool]] = {}
    reconciled = False

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the pod's group."""
        if Knob.CORE_SCHED in node.info.lacking:
            return NOTHING
        return ContainerResources(
            core_sched_group=asked_of_strategy("core_sched", pod, container, node).get(Knob.CORE_SCHED)
        )
