"""Every column in one table, a line each: exposition, snapshot and docs/metrics.md derive from it.

A column is what a frame carries (raw, native unit); a family is what Prometheus sees (base unit). Columns of
one family differ by constant labels, so `sum without (cause)` gives the whole.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.plugin import PluginError


class MetricKind(StrEnum):
    """Behaviour of a column over time."""

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
    """One column and its Prometheus series."""

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


def counter(column: str, family: str, unit: Unit, text: str, /, *, table: str = "cgroup", **labels: str) -> Metric:
    """Return a column that only grows; `text` is its HELP."""
    return Metric(column, family, MetricKind.COUNTER, unit, text, labels, table)


def gauge(column: str, family: str, unit: Unit, text: str, /, *, table: str = "cgroup", **labels: str) -> Metric:
    """Return a column that holds a level; `text` is its HELP."""
    return Metric(column, family, MetricKind.GAUGE, unit, text, labels, table)


def histogram(column: str, family: str, text: str, /, *, sum_column: str, **labels: str) -> Metric:
    """Return a log2 histogram of nanoseconds (api/histogram.py); `sum_column` adds up the same durations."""
    return Metric(column, family, MetricKind.HISTOGRAM, Unit.NS, text, labels, sum_column=sum_column)


_WAIT = "Time runnable threads of the cgroup waited for a CPU, by cause"

WAIT_CAUSES = ("neighbour", "self", "own_quota", "ancestor_quota", "kernel", "idle", "unknown")
"""Causes of run-queue wait, in the order of the cpu probe's record; they sum to the whole wait."""

KERNEL_WORK = (
    "background_reclaim",
    "block_devices",
    "compaction",
    "interrupt_threads",
    "journals",
    "network",
    "other",
    "rcu",
    "soft_interrupts",
    "virtual_machines",
    "writeback",
)
"""What the kernel's own threads do."""

MEMORY_CAUSES = ("own_limit", "ancestor_limit", "global", "compaction")
"""Causes of memory stalls, in the order of the memory probe's record; a stall has one of them."""

_STALL = "Time threads of the cgroup stalled to find memory, by cause"
_INTERRUPTED = "Time interrupts took on top of the cgroup's running threads"

METRICS: tuple[Metric, ...] = (
    # cpu
    counter(
        "cpu.oncpu_ns", "cgroup_cpu_oncpu", Unit.NS, "Time threads of the cgroup ran on a CPU, without stolen time"
    ),
    counter(
        "cpu.held_ns", "", Unit.NS, "Time threads of the cgroup held a CPU, with what was stolen from it and interrupts"
    ),
    counter("cpu.wait_ns", "", Unit.NS, "Time runnable threads of the cgroup waited for a CPU, measured as a whole"),
    counter("cpu.wait_count", "cgroup_cpu_waits", Unit.COUNT, "Run-queue waits that ended"),
    gauge("cpu.weight", "cgroup_cpu_weight", Unit.COUNT, "cpu.weight, from cpu.shares where the hierarchy is v1"),
    gauge("cpu.request_cores", "cgroup_cpu_request", Unit.CORES, "CPU request of the pod or container"),
    *(counter(f"cpu.wait_{cause}_ns", "cgroup_cpu_wait", Unit.NS, _WAIT, cause=cause) for cause in WAIT_CAUSES),
    histogram("cpu.wait_hist", "cgroup_cpu_wait_duration", "Distribution of run-queue waits", sum_column="cpu.wait_ns"),
    counter(
        "cpu.involuntary_switches",
        "cgroup_cpu_involuntary_switches",
        Unit.COUNT,
        "Switches away from a thread that could go on",
    ),
    counter(
        "cpu.blame_ns",
        "cgroup_cpu_blame",
        Unit.NS,
        "Run-queue wait of a victim while the culprit ran",
        table="cpu.blame",
    ),
    # what the kernel already counts for each cgroup
    counter("cpustat.usage_ns", "cgroup_cpu_usage", Unit.NS, "CPU time as the cpu controller accounts it"),
    counter("cpustat.periods", "cgroup_cpu_periods", Unit.COUNT, "Quota periods that passed"),
    counter("cpustat.throttled_periods", "cgroup_cpu_throttled_periods", Unit.COUNT, "Quota periods with throttling"),
    counter(
        "cpustat.throttled_ns",
        "cgroup_cpu_throttled",
        Unit.NS,
        "Time throttled by the cgroup's own quota, summed over CPUs",
    ),
    counter(
        "cpustat.forced_idle_ns",
        "cgroup_cpu_forced_idle",
        Unit.NS,
        "Time that the cgroup's tasks kept hardware threads of their cores idle under core scheduling, by schedstats",
    ),
    gauge("memstat.usage_bytes", "cgroup_memory_usage", Unit.BYTES, "Memory charged to the cgroup"),
    gauge("memstat.limit_bytes", "cgroup_memory_limit", Unit.BYTES, "Memory limit; absent where there is none"),
    gauge("memstat.file_bytes", "cgroup_memory_file", Unit.BYTES, "Page cache charged to the cgroup"),
    gauge(
        "memstat.without_cache_bytes",
        "cgroup_memory_without_cache",
        Unit.BYTES,
        "Anonymous, shared and locked memory of the cgroup: its usage without page cache",
    ),
    gauge("memstat.anon_bytes", "cgroup_memory_anon", Unit.BYTES, "Anonymous memory charged to the cgroup"),
    gauge(
        "numa.away_bytes",
        "cgroup_memory_away",
        Unit.BYTES,
        "Memory on NUMA nodes away from the CPUs that the cgroup runs on",
    ),
    gauge(
        "numa.placed_bytes", "cgroup_memory_placed", Unit.BYTES, "Memory of the cgroup of which the NUMA node is known"
    ),
    counter("memstat.refaults", "cgroup_memory_refaults", Unit.COUNT, "Pages faulted in again soon after eviction"),
    counter("memstat.major_faults", "cgroup_memory_major_faults", Unit.COUNT, "Page faults that needed IO"),
    *(
        counter(
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
    counter(
        "iostat.read_bytes", "cgroup_io", Unit.BYTES, "Block IO as the io controller accounts it", direction="read"
    ),
    counter(
        "iostat.write_bytes", "cgroup_io", Unit.BYTES, "Block IO as the io controller accounts it", direction="write"
    ),
    counter(
        "iostat.reads", "cgroup_io_operations", Unit.COUNT, "Block IO operations of the io controller", direction="read"
    ),
    counter(
        "iostat.writes",
        "cgroup_io_operations",
        Unit.COUNT,
        "Block IO operations of the io controller",
        direction="write",
    ),
    # the host
    *(
        counter(f"hostcpu.{kind}_ns", f"host_cpu_{kind}", Unit.NS, f"{text}, by CPU", table="host.cpu")
        for kind, text in (
            ("busy", "Time not idle"),
            ("irq", "Time in hard interrupts"),
            ("softirq", "Time in soft interrupts"),
            ("steal", "Time the hypervisor ran another guest"),
        )
    ),
    *(
        counter(f"hostwide.{kind}_ns", f"host_cpus_{kind}", Unit.NS, f"{text}, of all CPUs", table="host")
        for kind, text in (("busy", "Time not idle"), ("steal", "Time the hypervisor ran another guest"))
    ),
    gauge("hostwide.cpus", "host_cpus", Unit.COUNT, "CPUs that are online", table="host"),
    gauge("hostwide.memory_total_bytes", "host_memory_total", Unit.BYTES, "Memory of the host", table="host"),
    gauge(
        "hostwide.memory_available_bytes",
        "host_memory_available",
        Unit.BYTES,
        "Memory available without swapping",
        table="host",
    ),
    gauge("hostwide.memory_free_bytes", "host_memory_free", Unit.BYTES, "Memory that holds nothing", table="host"),
    counter(
        "hostwide.kswapd_steals", "host_kswapd_reclaimed_pages", Unit.COUNT, "Pages reclaimed by kswapd", table="host"
    ),
    counter(
        "hostwide.direct_reclaims",
        "host_direct_reclaims",
        Unit.COUNT,
        "Direct reclaims in the normal zone",
        table="host",
    ),
    *(
        counter(
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
    *(
        counter(
            f"kernelwork.{work}_ns",
            "host_kernel_threads",
            Unit.NS,
            "CPU time of the kernel's own threads, by what they do",
            table="host",
            work=work,
        )
        for work in KERNEL_WORK
    ),
    # the agent itself
    counter("agent.cpu_ns", "agent_cpu", Unit.NS, "CPU time of the agent", table="host"),
    gauge("agent.rss_bytes", "agent_resident", Unit.BYTES, "Resident memory of the agent", table="host"),
    gauge("agent.tick_ns", "agent_tick", Unit.NS, "Duration of the last tick", table="host"),
    gauge("agent.cgroups", "agent_cgroups", Unit.COUNT, "Cgroups watched", table="host"),
    gauge(
        "agent.cgroups_passed_over",
        "agent_cgroups_passed_over",
        Unit.COUNT,
        "Cgroups below another user's directory beyond the 128 that are told apart",
        table="host",
    ),
    # the source of pods
    gauge("pods.count", "agent_pods", Unit.COUNT, "Pods of the node in the table of pods", table="host"),
    gauge(
        "pods.containers", "agent_pod_containers", Unit.COUNT, "Running containers in the table of pods", table="host"
    ),
    gauge(
        "pods.unplaced",
        "agent_pod_containers_unplaced",
        Unit.COUNT,
        "Running containers without a cgroup where the kubelet places their pod",
        table="host",
    ),
    gauge(
        "pods.unknown",
        "agent_pod_containers_unknown",
        Unit.COUNT,
        "Containers of the runtime whose pod is not listed",
        table="host",
    ),
    gauge(
        "pods.problems",
        "agent_pod_problems",
        Unit.COUNT,
        "Pods with facts that are missing or contradict",
        table="host",
    ),
    gauge("pods.age_seconds", "agent_pods_age", Unit.SECONDS, "Age of the newest answer about pods", table="host"),
    *(
        counter(
            f"pods.{server}_requests",
            "agent_pod_source_requests",
            Unit.COUNT,
            "Requests of the source of pods",
            table="host",
            server=server,
        )
        for server in ("kubelet", "apiserver", "runtime", "pod_resources")
    ),
    counter("pods.relists", "agent_pod_relists", Unit.COUNT, "Full reads of the pods", table="host"),
    # the close look
    gauge(
        "triage.budget_cores",
        "triage_budget",
        Unit.CORES,
        "CPU budget of the programs of probes with a focus",
        table="host",
    ),
    gauge(
        "triage.used_cores",
        "triage_used",
        Unit.CORES,
        "CPU that the programs of probes with a focus used when last measured",
        table="host",
    ),
    gauge(
        "triage.focused", "triage_focused_cgroups", Unit.COUNT, "Cgroups in the focus of expensive probes", table="host"
    ),
    gauge(
        "triage.level",
        "triage_level",
        Unit.COUNT,
        "Focus of expensive probes: 0 everything, 1 rotation, 2 suspects, 3 worst, 4 nothing",
        table="host",
    ),
    counter(
        "triage.shed_ticks",
        "triage_shed_ticks",
        Unit.COUNT,
        "Ticks in which the focus was reduced to keep the CPU budget",
        table="host",
    ),
    # memory
    *(
        counter(f"memory.stall_{cause}_ns", "cgroup_memory_stall", Unit.NS, _STALL, cause=cause)
        for cause in MEMORY_CAUSES
    ),
    *(
        counter(
            f"memory.stall_{cause}_count", "cgroup_memory_stalls", Unit.COUNT, "Memory stalls that ended", cause=cause
        )
        for cause in MEMORY_CAUSES
    ),
    *(
        histogram(
            f"memory.stall_{cause}_hist",
            "cgroup_memory_stall_duration",
            "Distribution of memory stalls, by cause",
            sum_column=f"memory.stall_{cause}_ns",
            cause=cause,
        )
        for cause in MEMORY_CAUSES
    ),
    counter(
        "memory.stall_global_self_ns",
        "cgroup_memory_stall_global_self",
        Unit.NS,
        "Part of the global memory stall owed to the cgroup's own allocations",
    ),
    counter(
        "memory.pressure_pages",
        "cgroup_memory_pressure_pages",
        Unit.COUNT,
        "Pages the cgroup took while the node was short of memory",
    ),
    counter(
        "memory.oom_kills", "cgroup_memory_oom_kills", Unit.COUNT, "Processes of the cgroup killed for lack of memory"
    ),
    counter(
        "memory.blame_ns",
        "cgroup_memory_blame",
        Unit.NS,
        "Global memory stall of a victim by who took pages meanwhile",
        table="memory.blame",
    ),
    counter("memory.kswapd_wakes", "host_kswapd_wakes", Unit.COUNT, "Runs of background reclaim", table="host"),
    # blockio
    counter("blockio.queue_ns", "cgroup_blockio_queue", Unit.NS, "Time block IO waited to be issued to its disk"),
    counter("blockio.device_ns", "cgroup_blockio_device", Unit.NS, "Time block IO was with its disk"),
    counter("blockio.throttle_ns", "cgroup_blockio_throttle", Unit.NS, "Time block IO was held back by a limit"),
    counter(
        "blockio.excess_ns",
        "cgroup_blockio_device_excess",
        Unit.NS,
        "Part of the disk time beyond what such IO takes with nothing ahead of it",
    ),
    counter(
        "blockio.self_ns",
        "cgroup_blockio_self",
        Unit.NS,
        "Part of queue and excess time with only own IO ahead, or none",
    ),
    counter(
        "blockio.stalled_ns",
        "cgroup_blockio_stalled",
        Unit.NS,
        "Time block IO has been outstanding beyond a second on a disk that ended none meanwhile",
    ),
    counter("blockio.ios", "cgroup_blockio_requests", Unit.COUNT, "Block IO requests that ended"),
    counter(
        "blockio.host_ios",
        "host_blockio_requests",
        Unit.COUNT,
        "Block IO requests that ended, of all cgroups and of the kernel's own threads",
        table="host",
    ),
    counter(
        "blockio.host_bytes",
        "host_blockio",
        Unit.BYTES,
        "Bytes read from disks and written to them, by all cgroups and by the kernel's own threads",
        table="host",
    ),
    counter("blockio.read_bytes", "cgroup_blockio_read", Unit.BYTES, "Bytes read from disks"),
    counter("blockio.write_bytes", "cgroup_blockio_written", Unit.BYTES, "Bytes written to disks"),
    counter(
        "blockio.swapped_bytes",
        "cgroup_blockio_swapped",
        Unit.BYTES,
        "Bytes that the kernel wrote to swap while the node was short, by shares of the pages taken then",
    ),
    histogram(
        "blockio.queue_hist",
        "cgroup_blockio_queue_duration",
        "Distribution of block IO's wait to be issued",
        sum_column="blockio.queue_ns",
    ),
    histogram(
        "blockio.device_hist",
        "cgroup_blockio_device_duration",
        "Distribution of block IO's disk time",
        sum_column="blockio.device_ns",
    ),
    gauge("blockio.inflight", "", Unit.COUNT, "Block IOs queued or with the disk now", table="blockio.device"),
    counter(
        "blockio.blame_ns",
        "cgroup_blockio_blame",
        Unit.NS,
        "Queue and excess disk time of a victim by whose IO was ahead",
        table="blockio.blame",
    ),
    # turnaround
    counter("turnaround.requests", "cgroup_requests", Unit.COUNT, "Requests the cgroup answered on its TCP sockets"),
    counter("turnaround.sum_ns", "cgroup_turnaround", Unit.NS, "Time from requests' arrival to their first answer"),
    histogram(
        "turnaround.hist",
        "cgroup_turnaround_duration",
        "Distribution of request turnarounds",
        sum_column="turnaround.sum_ns",
    ),
    # throttle
    counter(
        "throttle.throttled_ns",
        "cgroup_cpu_throttle_episode_time",
        Unit.NS,
        "Time queues were held back by the cgroup's own quota, by episodes that ended, summed over CPUs",
    ),
    counter(
        "throttle.episodes", "cgroup_cpu_throttle_episodes", Unit.COUNT, "Throttle episodes of single CPUs' queues"
    ),
    histogram(
        "throttle.hist",
        "cgroup_cpu_throttle_duration",
        "Distribution of throttle episodes that ended, of single CPUs' queues",
        sum_column="throttle.throttled_ns",
    ),
    # pmu
    counter("pmu.cycles", "cgroup_cpu_cycles", Unit.COUNT, "CPU cycles of the cgroup, scaled for multiplexing"),
    counter(
        "pmu.instructions", "cgroup_instructions", Unit.COUNT, "Instructions of the cgroup, scaled for multiplexing"
    ),
    counter(
        "pmu.llc_references", "cgroup_llc_references", Unit.COUNT, "Accesses of the cgroup to the last-level cache"
    ),
    counter(
        "pmu.llc_misses", "cgroup_llc_misses", Unit.COUNT, "Accesses of the cgroup that missed the last-level cache"
    ),
    counter(
        "pmu.enabled_ns", "cgroup_pmu_enabled", Unit.NS, "Time in which hardware events were wanted for the cgroup"
    ),
    counter("pmu.running_ns", "cgroup_pmu_running", Unit.NS, "Time in which all of them had a hardware counter"),
    # interrupts
    counter("cpu.irq_ns", "cgroup_cpu_interrupted", Unit.NS, _INTERRUPTED, kind="irq"),
    counter("cpu.softirq_ns", "cgroup_cpu_interrupted", Unit.NS, _INTERRUPTED, kind="softirq"),
    counter("irq.vector_ns", "host_interrupt", Unit.NS, "Time in interrupts, by vector", table="irq.vector"),
    counter("irq.vector_count", "host_interrupts", Unit.COUNT, "Interrupts handled, by vector", table="irq.vector"),
    counter(
        "irq.vector_stolen_ns",
        "host_interrupt_stolen",
        Unit.NS,
        "Time in interrupts that came on top of a cgroup's task, by vector",
        table="irq.vector",
    ),
    # smt
    counter("cpu.smt_foreign_ns", "cgroup_smt_foreign", Unit.NS, "Time another cgroup ran on the core's other thread"),
    counter(
        "smt.blame_ns",
        "cgroup_smt_blame",
        Unit.NS,
        "Time the culprit ran on the other thread of the victim's core",
        table="smt.blame",
    ),
    # network
    counter("net.tcp_retransmits", "cgroup_tcp_retransmits", Unit.COUNT, "TCP segments sent again"),
    counter("net.drops", "cgroup_net_drops", Unit.COUNT, "Packets dropped on the way from or to the cgroup's sockets"),
    counter(
        "net.softirq_rx_ns", "cgroup_net_receive_interrupt", Unit.NS, "Receive interrupt time of the cgroup's packets"
    ),
    counter(
        "net.softirq_own_ns",
        "cgroup_net_own_interrupt",
        Unit.NS,
        "Receive interrupt time on top of the cgroup's running threads for packets it sent or received itself",
    ),
    counter(
        "net.softirq_deferred_ns",
        "cgroup_net_deferred_interrupt",
        Unit.NS,
        "Receive interrupt time that kernel threads took for packets that the cgroup sent or received itself",
    ),
    counter(
        "net.backlog_delay_ns",
        "cgroup_net_backlog_wait",
        Unit.NS,
        "Time packets waited in a CPU's backlog to be received",
    ),
    counter("net.backlog_packets", "cgroup_net_backlog_packets", Unit.COUNT, "Packets that left a CPU's backlog"),
    counter("net.qdisc_delay_ns", "cgroup_net_send_queue_wait", Unit.NS, "Time packets waited in devices' send queues"),
    counter(
        "net.qdisc_self_ns",
        "cgroup_net_send_queue_self",
        Unit.NS,
        "Part of the wait in send queues with only own bytes ahead, or that the sender asked for",
    ),
    counter(
        "net.qdisc_packets", "cgroup_net_send_queue_packets", Unit.COUNT, "Packets that left a device's send queue"
    ),
    histogram(
        "net.qdisc_hist",
        "cgroup_net_send_queue_duration",
        "Distribution of waits in send queues",
        sum_column="net.qdisc_delay_ns",
    ),
    counter(
        "net.blame_ns",
        "cgroup_net_blame",
        Unit.NS,
        "Wait of a victim's packets in send queues by whose bytes were ahead",
        table="net.blame",
    ),
    # resctrl
    gauge("resctrl.llc_occupancy_bytes", "cgroup_llc_occupancy", Unit.BYTES, "Last-level cache the cgroup fills"),
    counter("resctrl.mbm_total_bytes", "cgroup_memory_traffic", Unit.BYTES, "Memory traffic of the cgroup"),
    counter(
        "resctrl.mbm_local_bytes",
        "cgroup_memory_local_traffic",
        Unit.BYTES,
        "Part of the memory traffic of the cgroup that stays on its NUMA node",
    ),
    gauge("resctrl.sampled", "cgroup_resctrl_sampled", Unit.RATIO, "1 where cgroups take turns on too few monitor ids"),
    gauge(
        "resctrl.group_llc_occupancy_bytes",
        "resctrl_group_llc_occupancy",
        Unit.BYTES,
        "Last-level cache a resctrl group fills",
        table="host.resctrl_group",
    ),
    counter(
        "resctrl.group_mbm_total_bytes",
        "resctrl_group_memory_traffic",
        Unit.BYTES,
        "Memory traffic of a resctrl group",
        table="host.resctrl_group",
    ),
    counter(
        "resctrl.group_mbm_local_bytes",
        "resctrl_group_memory_local_traffic",
        Unit.BYTES,
        "Part of the memory traffic of a resctrl group that stays on its NUMA node",
        table="host.resctrl_group",
    ),
)
"""The columns of this project. Names are unique."""

_registered: dict[str, Metric] = {metric.column: metric for metric in METRICS}
_owners: dict[str, str] = dict.fromkeys(_registered, "api/metrics.py")

BY_COLUMN: Mapping[str, Metric] = _registered
"""Every column by name: the table, then those that plugins registered."""


def register(metrics: Iterable[Metric], owner: str) -> None:
    """Add the columns that a plugin declares; the same ones of the same `owner` may be registered again.

    Raises PluginError for a column of another owner, and for a series that has another kind, table or other labels.
    """
    for metric in metrics:
        first = _owners.get(metric.column, owner)
        if first != owner:
            raise PluginError(f"{owner}: column {metric.column!r} is declared by {first} already; choose another name")
        for other in _registered.values():
            shape, others = ((each.kind, each.table, sorted(each.labels)) for each in (metric, other))
            if metric.family and metric.series == other.series and shape != others:
                place = f"{_owners[other.column]} ({other.column})"
                raise PluginError(f"{owner}: series {metric.series} of {metric.column!r} differs from that of {place}")
        _owners[metric.column] = owner
        _registered[metric.column] = metric
