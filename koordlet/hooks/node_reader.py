"""The node as rules see it at present: what the host has, the state of its CPUs, the settings of its strategies."""

from collections.abc import Callable
from dataclasses import replace

from koordlet.hooks.node import NodeFacts
from koordlet.identity.pods import PodTable
from koordlet.topology.cpu_state import CpuState


class NodeFactsReader:
    """Reader of the facts; may be called from any thread."""

    def __init__(
        self, base: NodeFacts, cpu_state: Callable[[], CpuState], may_act: Callable[[str], bool] = lambda _name: True
    ) -> None:
        """`base` has what stays while the agent runs, and the strategies, whose settings may change; those that may not
        act are left out of the facts, since what they would set is not there."""
        self._base = base
        self._cpu_state = cpu_state
        self._may_act = may_act
        self._newest: tuple[tuple[object, ...], NodeFacts] = ((), base)

    def __call__(self, _pods: PodTable) -> NodeFacts:
        """Return the facts, the same object while nothing changed; pods are those of the CPU state.

        Raises HostError where sysfs cannot be read.
        """
        state = self._cpu_state()
        strategies = {name: strategy for name, strategy in self._base.strategies.items() if self._may_act(name)}
        sources = (state, *(strategy.settings for strategy in strategies.values()))
        known, facts = self._newest
        if len(known) == len(sources) and all(old is new for old, new in zip(known, sources, strict=True)):
            return facts
        info = replace(
            self._base.info,
            reserved_cpus=state.node.reserved,
            system_cpus=state.node.system,
            kubelet_static=state.kubelet.static,
            cpu_normalization_ratio=state.node.normalization_ratio,
        )
        facts = replace(self._base, info=info, pools=state.pools, strategies=strategies)
        self._newest = (sources, facts)
        return facts
