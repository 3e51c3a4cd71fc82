"""QoS classes and priority bands, as Koordinator's protocol spells them.

The class says how a workload may be treated on its node; the band says which resources it is counted
against. `protection_rank` orders workloads by both; no function here decides an action.
"""

from enum import StrEnum


class QoSClass(StrEnum):
    """Value of the label `koordinator.sh/qosClass`, from most to least protected."""

    SYSTEM = "SYSTEM"
    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    NONE = ""

    @property
    def latency_sensitive(self) -> bool:
        """True for the classes whose lost time counts as harm (LSE, LSR, LS)."""
        return self in (QoSClass.LSE, QoSClass.LSR, QoSClass.LS)


class QoSSource(StrEnum):
    """Origin of a cgroup's QoS class."""

    SETTINGS = "settings"
    """A rule of the agent's settings."""
    LABEL = "label"
    """The pod's label."""
    PRIORITY = "priority"
    """The pod is static, or of a priority that is critical to the node or the cluster."""
    NODE_SLO = "node-slo"
    """A host application of the node's NodeSLO."""
    KUBERNETES = "kubernetes"
    """Kubernetes' own class, for want of a label: it says how the pod is to be treated, not what it may cost others."""
    NONE = ""


class PriorityBand(StrEnum):
    """Koordinator's priority classes; each owns a range of pod priority values."""

    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"
    NONE = ""


PRIORITY_RANGES: dict[PriorityBand, tuple[int, int]] = {
    PriorityBand.PROD: (9000, 9999),
    PriorityBand.MID: (7000, 7999),
    PriorityBand.BATCH: (5000, 5999),
    PriorityBand.FREE: (3000, 3999),
}
"""Inclusive range of `.spec.priority` for each band."""


def priority_band(priority: int | None) -> PriorityBand:
    """The band that a pod's numeric priority falls into; `NONE` outside all ranges."""
    if priority is None:
        return PriorityBand.NONE
    for band, (low, high) in PRIORITY_RANGES.items():
        if low <= priority <= high:
            return band
    return PriorityBand.NONE


SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""Least `.spec.priority` of the classes system-cluster-critical and system-node-critical of Kubernetes."""

_PROTECTION_ORDER = (QoSClass.BE, QoSClass.NONE, QoSClass.LS, QoSClass.LSR, QoSClass.LSE, QoSClass.SYSTEM)
SENSITIVE_RANK = _PROTECTION_ORDER.index(QoSClass.LS)
"""Rank from which a workload is latency-sensitive: noticeable limits on others are justified for it."""
PROTECTED_RANK = _PROTECTION_ORDER.index(QoSClass.LSR)
"""Rank from which a workload is protected: never limited for another one's sake, never evicted."""


def protection_rank(qos: QoSClass, priority: int | None = None) -> int:
    """Return the rank of a workload, 0 for the least protected, by its QoS class and its pod's priority if known.

    A class ranks as in Koordinator's protocol, none at all between BE and LS; a pod that is critical to the system is
    protected whatever its class. The one answer for strategies, response and enforcer; patterns and annotations of the
    enforcer's settings come on top.
    """
    rank = _PROTECTION_ORDER.index(qos)
    return max(rank, PROTECTED_RANK) if (priority or 0) >= SYSTEM_CRITICAL_PRIORITY else rank


def is_protected(qos: QoSClass, priority: int | None = None) -> bool:
    """Return whether a workload is never limited for another one's sake and never evicted."""
    return protection_rank(qos, priority) >= PROTECTED_RANK
