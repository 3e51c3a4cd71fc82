"""One measurement as one JSON object (`koord.snapshot/v1`, docs/snapshot.schema.json). Pure: frames in, values out."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from api.cgroup_names import display_names
from api.frame import CGROUP, HOST, KERNEL_ID, OTHER_ID, Table
from api.histogram import percentile_ns
from api.metrics import MEMORY_CAUSES, WAIT_CAUSES
from api.window import Delta, Window

SCHEMA = "koord.snapshot/v1"
KERNEL_PATH = "[kernel]"
OTHER_PATH = "[other]"

PathOf = Callable[[int], str | None]
Json = dict[str, Any]

_NS = 1e-9


class _Columns:
    """Columns of one delta's dense table, in base units, absent ones as None."""

    def __init__(self, delta: Delta) -> None:
        self._columns = delta.table.columns

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self._columns)

    def seconds(self, name: str, row: int) -> float | None:
        return self.number(name, row, _NS)

    def number(self, name: str, row: int, scale: float = 1.0) -> float | None:
        column = self._columns.get(name)
        if column is None:
            return None
        value = float(column[row]) * scale
        return None if np.isnan(value) else value

    def count(self, name: str, row: int) -> int | None:
        value = self.number(name, row)
        return None if value is None else int(value)

    def slots(self, name: str, row: int) -> list[int] | None:
        column = self._columns.get(name)
        return None if column is None else [int(slot) for slot in column[row]]


def snapshot(window: Window, path_of: PathOf, host: Json, unsupported: Mapping[str, str]) -> Json:
    """The snapshot of a window of at least two frames.

    `host` has constant facts (release, cpus, cgroup version); `unsupported` maps a source to the reason of its
    absence. Every section that is null has its reason under `host.unsupported`.
    """
    delta = window.delta()
    columns = _Columns(delta)
    blame = {name: _blame_by_victim(window, f"{name}.blame", path_of) for name in ("cpu", "memory", "blockio")}
    devices = _rows_by_cgroup(window, "blockio.device")
    ports = _rows_by_cgroup(window, "turnaround.port")
    gauges = window.last.tables[CGROUP].columns
    names = display_names(window.cgroups)
    rows = [
        {
            "path": info.path,
            "id": info.id,
            "name": names[info.path],
            "namespace": info.namespace,
            "pod": info.pod,
            "container": info.container,
            "role": info.role,
            "pod_uid": info.pod_uid,
            "workload": info.workload,
            "qos": info.qos,
            **({} if info.priority is None else {"priority": info.priority}),
            "priority_band": info.priority_band,
            "cpu": _cpu(columns, row, blame["cpu"].get(info.id, [])),
            "memory": _memory(columns, gauges, row, blame["memory"].get(info.id, [])),
            "blockio": _blockio(columns, row, blame["blockio"].get(info.id, []), devices.get(info.id, [])),
            "net": _net(columns, row),
            "turnaround": _turnaround(columns, row, ports.get(info.id, [])),
            "pmu": _pmu(columns, row),
            "resctrl": _resctrl(columns, gauges, row),
            "pressure": _pressure(columns, row),
        }
        for row, info in enumerate(window.cgroups)
    ]
    return {
        "schema": SCHEMA,
        "time": window.last.wall_ns * _NS,
        "seconds": window.seconds,
        "host": host | _host(window) | {"unsupported": {**window.last.sources, **unsupported}},
        "cgroups": rows,
    }


def _host(window: Window) -> Json:
    found: Json = {"lost": dict(window.last.lost), "counter_resets": window.delta().resets}
    if HOST in window.last.tables:
        delta = window.delta(HOST).table.columns
        last = window.last.tables[HOST].columns
        found["kswapd_wakes"] = int(delta["memory.kswapd_wakes"][0]) if "memory.kswapd_wakes" in delta else None
        found["memory_available_bytes"] = _gauge(last, "hostwide.memory_available_bytes")
        found["memory_total_bytes"] = _gauge(last, "hostwide.memory_total_bytes")
    if "host.cpu" in window.last.tables:
        grown = window.delta("host.cpu").table.columns
        for name in ("steal", "irq", "softirq"):
            found[f"{name}_seconds_by_cpu"] = [float(v) * _NS for v in grown[f"hostcpu.{name}_ns"]]
    return found


def _gauge(columns: Mapping[str, NDArray[Any]], name: str) -> float | None:
    return float(columns[name][0]) if name in columns else None


def _name_culprit(identity: int, path_of: PathOf) -> str:
    if identity == KERNEL_ID:
        return KERNEL_PATH
    if identity == OTHER_ID:
        return OTHER_PATH
    return path_of(identity) or f"[gone {identity}]"


def _blame_by_victim(window: Window, table: str, path_of: PathOf) -> dict[int, list[Json]]:
    """For each victim id its culprits, worst first."""
    names = display_names(window.cgroups, (info for frame in window.frames for info in frame.cgroups))
    if table not in window.last.tables:
        return {}
    grown = window.delta(table).table
    victims, culprits = grown.ids.tolist(), grown.keys["culprit"].tolist()
    amounts = next(iter(grown.columns.values())).astype(np.float64)
    found: dict[int, list[Json]] = {}
    for row in np.argsort(-amounts, kind="stable").tolist():
        if amounts[row] > 0:
            path = _name_culprit(culprits[row], path_of)
            entry = {"path": path, "name": names.get(path, path), "seconds": float(amounts[row]) * _NS}
            found.setdefault(victims[row], []).append(entry)
    return found


def _rows_by_cgroup(window: Window, table: str) -> dict[int, list[tuple[Table, int]]]:
    if table not in window.last.tables:
        return {}
    grown = window.delta(table).table
    found: dict[int, list[tuple[Table, int]]] = {}
    for row, identity in enumerate(grown.ids.tolist()):
        found.setdefault(identity, []).append((grown, row))
    return found


def _cpu(columns: _Columns, row: int, blame: list[Json]) -> Json | None:
    if not columns.has("cpu.") and not columns.has("cpustat."):
        return None
    irq = [columns.seconds(name, row) for name in ("cpu.irq_ns", "cpu.softirq_ns")]
    throttled = columns.seconds("cpustat.throttled_ns", row)
    measured = columns.has("cpu.wait_ns")
    return {
        "oncpu_seconds": _first(columns.seconds("cpu.oncpu_ns", row), columns.seconds("cpustat.usage_ns", row)),
        "wait_seconds": columns.seconds("cpu.wait_ns", row),
        "wait_count": columns.count("cpu.wait_count", row),
        "wait_by_cause": {cause: columns.seconds(f"cpu.wait_{cause}_ns", row) for cause in WAIT_CAUSES}
        if measured
        else None,
        "wait_histogram": columns.slots("cpu.wait_hist", row),
        "involuntary_switches": columns.count("cpu.involuntary_switches", row),
        "irq_seconds": sum(value for value in irq if value is not None) if any(v is not None for v in irq) else None,
        "smt_foreign_seconds": columns.seconds("cpu.smt_foreign_ns", row),
        "blame": blame,
        "throttled_seconds": throttled,
        "throttled_periods": columns.count("cpustat.throttled_periods", row),
        "throttle_episodes": columns.count("throttle.episodes", row),
        "throttle_histogram": columns.slots("throttle.hist", row),
    }


def _memory(columns: _Columns, gauges: Mapping[str, Any], row: int, blame: list[Json]) -> Json | None:
    if not columns.has("memory.") and not columns.has("memstat."):
        return None
    stalls: Json | None = None
    if columns.has("memory.stall_"):
        stalls = {cause: columns.seconds(f"memory.stall_{cause}_ns", row) for cause in MEMORY_CAUSES}
    return {
        "stall_by_cause": stalls,
        "stall_count_by_cause": {cause: columns.count(f"memory.stall_{cause}_count", row) for cause in MEMORY_CAUSES}
        if stalls
        else None,
        "blame": blame,
        "usage_bytes": _finite(gauges, "memstat.usage_bytes", row),
        "limit_bytes": _finite(gauges, "memstat.limit_bytes", row),
        "refaults": _first(columns.count("memory.refaults", row), columns.count("memstat.refaults", row)),
        "oom_kills": columns.count("memory.oom_kills", row),
    }


def _blockio(columns: _Columns, row: int, blame: list[Json], devices: list[tuple[Table, int]]) -> Json | None:
    if not columns.has("blockio.") and not columns.has("iostat."):
        return None
    return {
        "queue_seconds": columns.seconds("blockio.queue_ns", row),
        "device_seconds": columns.seconds("blockio.device_ns", row),
        "limit_seconds": columns.seconds("blockio.throttle_ns", row),
        "ios": columns.count("blockio.ios", row),
        "read_bytes": _first(columns.count("blockio.read_bytes", row), columns.count("iostat.read_bytes", row)),
        "write_bytes": _first(columns.count("blockio.write_bytes", row), columns.count("iostat.write_bytes", row)),
        "swapped_bytes": columns.count("blockio.swapped_bytes", row),
        "blame": blame,
        "devices": [_device(table, at) for table, at in devices],
    }


def _device(table: Table, row: int) -> Json:
    number = int(table.keys["device"][row])
    found: Json = {"device": f"{number >> 20}:{number & 0xFFFFF}"}
    for name, column in table.columns.items():
        short = name.removeprefix("blockio.")
        if column.ndim == 1:
            value = float(column[row])
            found[short.replace("_ns", "_seconds")] = value * _NS if short.endswith("_ns") else int(value)
        else:
            found[short.replace("_hist", "_histogram")] = [int(slot) for slot in column[row]]
    return found


def _net(columns: _Columns, row: int) -> Json | None:
    if not columns.has("net."):
        return None
    return {
        "tcp_retransmits": columns.count("net.tcp_retransmits", row),
        "softirq_rx_seconds": columns.seconds("net.softirq_rx_ns", row),
        "softirq_own_seconds": columns.seconds("net.softirq_own_ns", row),
        "softirq_deferred_seconds": columns.seconds("net.softirq_deferred_ns", row),
        "backlog_delay_seconds": columns.seconds("net.backlog_delay_ns", row),
        "qdisc_delay_seconds": columns.seconds("net.qdisc_delay_ns", row),
        "qdisc_self_seconds": columns.seconds("net.qdisc_self_ns", row),
        "qdisc_packets": columns.count("net.qdisc_packets", row),
        "drops": columns.count("net.drops", row),
    }


def _turnaround(columns: _Columns, row: int, ports: list[tuple[Table, int]]) -> Json | None:
    slots = columns.slots("turnaround.hist", row)
    if slots is None:
        return None
    found = _latencies(slots, columns.count("turnaround.requests", row) or 0)
    found["ports"] = [
        {"port": int(table.keys["port"][at])}
        | _latencies(
            [int(slot) for slot in table.columns["turnaround.hist"][at]],
            int(table.columns["turnaround.requests"][at]),
        )
        for table, at in ports
    ]
    return found


def _latencies(slots: list[int], requests: int) -> Json:
    """Requests and their percentiles, null where there were no requests."""
    values = np.array(slots)
    if not values.any():
        return {"requests": requests, "p50_seconds": None, "p99_seconds": None}
    return {
        "requests": requests,
        "p50_seconds": float(percentile_ns(values, 0.5)) * _NS,
        "p99_seconds": float(percentile_ns(values, 0.99)) * _NS,
    }


def _pmu(columns: _Columns, row: int) -> Json | None:
    if not columns.has("pmu."):
        return None
    cycles, instructions = columns.number("pmu.cycles", row), columns.number("pmu.instructions", row)
    return {
        "cycles": cycles,
        "instructions": instructions,
        "cycles_per_instruction": cycles / instructions if cycles and instructions else None,
        "llc_references": columns.number("pmu.llc_references", row),
        "llc_misses": columns.number("pmu.llc_misses", row),
    }


def _resctrl(columns: _Columns, gauges: Mapping[str, Any], row: int) -> Json | None:
    if not columns.has("resctrl."):
        return None
    sampled = _finite(gauges, "resctrl.sampled", row)
    return {
        "llc_occupancy_bytes": _finite(gauges, "resctrl.llc_occupancy_bytes", row),
        "mbm_total_bytes": columns.number("resctrl.mbm_total_bytes", row),
        "mbm_local_bytes": columns.number("resctrl.mbm_local_bytes", row),
        "sampled": None if sampled is None else bool(sampled),
    }


def _pressure(columns: _Columns, row: int) -> Json | None:
    if not columns.has("pressure."):
        return None
    return {
        f"{resource}_{kind}_seconds": columns.number(f"pressure.{resource}_{kind}_us", row, 1e-6)
        for resource in ("cpu", "memory", "io")
        for kind in ("some", "full")
    }


def _finite(columns: Mapping[str, Any], name: str, row: int) -> float | None:
    if name not in columns:
        return None
    value = float(columns[name][row])
    return value if np.isfinite(value) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)
