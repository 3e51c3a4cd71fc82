"""OOM scores at the start."""

from typing import ClassVar

from api.intents import Knob
from koordlet.hooks.by_strategy import asked_of_strategy
from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.hooks.rule import Rule
from koordlet.identity.pods import ContainerRole, PodContainer, PodFacts


class OomScore(Rule):
    """What the strategy `oom_score` sets: the annotations of the container and the pod, else the class's score.

    Applies: containers, as the strategy's settings and the pod's annotations say
    Knobs: `oom_score_adj`
    Source: Koordinator OOMScoreAdj
    """

    features: ClassVar[dict[str, bool]] = {}
    reconciled = False

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:
        """Return the container's score."""
        if container.role is ContainerRole.SANDBOX:
            return NOTHING
        asked = asked_of_strategy("oom_score", pod, container, node).get(Knob.OOM_SCORE_ADJ)
        return NOTHING if asked is None else ContainerResources(oom_score_adj=int(asked))
