"""SchedulingGates: pods with scheduling gates stay out of the active queue until their last gate is taken away."""

from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Plugin, Reason


class SchedulingGates(Plugin[None]):
    """Holds gated pods back; a change of the pod itself opens the gate."""

    name = "SchedulingGates"
    rank = 20

    def prepare(self, info: PodInfo) -> None:
        """Nothing to say about an attempt."""

    def pre_enqueue(self, info: PodInfo) -> Reason | None:
        """A reason while gates are left."""
        gates = [gate.name for gate in info.pod.spec.scheduling_gates]
        if not gates:
            return None
        return Reason(f"waiting for scheduling gates: {gates}", resolvable=False)
