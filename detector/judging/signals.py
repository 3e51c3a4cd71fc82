"""Signals for baselines: each container's values in a tick and the load they were measured at."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from api.frame import CgroupInfo
from detector.arrays import Floats
from detector.baselines.values import BaselineSample, Judgement, LoadKind, WorkloadKey
from detector.symptom import ratio
from detector.view import View

SIGNAL_COLUMNS = frozenset(
    (
        "cpu.oncpu_ns",
        "cpu.wait_neighbour_ns",
        "cpu.wait_kernel_ns",
        "pmu.cycles",
        "pmu.instructions",
        "pmu.llc_references",
        "pmu.llc_misses",
        "resctrl.mbm_total_bytes",
        "turnaround.requests",
        "turnaround.sum_ns",
    )
)
SURROUNDINGS = frozenset(("cpu_contention", "others_memory_traffic"))
AT_ANY_LOAD = frozenset(("cpu_contention",))
"""A loss is a part of the demand that load is counted by, so each loss would be the first at its load."""


def workload_key(info: CgroupInfo, node_type: str) -> WorkloadKey:
    """Return the workload whose baseline applies to a cgroup."""
    return WorkloadKey(info.workload, info.container, node_type)


def observe(view: View, keys: Sequence[WorkloadKey]) -> BaselineSample:
    """A row for each cgroup; the load is NaN where it has no workload's name, so that nothing is learned of it."""
    named = np.array([bool(key.workload) for key in keys], dtype=np.bool_)
    load, kind = _load(view)
    values: dict[str, Floats] = {}
    if view.cpu_contention is not None:
        values["cpu_contention"] = view.cpu_contention
    if view.has("pmu.cycles", "pmu.instructions"):
        values["cpi"] = ratio(view.rate("pmu.cycles"), view.rate("pmu.instructions"))
    if view.has("pmu.llc_references", "pmu.llc_misses"):
        values["llc_miss_ratio"] = ratio(view.rate("pmu.llc_misses"), view.rate("pmu.llc_references"))
    if view.has("resctrl.mbm_total_bytes"):
        traffic = view.rate("resctrl.mbm_total_bytes")
        values["others_memory_traffic"] = float(np.nansum(traffic)) - np.nan_to_num(traffic)
    if view.has("turnaround.requests", "turnaround.sum_ns"):
        values["turnaround"] = ratio(view.rate("turnaround.sum_ns"), view.rate("turnaround.requests"))
    return BaselineSample(keys, np.where(named, load, np.nan), kind, values, SURROUNDINGS, AT_ANY_LOAD)


def _load(view: View) -> tuple[Floats, NDArray[np.int64]]:
    """Requests per second of those that ever answered any; of all others the CPUs they would use without neighbours."""
    count = len(view.ids)
    demand = view.total("cpu.oncpu_ns", "cpu.wait_neighbour_ns") if view.has("cpu.oncpu_ns") else None
    load = np.full(count, np.nan) if demand is None else demand
    kind = np.full(count, int(LoadKind.CPU_DEMAND_CORES), dtype=np.int64)
    if view.has("turnaround.requests"):
        serves = view.counter("turnaround.requests").astype(np.float64) > 0
        load = np.where(serves, view.rate("turnaround.requests"), load)
        kind[serves] = int(LoadKind.REQUESTS_PER_SECOND)
    return load, kind


@dataclass(frozen=True, slots=True)
class Turnarounds:
    """Requests answered in a tick, a row for each cgroup."""

    ids: NDArray[np.uint64]
    requests: Floats
    took_seconds: Floats
    """All of them together, each from its arrival to its first answer."""
    usual: Judgement
    """Usual mean turnaround at this load, in seconds, without this tick."""


def turnarounds(view: View) -> Turnarounds | None:
    """As the newest tick was judged; None where no requests are seen."""
    usual = view.judgements.get("turnaround")
    if usual is None:
        return None
    requests, took = (view.rate(f"turnaround.{field}") * view.seconds for field in ("requests", "sum_ns"))
    return Turnarounds(view.ids, requests, took, usual)
