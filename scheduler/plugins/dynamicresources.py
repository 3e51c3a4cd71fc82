"""DynamicResources: pods with resource claims are refused, since nothing here allocates devices to claims.

A pod that is bound before its claims are allocated never starts: its kubelet waits for them for ever.
"""

from scheduler.cluster_state.podinfo import PodInfo
from scheduler.framework import Attempt, Plugin, Reason


class DynamicResources(Plugin[int]):
    """Refuses pods with `spec.resourceClaims`, with the remedy."""

    name = "DynamicResources"
    rank = 190

    def prepare(self, info: PodInfo) -> int | None:
        """The number of claims; None without any."""
        return len(info.pod.spec.resource_claims) or None

    def pre_filter(self, attempt: Attempt, spec: int) -> Reason | None:
        """No node can help."""
        return Reason(
            f"the pod has {spec} resource claim(s), which this scheduler does not allocate; use default-scheduler",
            resolvable=False,
        )
