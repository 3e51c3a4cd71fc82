"""Nodes that just evicted best-effort pods: for a while they sell no more batch resources than their pods hold.

The taint of the same wish keeps away all pods alike; this keeps batch pods from coming back, and lets services in.
"""

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_WANTED_TAINTS, WantedTaint
from api.kube.times import epoch_seconds

TAINT = "node.koordinator.sh/eviction-cooldown"
"""Taint that the agent's strategy evictionCooldown asks for."""


def cooling_until(metric: NodeMetric | None, now: float) -> float | None:
    """Return the time until which a node's report asks for the cooldown; None where it does not, or not any more."""
    stated = (metric.status.extensions or {}).get(EXTENSION_WANTED_TAINTS) if metric else None
    if not stated:
        return None
    try:
        listed = msgspec.convert(stated, list[WantedTaint])
    except msgspec.ValidationError:
        return None
    ends = [epoch_seconds(each.until) or 0.0 for each in listed if each.key == TAINT]
    return max(ends) if ends and max(ends) > now else None
