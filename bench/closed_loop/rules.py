"""Rules that are compared: what is sold, what is suppressed, and what is known of harm."""

from dataclasses import dataclass, replace

from scheduler.profile import SchedulerSettings
from scheduler.simulation.policies import REPORT_EXPIRES_SECONDS


@dataclass(frozen=True, slots=True)
class Rules:
    """One way to run batch work beside services."""

    name: str
    reclaim_percent: int = 0
    """Of a node's CPUs that may be sold, less what services use; 0 for no co-location."""
    suppress_percent: int = 100
    """Batch work gets no CPU above this use of the node, and no pod comes to a node above it."""
    knows_harm: bool = False
    """Culprits are restrained where they harm, less is sold there, and profiles choose the node."""
    yields: bool = False
    """The nodes' kernel has batch work yield for good, before anything is done about harm."""

    def scheduler(self, seed: int) -> SchedulerSettings:
        """Return the scheduler's settings."""
        loadaware = {
            "enabled": True,
            "weight": 1,
            "node_metric_expiration_seconds": 4 * REPORT_EXPIRES_SECONDS,
            "usage_thresholds": {"cpu": self.suppress_percent, "memory": 95},
        }
        interference = {"enabled": self.knows_harm, "weight": 4}
        return SchedulerSettings(plugins={"loadaware": loadaware, "interference": interference}, seed=seed)


ALONE = Rules("no co-location")
DEFAULTS = Rules("Koordinator, defaults", 60, 65)
"""cpuReclaimThresholdPercent 60, cpuSuppressThresholdPercent 65, and LoadAwareScheduling's 65."""
TUNED = tuple(Rules(f"Koordinator, {percent} %", percent, percent) for percent in (30, 40, 80, 95))
"""All three thresholds at one value: from careful to bold."""
KOORD = Rules("koord", 95, 100, knows_harm=True)
YIELDING = ", lowest weight"
"""Suffix of rules on nodes whose kernel has batch work yield for good."""
KOORD_YIELDING = replace(KOORD, name=KOORD.name + YIELDING, yields=True)
ALL = (ALONE, DEFAULTS, *TUNED, KOORD, KOORD_YIELDING)
