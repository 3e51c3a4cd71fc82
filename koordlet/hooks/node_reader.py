"""The node as rules see it at present: what the host has, the state of its CPUs, the settings of its strategies."""

from collections.abc import Callable
from dataclasses import replace

from koordlet.hooks.node import NodeFacts
from koordlet.identity.pods import PodTable
from koordlet.topology.cpu_state import CpuState


class NodeFactsReader:
    """Reader of the facts; may be called from any thread."""

    def __init__(self, base: NodeFacts, cpu_state: Callable[[], CpuState]) -> None:
        """`base` has what stays while the agent runs, and the strategies, whose settings may change."""
        self._base = base
        self._cpu_state = cpu_state
        self._newest: tuple[tuple[object, ...], NodeFacts] = ((), base)

    def __call__(self, _pods: PodTable) -> NodeFacts:
        """Return the facts, the same object while nothing changed; pods are those of the CPU state.

        Raises HostError where sysfs cannot be read.
        """
        state = self._cpu_state()
        settings = (strategy.settings for strategy in self._base.strategies.values())
        sources = (state, *settings)
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
        facts = replace(self._base, info=info, pools=state.pools)
        self._newest = (sources, facts)
        return facts
