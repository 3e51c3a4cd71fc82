"""Every column in one table, a line each: exposition, snapshot and docs/metrics.md derive from it.

A column is what a frame carries (raw, native unit); a family is what Prometheus sees (base unit). Columns of
one family differ by constant labels, so `sum without (cause)` gives the whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class MetricKind(StrEnum):
    """How a column behaves over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Native unit of a column; `scale` leads to the Prometheus base unit."""

    NS = "ns"
    US = "us"
    SECONDS = "seconds"
    BYTES = "bytes"
    PAGES = "pages"
    RATIO = "ratio"
    CORES = "cores"
    COUNT = ""

    @property
    def scale(self) -> float:
        """Factor from the native unit to the base unit (seconds, bytes, ratio, count)."""
        return {Unit.NS: 1e-9, Unit.US: 1e-6}.get(self, 1.0)

    @property
    def base(self) -> str:
        """Suffix of the base unit in a Prometheus name."""
        return "seconds" if self in (Unit.NS, Unit.US) else self.value


@dataclass(frozen=True, slots=True)
class Metric:
    """One column and how it is shown."""

    column: str
    """Name in a frame: `<source>.<what>_<unit>`."""
    family: str
    """Prometheus family without prefix, unit and `_total`; empty where the column is not exposed on its own."""
    kind: MetricKind
    unit: Unit
    help: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Constant labels of this column within its family."""
    table: str = "cgroup"
    """Table of the frame that carries it."""
    sum_column: str = ""
    """For a histogram: the column that holds the sum of what was counted."""

    @property
    def series(self) -> str:
        """Full Prometheus name: `koord_<family>[_<unit>][_total]`."""
        unit = f"_{self.unit.base}" if self.unit.base else ""
        total = "_total" if self.kind is MetricKind.COUNTER else ""
        return f"koord_{self.family}{unit}{total}"


def _c(column: str, family: str, unit: Unit, text: str, /, table: str = "cgroup", **labels: str) -> Metric:
    return Metric(column, family, MetricKind.COUNTER, unit, text, labels, table)


def _g(column: str, family: str, unit: Unit, text: str, /, table: str = "cgroup", **labels: str) -> Metric:
    return Metric(column, family, MetricKind.GAUGE, unit, text, labels, table)


def _h(column: str, family: str, text: str, /, total: str, table: str = "cgroup", **labels: str) -> Metric:
    """A log2 histogram of nanoseconds (api/histogram.py) whose sum is the column `total`."""
    return Metric(column, family, MetricKind.HISTOGRAM, Unit.NS, text, labels, table, total)


_WAIT = "Time runnable threads of the cgroup waited for a CPU, by cause"

WAIT_CAUSES = ("neighbour", "self", "own_quota", "ancestor_quota", "kernel", "idle", "unknown")
"""Causes of run-queue wait, in the order of the cpu probe's record; they sum to the whole wait."""

MEMORY_CAUSES = ("own_limit", "ancestor_limit", "global", "compaction")
"""Causes of memory stalls, in the order of the memory probe's record; a stall has one of them."""

_STALL = "Time threads of the cgroup stalled to find memory, by cause"
_INTERRUPTED = "Time interrupts took on top of the cgroup's running threads"

METRICS: tuple[Metric, ...] = (
    # cpu
    _c("cpu.oncpu_ns", "cgroup_cpu_oncpu", Unit.NS, "Time threads of the cgroup ran on a CPU"),
    _c("cpu.wait_ns", "", Unit.NS, "Time runnable threads of the cgroup waited for a CPU, measured as a whole"),
    _c("cpu.wait_count", "cgroup_cpu_waits", Unit.COUNT, "Run-queue waits that ended"),
    *(_c(f"cpu.wait_{cause}_ns", "cgroup_cpu_wait", Unit.NS, _WAIT, cause=cause) for cause in WAIT_CAUSES),
    _h("cpu.wait_hist", "cgroup_cpu_wait_duration", "Distribution of run-queue waits", total="cpu.wait_ns"),
    _c(
        "cpu.involuntary_switches",
        "cgroup_cpu_involuntary_switches",
        Unit.COUNT,
        "Switches away from a thread that could go on",
    ),
    _c(
        "cpu.blame_ns",
        "cgroup_cpu_blame",
        Unit.NS,
        "Run-queue wait of a victim while the culprit ran",
        table="cpu.blame",
    ),
    # what the kernel already counts for each cgroup
    _c("cpustat.usage_ns", "cgroup_cpu_usage", Unit.NS, "CPU time as the cpu controller accounts it"),
    _c("cpustat.periods", "cgroup_cpu_periods", Unit.COUNT, "Quota periods that passed"),
    _c("cpustat.throttled_periods", "cgroup_cpu_throttled_periods", Unit.COUNT, "Quota periods with throttling"),
    _c(
        "cpustat.throttled_ns",
        "cgroup_cpu_throttled",
        Unit.NS,
        "Time throttled by the cgroup's own quota, summed over CPUs",
    ),
    _g("memstat.usage_bytes", "cgroup_memory_usage", Unit.BYTES, "Memory charged to the cgroup"),
    _g("memstat.limit_bytes", "cgroup_memory_limit", Unit.BYTES, "Memory limit; absent where there is none"),
    _g("memstat.file_bytes", "cgroup_memory_file", Unit.BYTES, "Page cache charged to the cgroup"),
    _g("memstat.anon_bytes", "cgroup_memory_anon", Unit.BYTES, "Anonymous memory charged to the cgroup"),
    _c("memstat.refaults", "cgroup_memory_refaults", Unit.COUNT, "Pages faulted in again soon after eviction"),
    _c("memstat.major_faults", "cgroup_memory_major_faults", Unit.COUNT, "Page faults that needed IO"),
    *(
        _c(
            f"pressure.{resource}_{kind}_us",
            "cgroup_pressure",
            Unit.US,
            "PSI stall time; that of cpu includes the cgroup's own throttling",
            resource=resource,
            kind=kind,
        )
        for resource in ("cpu", "memory", "io")
        for kind in ("some", "full")
    ),
    _c("iostat.read_bytes", "cgroup_io", Unit.BYTES, "Block IO as the io controller accounts it", direction="read"),
    _c("iostat.write_bytes", "cgroup_io", Unit.BYTES, "Block IO as the io controller accounts it", direction="write"),
    _c(
        "iostat.reads", "cgroup_io_operations", Unit.COUNT, "Block IO operations of the io controller", direction="read"
    ),
    _c(
        "iostat.writes",
        "cgroup_io_operations",
        Unit.COUNT,
        "Block IO operations of the io controller",
        direction="write",
    ),
    # the host
    *(
        _c(f"hostcpu.{kind}_ns", f"host_cpu_{kind}", Unit.NS, f"{text}, by CPU", table="host.cpu")
        for kind, text in (
            ("busy", "Time not idle"),
            ("irq", "Time in hard interrupts"),
            ("softirq", "Time in soft interrupts"),
            ("steal", "Time the hypervisor ran somebody else"),
        )
    ),
    _g("hostwide.memory_total_bytes", "host_memory_total", Unit.BYTES, "Memory of the host", table="host"),
    _g(
        "hostwide.memory_available_bytes",
        "host_memory_available",
        Unit.BYTES,
        "Memory available without swapping",
        table="host",
    ),
    _c("hostwide.kswapd_steals", "host_kswapd_reclaimed_pages", Unit.COUNT, "Pages reclaimed by kswapd", table="host"),
    _c(
        "hostwide.direct_reclaims",
        "host_direct_reclaims",
        Unit.COUNT,
        "Direct reclaims in the normal zone",
        table="host",
    ),
    *(
        _c(
            f"hostwide.{resource}_{kind}_us",
            "host_pressure",
            Unit.US,
            "PSI stall time of the host",
            table="host",
            resource=resource,
            kind=kind,
        )
        for resource in ("cpu", "memory", "io")
        for kind in ("some", "full")
    ),
    # the agent itself
    _c("agent.cpu_ns", "agent_cpu", Unit.NS, "CPU time of the agent", table="host"),
    _g("agent.rss_bytes", "agent_resident", Unit.BYTES, "Resident memory of the agent", table="host"),
    _g("agent.tick_ns", "agent_tick", Unit.NS, "Duration of the last tick", table="host"),
    _g("agent.cgroups", "agent_cgroups", Unit.COUNT, "Cgroups watched", table="host"),
    # the close look
    _g(
        "triage.budget_cores", "triage_budget", Unit.CORES, "CPU that expensive probes' programs may take", table="host"
    ),
    _g("triage.used_cores", "triage_used", Unit.CORES, "CPU that they took when last measured", table="host"),
    _g("triage.focused", "triage_focused_cgroups", Unit.COUNT, "Cgroups that they look at", table="host"),
    _g(
        "triage.level",
        "triage_level",
        Unit.COUNT,
        "0 everything, 1 rotation, 2 suspects, 3 worst, 4 nothing",
        table="host",
    ),
    _c("triage.shed_ticks", "triage_shed_ticks", Unit.COUNT, "Ticks in which less was looked at", table="host"),
    # memory
    *(_c(f"memory.stall_{cause}_ns", "cgroup_memory_stall", Unit.NS, _STALL, cause=cause) for cause in MEMORY_CAUSES),
    *(
        _c(f"memory.stall_{cause}_count", "cgroup_memory_stalls", Unit.COUNT, "Memory stalls that ended", cause=cause)
        for cause in MEMORY_CAUSES
    ),
    *(
        _h(f"memory.stall_{cause}_hist", "cgroup_memory_stall_duration", Unit.NS, "Memory stalls", cause=cause)
        for cause in MEMORY_CAUSES
    ),
    _c(
        "memory.stall_global_self_ns",
        "cgroup_memory_stall_global_self",
        Unit.NS,
        "Part of the global memory stall owed to the cgroup's own allocations",
    ),
    _c(
        "memory.pressure_pages",
        "cgroup_memory_pressure_pages",
        Unit.COUNT,
        "Pages the cgroup took while the node was short of memory",
    ),
    _c("memory.oom_kills", "cgroup_memory_oom_kills", Unit.COUNT, "Processes of the cgroup killed for lack of memory"),
    _c(
        "memory.blame_ns",
        "cgroup_memory_blame",
        Unit.NS,
        "Global memory stall of a victim by who took pages meanwhile",
        table="memory.blame",
    ),
    _c("memory.kswapd_wakes", "host_kswapd_wakes", Unit.COUNT, "Runs of background reclaim", table="host"),
    # blockio
    _c("blockio.queue_ns", "cgroup_blockio_queue", Unit.NS, "Time block IO waited to be issued to its disk"),
    _c("blockio.device_ns", "cgroup_blockio_device", Unit.NS, "Time block IO was with its disk"),
    _c("blockio.throttle_ns", "cgroup_blockio_throttle", Unit.NS, "Time block IO was held back by a limit"),
    _c(
        "blockio.excess_ns",
        "cgroup_blockio_device_excess",
        Unit.NS,
        "Part of the disk time beyond what such IO takes with nothing ahead of it",
    ),
    _c(
        "blockio.self_ns",
        "cgroup_blockio_self",
        Unit.NS,
        "Part of queue and excess time with only own IO ahead, or none",
    ),
    _c("blockio.ios", "cgroup_blockio_requests", Unit.COUNT, "Block IO requests that ended"),
    _c("blockio.read_bytes", "cgroup_blockio_read", Unit.BYTES, "Bytes read from disks"),
    _c("blockio.write_bytes", "cgroup_blockio_written", Unit.BYTES, "Bytes written to disks"),
    _h("blockio.queue_hist", "cgroup_blockio_queue_duration", "Block IO's wait to be issued", total="blockio.queue_ns"),
    _h("blockio.device_hist", "cgroup_blockio_device_duration", "Block IO's disk time", total="blockio.device_ns"),
    _g("blockio.inflight", "", Unit.COUNT, "Block IOs queued or with the disk now", table="blockio.device"),
    _c(
        "blockio.blame_ns",
        "cgroup_blockio_blame",
        Unit.NS,
        "Queue and excess disk time of a victim by whose IO was ahead",
        table="blockio.blame",
    ),
    # turnaround
    _c("turnaround.requests", "cgroup_requests", Unit.COUNT, "Requests the cgroup answered on its TCP sockets"),
    _c("turnaround.sum_ns", "cgroup_turnaround", Unit.NS, "Time from requests' arrival to their first answer"),
    _h("turnaround.hist", "cgroup_turnaround_duration", Unit.NS, "Distribution of request turnarounds"),
    # throttle
    _c(
        "throttle.throttled_ns",
        "cgroup_cpu_throttle_episode_time",
        Unit.NS,
        "Time queues were held back by the cgroup's own quota, by episodes that ended, summed over CPUs",
    ),
    _c("throttle.episodes", "cgroup_cpu_throttle_episodes", Unit.COUNT, "Throttle episodes of single CPUs' queues"),
    _h("throttle.hist", "cgroup_cpu_throttle_duration", Unit.NS, "Distribution of throttle episodes"),
    # pmu
    _c("pmu.cycles", "cgroup_cpu_cycles", Unit.COUNT, "CPU cycles of the cgroup, scaled for multiplexing"),
    _c("pmu.instructions", "cgroup_instructions", Unit.COUNT, "Instructions of the cgroup, scaled for multiplexing"),
    _c("pmu.llc_references", "cgroup_llc_references", Unit.COUNT, "Accesses of the cgroup to the last-level cache"),
    _c("pmu.llc_misses", "cgroup_llc_misses", Unit.COUNT, "Accesses of the cgroup that missed the last-level cache"),
    _c("pmu.enabled_ns", "cgroup_pmu_enabled", Unit.NS, "Time in which hardware events were wanted for the cgroup"),
    _c("pmu.running_ns", "cgroup_pmu_running", Unit.NS, "Time in which all of them had a hardware counter"),
    # interrupts
    _c("cpu.irq_ns", "cgroup_cpu_interrupted", Unit.NS, _INTERRUPTED, kind="irq"),
    _c("cpu.softirq_ns", "cgroup_cpu_interrupted", Unit.NS, _INTERRUPTED, kind="softirq"),
    _c("irq.vector_ns", "host_interrupt", Unit.NS, "Time in interrupts, by vector", table="irq.vector"),
    _c("irq.vector_count", "host_interrupts", Unit.COUNT, "Interrupts handled, by vector", table="irq.vector"),
    _c(
        "irq.vector_stolen_ns",
        "host_interrupt_stolen",
        Unit.NS,
        "Time in interrupts that came on top of a cgroup's task, by vector",
        table="irq.vector",
    ),
    # smt
    _c("cpu.smt_foreign_ns", "cgroup_smt_foreign", Unit.NS, "Time another cgroup ran on the core's other thread"),
    _c(
        "smt.blame_ns",
        "cgroup_smt_blame",
        Unit.NS,
        "Time the culprit ran on the other thread of the victim's core",
        table="smt.blame",
    ),
    # network
    _c("net.tcp_retransmits", "cgroup_tcp_retransmits", Unit.COUNT, "TCP segments sent again"),
    _c("net.drops", "cgroup_net_drops", Unit.COUNT, "Packets dropped on the way from or to the cgroup's sockets"),
    _c("net.softirq_rx_ns", "cgroup_net_receive_interrupt", Unit.NS, "Receive interrupt time of the cgroup's packets"),
    _c("net.qdisc_delay_ns", "cgroup_net_send_queue_wait", Unit.NS, "Time packets waited in devices' send queues"),
    _c("net.qdisc_packets", "cgroup_net_send_queue_packets", Unit.COUNT, "Packets that left a device's send queue"),
    _h("net.qdisc_hist", "cgroup_net_send_queue_duration", Unit.NS, "Distribution of waits in send queues"),
    # resctrl
    _g("resctrl.llc_occupancy_bytes", "cgroup_llc_occupancy", Unit.BYTES, "Last-level cache the cgroup fills"),
    _c("resctrl.mbm_total_bytes", "cgroup_memory_traffic", Unit.BYTES, "Memory traffic of the cgroup"),
    _c(
        "resctrl.mbm_local_bytes",
        "cgroup_memory_local_traffic",
        Unit.BYTES,
        "Part of the memory traffic of the cgroup that stays on its NUMA node",
    ),
    _g("resctrl.sampled", "cgroup_resctrl_sampled", Unit.RATIO, "1 where cgroups take turns on too few monitor ids"),
    _g(
        "resctrl.group_llc_occupancy_bytes",
        "resctrl_group_llc_occupancy",
        Unit.BYTES,
        "Last-level cache a resctrl group fills",
        table="host.resctrl_group",
    ),
    _c(
        "resctrl.group_mbm_total_bytes",
        "resctrl_group_memory_traffic",
        Unit.BYTES,
        "Memory traffic of a resctrl group",
        table="host.resctrl_group",
    ),
    _c(
        "resctrl.group_mbm_local_bytes",
        "resctrl_group_memory_local_traffic",
        Unit.BYTES,
        "Part of the memory traffic of a resctrl group that stays on its NUMA node",
        table="host.resctrl_group",
    ),
)
"""The table. Column names are unique."""

BY_COLUMN: Mapping[str, Metric] = {metric.column: metric for metric in METRICS}
