"""Nodes that just evicted best-effort pods: for a while they sell no more batch resources than their pods hold.

The taint of the same wish keeps away all pods alike; this keeps batch pods from coming back, and lets services in.
"""

import msgspec

from api.crds import NodeMetric
from api.kube.interference import EXTENSION_WANTED_TAINTS, WantedTaint
from api.kube.times import epoch_seconds

TAINT = "node.koordinator.sh/eviction-cooldown"
"""Taint that the agent's strategy evictionCooldown asks for."""


LONGEST_SECONDS = 3600.0
"""A wish holds for this time after the report that states it, whatever end it gives."""
SKEW_SECONDS = 300.0
"""A report from further ahead than this counts as one that was never made."""


def wish_end(wish: WantedTaint, metric: NodeMetric | None, now: float, longest_seconds: float) -> float:
    """Return when a wish is over, seconds since the epoch: its end, at most the longest time after its report.

    Minus infinity without an end or a usable time of the report, so that no node is tainted for ever.
    """
    until = epoch_seconds(wish.until)
    stated = epoch_seconds(metric.status.update_time) if metric else None
    if until is None or stated is None or stated > now + SKEW_SECONDS:
        return float("-inf")
    return min(until, stated + longest_seconds)


def cooling_until(metric: NodeMetric | None, now: float) -> float | None:
    """Return the time until which a node's report asks for the cooldown; None where it does not, or not any more."""
    stated = (metric.status.extensions or {}).get(EXTENSION_WANTED_TAINTS) if metric else None
    if not stated:
        return None
    try:
        listed = msgspec.convert(stated, list[WantedTaint])
    except msgspec.ValidationError:
        return None
    ends = [wish_end(each, metric, now, LONGEST_SECONDS) for each in listed if each.key == TAINT]
    return max(ends) if ends and max(ends) > now else None
