"""Settable knobs and topology of this host, and the CPUs and quotas of the cgroups that a decision may need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.intents import Knob

BANDWIDTH_EIGHTHS_GB = 160
"""Bandwidth of a memory domain in the unit of AMD's schemata, 1/8 GB/s, as Koordinator reckons: 80 % of 25 GB/s."""


@dataclass(frozen=True, slots=True)
class CacheCapabilities:
    """Cache ways and memory bandwidth that resctrl can divide; empty domains where it cannot."""

    l3_domains: tuple[int, ...] = ()
    l3_mask: int = 0
    l3_least_bits: int = 1
    bandwidth_domains: tuple[int, ...] = ()
    bandwidth_step: int = 10
    """Percent."""
    bandwidth_least: int = 10
    bandwidth_is_absolute: bool = False
    """Whether the figures are no percents but 1/8 GB/s (AMD)."""
    l2_domains: tuple[int, ...] = ()
    l2_mask: int = 0
    l2_least_bits: int = 1


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """Knobs of this host, its CPUs and disks, and the values of single cgroups that were read for this tick."""

    knobs: frozenset[Knob] = frozenset(Knob)
    cpus: tuple[int, ...] = ()
    cores: Mapping[int, int] = field(default_factory=dict)
    """CPU to core; CPUs of one core are SMT siblings."""
    nodes: Mapping[int, int] = field(default_factory=dict)
    """CPU to NUMA node."""
    disks: tuple[str, ...] = ()
    """Block devices as major:minor."""
    weighing_disks: frozenset[str] | None = None
    """Block devices that share their time by weight; None if that cannot be known."""
    own: str = ""
    """The agent's own cgroup, never acted upon."""
    caches: CacheCapabilities = CacheCapabilities()
    cgroup_cpus: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Path to the CPUs that a cgroup may run on, empty if not known; for the cgroups of `CgroupReads.cpus`."""
    cgroup_quota_us: Mapping[str, int | None] = field(default_factory=dict)
    """Path to a cgroup's own CPU quota in one period, None without one; for the cgroups of `CgroupReads.quota`."""


@dataclass(frozen=True, slots=True)
class CgroupReads:
    """Paths of the cgroups whose CPUs and quotas must be read before the decision."""

    cpus: frozenset[str] = frozenset()
    quota: frozenset[str] = frozenset()
