"""SchedulingGates: pods with scheduling gates stay out of the active queue until their last gate is taken away.

Members of a PodGroup of scheduling.k8s.io stay out too where Coscheduling does not run, which gathers such groups:
members that are placed one by one break the group's promise.
"""

from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Plugin, Reason


class SchedulingGates(Plugin[None]):
    """Holds gated pods back; a change of the pod itself opens the gate."""

    name = "SchedulingGates"
    rank = 20

    def prepare(self, info: PodInfo) -> None:
        """Nothing to say about an attempt."""

    def pre_enqueue(self, info: PodInfo) -> Reason | None:
        """A reason while gates are left, and for members of groups that are gathered elsewhere."""
        gates = [gate.name for gate in info.pod.spec.scheduling_gates]
        if not gates and info.pod.spec.scheduling_group and "Coscheduling" not in self.handle.peers():
            group = next(iter(info.pod.spec.scheduling_group.values()), "")
            text = f"its group {group} of scheduling.k8s.io is not gathered: the profile does not run Coscheduling"
            return Reason(text, resolvable=False)
        if not gates:
            return None
        return Reason(f"waiting for scheduling gates: {gates}", resolvable=False)
