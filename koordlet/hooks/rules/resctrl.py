"""Resource group at the start."""

from typing import ClassVar

from api.intents import Knob
from koordlet.hooks.by_strategy import asked_of_strategy
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.identity.pods import PodContainer, PodFacts


class Resctrl(Rule):
    """The group that the strategy `resctrl_qos` puts the container into: its class's, or one for the pod alone.

    Applies: containers, as the strategy's settings and the pod's annotation say
    Knobs: resctrl group
    Source: Koordinator RdtResctrl, Resctrl
    """

    features: ClassVar[dict[str, bool]] = {}
    reconciled = False

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the container's group."""
        return ContainerResources(
            resctrl_group=asked_of_strategy("resctrl_qos", pod, container, node).get(Knob.RESCTRL_GROUP)
        )
