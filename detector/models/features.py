"""Feature table of anomaly models: the columns that describe a container in one window, whatever its size.

Profiles are exported with these columns, `koord-detector train` learns from them, and the node scores with them
(`detector/judging/features.py` computes the values). A feature whose columns the host does not measure is absent; one
that has no value in a window, such as cycles per instruction of a container that did not run, is NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature, made of rates per second: time becomes seconds per second, sizes stay bytes."""

    columns: tuple[str, ...]
    """Columns of the dense table."""
    is_ratio: bool = False
    """The first column over the second; False: the sum of those that are measured."""


FEATURES: Mapping[str, Feature] = {
    "cpu_cores": Feature(("cpu.oncpu_ns",)),
    "cpu_wait_neighbour": Feature(("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns")),
    "cpu_wait_self": Feature(("cpu.wait_self_ns",)),
    "cpu_wait_quota": Feature(("cpu.wait_own_quota_ns", "cpu.wait_ancestor_quota_ns")),
    "cpu_waits": Feature(("cpu.wait_count",)),
    "cpu_involuntary_switches": Feature(("cpu.involuntary_switches",)),
    "cpi": Feature(("pmu.cycles", "pmu.instructions"), is_ratio=True),
    "llc_miss_ratio": Feature(("pmu.llc_misses", "pmu.llc_references"), is_ratio=True),
    "memory_bytes": Feature(("memstat.usage_bytes",)),
    "memory_stall": Feature(("memory.stall_global_ns", "memory.stall_compaction_ns")),
    "memory_refaults": Feature(("memstat.refaults",)),
    "memory_traffic_bytes": Feature(("resctrl.mbm_total_bytes",)),
    "blockio_requests": Feature(("blockio.ios",)),
    "blockio_wait": Feature(("blockio.queue_ns", "blockio.excess_ns")),
    "network_packets": Feature(("net.qdisc_packets",)),
    "network_retransmits": Feature(("net.tcp_retransmits",)),
    "pressure_cpu": Feature(("pressure.cpu_some_us",)),
    "pressure_memory": Feature(("pressure.memory_some_us",)),
    "pressure_io": Feature(("pressure.io_some_us",)),
    "requests": Feature(("turnaround.requests",)),
    "turnaround_seconds": Feature(("turnaround.sum_ns", "turnaround.requests"), is_ratio=True),
}
"""By name."""

FEATURE_COLUMNS = frozenset(column for feature in FEATURES.values() for column in feature.columns)
