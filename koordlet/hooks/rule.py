"""Rules of the runtime hooks: the base class, and the page to read before writing one.

A rule gives pods and containers a part of what they run with: shares, a CPU set, an environment variable. It is asked
before a container starts (NRI, runtime proxy) and again and again while it runs (reconciler), and must answer the same
for the same values: no clock, no files, no memory.

Two files make one: `koordlet/hooks/rules/<name>.py` with one subclass of `Rule`, and
`tests/koordlet/hooks/rules/test_<name>.py`. `python -m koordlet.hooks.page` puts its row into docs/hooks.md.

A complete one, which gives containers of the class BE half of the CPU's weight at most:

    class HalfWeight(Rule):
        \"\"\"Half of the usual weight.

        Applies: containers of class BE
        Knobs: shares
        Source: this project
        \"\"\"

        features = {"HalfWeight": False}

        def container(self, pod, container, node):
            return ContainerResources(cpu_shares=512) if pod.qos is QoSClass.BE else NOTHING

Of two rules that decide the same the one with the lower `order` counts. What a rule cannot follow (an annotation that
cannot be read) it raises as `RuleProblem`: it costs that pod that rule, and is reported with the pod's name. Rules in
other distributions are entry points of the group `koord.hooks`.
"""

from collections.abc import Mapping
from typing import ClassVar

from koordlet.hooks.node import NodeFacts
from koordlet.hooks.resources import NOTHING, ContainerResources
from koordlet.identity.pods import PodContainer, PodFacts
from koordlet.strategies.view import KubeQoS


class RuleProblem(ValueError):
    """Something of a pod that a rule cannot follow; the message names the label or annotation and the remedy."""


class Rule:
    """Base of all rules; the module's docstring says how to write one.

    The docstring of a subclass ends with lines `Applies:`, `Knobs:` and `Source:`, its row in docs/hooks.md.
    """

    features: ClassVar[Mapping[str, bool]] = {}
    """Gates with their defaults, all of which must be open; Koordinator's names where it has them."""
    order: ClassVar[int] = 50
    """Rules that decide first have the lower number."""
    reconciled: ClassVar[bool] = True
    """Whether the reconciler keeps its cgroup settings in effect; false where a strategy of the node does."""

    def container(self, pod: PodFacts, container: PodContainer, node: NodeFacts) -> ContainerResources:  # noqa: ARG002
        """Return what one container must run with."""
        return NOTHING

    def pod(self, pod: PodFacts, node: NodeFacts) -> ContainerResources:  # noqa: ARG002
        """Return what a pod as a whole must run with."""
        return NOTHING

    def directory(self, kube_qos: KubeQoS, node: NodeFacts) -> ContainerResources:  # noqa: ARG002
        """Return what the kubelet's directory of a class must run with."""
        return NOTHING
