"""QoS classes and priority bands, as Koordinator's protocol spells them.

The class says how a workload may be treated on its node; the band says which resources it is counted
against. Both are vocabulary: no function here decides an action.
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
