"""The feature table of anomaly models: what a container looks like in one window, whatever its size.

Profiles are exported with these columns, `koord-detector train` learns from them, and the node scores with them. A
feature whose columns the host does not measure is absent; one that has no value in a window, such as cycles per
instruction of a container that did not run, is NaN.
"""

from collections.abc import Callable, Mapping

import numpy as np

from detector.arrays import Floats
from detector.symptom import ratio
from detector.view import View


def _sum(*columns: str) -> Callable[[View], Floats | None]:
    return lambda view: view.total(*columns)


def _ratio(part: str, whole: str) -> Callable[[View], Floats | None]:
    return lambda view: ratio(view.rate(part), view.rate(whole)) if view.has(part, whole) else None


FEATURES: Mapping[str, tuple[tuple[str, ...], Callable[[View], Floats | None]]] = {
    name: (columns, make(*columns))
    for name, columns, make in (
        ("cpu_cores", ("cpu.oncpu_ns",), _sum),
        ("cpu_wait_neighbour", ("cpu.wait_neighbour_ns", "cpu.wait_kernel_ns"), _sum),
        ("cpu_wait_self", ("cpu.wait_self_ns",), _sum),
        ("cpu_wait_quota", ("cpu.wait_own_quota_ns", "cpu.wait_ancestor_quota_ns"), _sum),
        ("cpu_waits", ("cpu.wait_count",), _sum),
        ("cpu_involuntary_switches", ("cpu.involuntary_switches",), _sum),
        ("cpi", ("pmu.cycles", "pmu.instructions"), _ratio),
        ("llc_miss_ratio", ("pmu.llc_misses", "pmu.llc_references"), _ratio),
        ("memory_bytes", ("memstat.usage_bytes",), _sum),
        ("memory_stall", ("memory.stall_global_ns", "memory.stall_compaction_ns"), _sum),
        ("memory_refaults", ("memstat.refaults",), _sum),
        ("memory_traffic_bytes", ("resctrl.mbm_total_bytes",), _sum),
        ("blockio_requests", ("blockio.ios",), _sum),
        ("blockio_wait", ("blockio.queue_ns", "blockio.excess_ns"), _sum),
        ("network_packets", ("net.qdisc_packets",), _sum),
        ("network_retransmits", ("net.tcp_retransmits",), _sum),
        ("pressure_cpu", ("pressure.cpu_some_us",), _sum),
        ("pressure_memory", ("pressure.memory_some_us",), _sum),
        ("pressure_io", ("pressure.io_some_us",), _sum),
        ("requests", ("turnaround.requests",), _sum),
        ("turnaround_seconds", ("turnaround.sum_ns", "turnaround.requests"), _ratio),
    )
}
"""By name: the columns of the dense table, and how the feature is made of their rates per second: the sum of those
that are measured, or the first over the second. Time becomes seconds per second, sizes stay bytes."""

COLUMNS = frozenset(column for columns, _make in FEATURES.values() for column in columns)


def features(view: View, wanted: tuple[str, ...] | None = None) -> tuple[tuple[str, ...], Floats]:
    """Names and values, shape (cgroups, names): the wanted ones in their order, else all that the host measures.

    A wanted feature that is not measured or not known is NaN throughout.
    """
    names = tuple(FEATURES) if wanted is None else wanted
    made = {name: FEATURES[name][1](view) if name in FEATURES else None for name in names}
    kept = [name for name in names if made[name] is not None] if wanted is None else list(names)
    matrix = np.full((len(view.ids), len(kept)), np.nan)
    for place, name in enumerate(kept):
        column = made[name]
        if column is not None:
            matrix[:, place] = column
    return tuple(kept), matrix
