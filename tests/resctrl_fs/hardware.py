"""Resource control hardware of a machine, by the values that CPUID would report.

Shapes follow real parts: INTEL a two-socket server of the first generation with bandwidth allocation,
INTEL_L2 one with L2 allocation, AMD a server with several L3 domains whose ids and masks may have gaps.
"""

from dataclasses import dataclass
from typing import Literal

MBM_EVENTS = ("mbm_total_bytes", "mbm_local_bytes")
MBM_DEFAULT_CONFIG = {"mbm_total_bytes": 0x7F, "mbm_local_bytes": 0x15}


@dataclass(frozen=True, slots=True)
class CacheControl:
    """Capacity masks of one cache level. `domains` are cache ids; `size_bytes` is of one cache."""

    level: Literal["L2", "L3"]
    domains: tuple[int, ...]
    num_closids: int
    cbm_bits: int
    min_cbm_bits: int
    shareable_bits: int
    size_bytes: int
    has_sparse_masks: bool = False
    is_cdp_capable: bool = False

    @property
    def full_mask(self) -> int:
        return (1 << self.cbm_bits) - 1


@dataclass(frozen=True, slots=True)
class BandwidthControl:
    """Memory bandwidth control: percent on Intel, eighths of a GB/s on AMD."""

    domains: tuple[int, ...]
    num_closids: int
    min_bandwidth: int
    max_bandwidth: int
    granularity: int
    is_linear: bool
    throttle_mode: Literal["max", "per-thread", "undefined"]


@dataclass(frozen=True, slots=True)
class Monitoring:
    """L3 monitoring: events of one RMID in each domain."""

    domains: tuple[int, ...]
    num_rmids: int
    events: tuple[str, ...] = ("llc_occupancy", *MBM_EVENTS)
    is_configurable: bool = False
    config_mask: int = 0x7F
    upscale_bytes: int = 64 * 1024

    @property
    def mbm_events(self) -> tuple[str, ...]:
        return tuple(event for event in self.events if event in MBM_EVENTS)


@dataclass(frozen=True, slots=True)
class Machine:
    """One host. Absent features are None. `has_padded_values` is the schemata format before Linux 6.15."""

    name: str
    num_cpus: int
    l3: CacheControl | None = None
    l2: CacheControl | None = None
    bandwidth: BandwidthControl | None = None
    monitoring: Monitoring | None = None
    has_padded_values: bool = False

    @property
    def caches(self) -> tuple[CacheControl, ...]:
        return tuple(cache for cache in (self.l3, self.l2) if cache)


INTEL = Machine(
    name="intel",
    num_cpus=8,
    l3=CacheControl("L3", (0, 1), 16, 11, 1, 0x600, 22 << 20, is_cdp_capable=True),
    bandwidth=BandwidthControl((0, 1), 8, 10, 100, 10, True, "max"),
    monitoring=Monitoring((0, 1), 32),
)

INTEL_L2 = Machine(
    name="intel-l2",
    num_cpus=8,
    l3=CacheControl("L3", (0,), 15, 20, 1, 0xC0000, 30 << 20, is_cdp_capable=True),
    l2=CacheControl("L2", (0, 1, 2, 3), 8, 8, 1, 0, 1 << 20, is_cdp_capable=True),
    bandwidth=BandwidthControl((0,), 15, 10, 100, 10, True, "per-thread"),
    monitoring=Monitoring((0,), 64),
)

AMD = Machine(
    name="amd",
    num_cpus=16,
    l3=CacheControl("L3", (0, 1, 2, 8), 16, 16, 0, 0, 32 << 20, has_sparse_masks=True, is_cdp_capable=True),
    bandwidth=BandwidthControl((0, 1, 2, 8), 16, 0, 2048, 1, False, "undefined"),
    monitoring=Monitoring((0, 1, 2, 8), 256, is_configurable=True, upscale_bytes=64),
    has_padded_values=True,
)

MONITOR_ONLY = Machine(name="monitor-only", num_cpus=4, monitoring=Monitoring((0,), 16))

FLAVOURS = {machine.name: machine for machine in (INTEL, INTEL_L2, AMD, MONITOR_ONLY)}
