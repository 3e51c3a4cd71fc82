"""Dashboards of the agents: nodes, workloads, culprits, actions, and the agents' own cost."""

from .board import Dashboard, Panel, Query, Variable
from .expressions import (
    BELOW_ROOT,
    BLAMED,
    BY_CULPRIT,
    CULPRIT,
    INSTANCES,
    OF_NODE,
    OF_POD,
    OF_VICTIM,
    PLACE,
    RATE,
    WHO,
    counted_once,
    one,
    quantile,
    rate,
    top,
)


def node() -> Dashboard:
    """One node."""
    pressure = rate("koord_host_pressure_seconds_total", OF_NODE + ',kind="some"', "resource")
    queue = "koord_host_cpu_wait_duration_seconds"
    return Dashboard(
        "koord-node",
        "Koord / Node",
        "Where the time of one node goes.",
        (
            (
                "CPU",
                (
                    Panel(
                        "Busy CPUs",
                        (
                            Query(rate("koord_host_cpu_busy_seconds_total", OF_NODE), "busy"),
                            Query(rate("koord_host_cpu_softirq_seconds_total", OF_NODE), "soft interrupts"),
                            Query(rate("koord_host_cpu_irq_seconds_total", OF_NODE), "interrupts"),
                            Query(rate("koord_host_cpu_steal_seconds_total", OF_NODE), "steal"),
                        ),
                        "cores",
                    ),
                    Panel(
                        "Run-queue wait",
                        tuple(Query(quantile(q, queue, OF_NODE), f"p{q * 100:g}") for q in (0.5, 0.99, 0.999)),
                        "s",
                        about="Distribution of the waits of runnable threads for a CPU.",
                        needs="cpu",
                    ),
                    Panel(
                        "CPU use by cgroup",
                        one(top(10, rate("koord_cgroup_cpu_usage_seconds_total", BELOW_ROOT, PLACE)), WHO),
                        "cores",
                        about="A cgroup's use has that of the cgroups in it: lines do not add up.",
                    ),
                    Panel(
                        "Lost to others, by cgroup",
                        one(
                            top(
                                10,
                                rate("koord_cgroup_cpu_wait_seconds_total", OF_NODE + ',cause="neighbour"', PLACE),
                            ),
                            WHO,
                        ),
                        "s",
                        needs="cpu",
                    ),
                ),
            ),
            (
                "Memory, disks and pressure",
                (
                    Panel(
                        "Memory",
                        (
                            Query(f"sum(koord_host_memory_total_bytes{{{OF_NODE}}})", "total"),
                            Query(f"sum(koord_host_memory_available_bytes{{{OF_NODE}}})", "available"),
                        ),
                        "bytes",
                    ),
                    Panel("Pressure", one(pressure, "{{resource}}"), "percentunit", about="PSI, kind some."),
                    Panel(
                        "Memory by cgroup",
                        one(top(10, f"sum by ({PLACE}) (koord_cgroup_memory_usage_bytes{{{BELOW_ROOT}}})"), WHO),
                        "bytes",
                    ),
                    Panel(
                        "Block IO by cgroup",
                        (
                            Query(
                                top(10, rate("koord_cgroup_blockio_read_bytes_total", OF_NODE, PLACE)), f"read {WHO}"
                            ),
                            Query(
                                top(10, rate("koord_cgroup_blockio_written_bytes_total", OF_NODE, PLACE)),
                                f"written {WHO}",
                            ),
                        ),
                        "Bps",
                        needs="blockio",
                    ),
                ),
            ),
            (
                "Verdicts and capabilities",
                (
                    Panel(
                        "Open verdicts",
                        one(f"koord_verdict_lost_seconds_per_second{{{OF_NODE}}}"),
                        "s",
                        "table",
                        about="Victim, cause and first culprit of each open verdict, with the seconds lost per second.",
                    ),
                    Panel("Capabilities", one(f"koord_capability{{{OF_NODE}}}"), "bool", "table"),
                ),
            ),
        ),
        (INSTANCES,),
        span="now-1h",
    )


_WORKLOAD = (
    Variable("namespace", "label_values(koord_cgroup_cpu_usage_seconds_total, namespace)"),
    Variable("pod", 'label_values(koord_cgroup_cpu_usage_seconds_total{namespace=~"$namespace"}, pod)'),
    Variable("cgroup", "label_values(koord_cgroup_cpu_usage_seconds_total, cgroup)"),
)


def workload() -> Dashboard:
    """The view of a victim."""
    turnaround = "koord_cgroup_turnaround_duration_seconds"
    stalls = OF_POD + ',kind="some"'
    wait = "koord_cgroup_cpu_wait_duration_seconds"
    blame = tuple(
        Query(top(10, rate(f"koord_cgroup_{what}_blame_seconds_total", OF_VICTIM, CULPRIT)), f"{what}: {BY_CULPRIT}")
        for what in BLAMED
    )
    return Dashboard(
        "koord-workload",
        "Koord / Workload",
        "A workload as a victim: what it lost, by what, to what.",
        (
            (
                "Requests",
                (
                    Panel(
                        "Turnaround",
                        tuple(Query(quantile(q, turnaround, OF_POD), f"p{q * 100:g}") for q in (0.5, 0.99)),
                        "s",
                        about="From a request's arrival on a TCP socket to the first byte of its answer. "
                        "What takes longer than 134 ms is told alike.",
                        needs="turnaround",
                    ),
                    Panel(
                        "Requests",
                        one(rate("koord_cgroup_requests_total", OF_POD), "requests"),
                        "reqps",
                        needs="turnaround",
                    ),
                    Panel(
                        "Harm",
                        (
                            Query(f"max(koord_harm_ratio{{{OF_POD}}})", "lost per second of progress"),
                            Query(f"max(koord_harm_low_ratio{{{OF_POD}}})", "lower end of 95 %"),
                            Query(f"max(koord_harm_high_ratio{{{OF_POD}}})", "upper end of 95 %"),
                        ),
                        "percentunit",
                    ),
                    Panel(
                        "Slower than usual at this load",
                        one(f"max(koord_turnaround_slowdown_ratio{{{OF_POD}}})", "slower by"),
                        "percentunit",
                        needs="turnaround",
                        only_faults=True,
                        about="Empty until the baseline of the workload is ready.",
                    ),
                ),
            ),
            (
                "CPU",
                (
                    Panel(
                        "Waits by cause",
                        one(rate("koord_cgroup_cpu_wait_seconds_total", OF_POD, "cause"), "{{cause}}"),
                        "s",
                        stacked=True,
                        needs="cpu",
                    ),
                    Panel(
                        "Wait for a CPU",
                        tuple(Query(quantile(q, wait, OF_POD), f"p{q * 100:g}") for q in (0.5, 0.99)),
                        "s",
                        needs="cpu",
                    ),
                    Panel(
                        "Throttled by a quota",
                        one(rate("koord_cgroup_cpu_throttled_seconds_total", OF_POD), "own quota"),
                        "s",
                        width=6,
                    ),
                    Panel(
                        "Throttled periods",
                        one(rate("koord_cgroup_cpu_throttled_periods_total", OF_POD), "periods"),
                        "ops",
                        width=6,
                    ),
                    Panel(
                        "Use",
                        one(rate("koord_cgroup_cpu_usage_seconds_total", OF_POD, PLACE), WHO),
                        "cores",
                    ),
                ),
            ),
            (
                "Memory and disks",
                (
                    Panel(
                        "Memory",
                        (
                            Query(f"sum({counted_once('koord_cgroup_memory_usage_bytes', OF_POD)})", "charged"),
                            Query(f"sum({counted_once('koord_cgroup_memory_anon_bytes', OF_POD)})", "anonymous"),
                            Query(f"sum({counted_once('koord_cgroup_memory_file_bytes', OF_POD)})", "page cache"),
                        ),
                        "bytes",
                    ),
                    Panel(
                        "Memory stalls by cause",
                        one(rate("koord_cgroup_memory_stall_seconds_total", OF_POD, "cause"), "{{cause}}"),
                        "s",
                        stacked=True,
                        needs="memory",
                        about="Time that threads spent to find memory.",
                    ),
                    Panel(
                        "Block IO time",
                        (
                            Query(rate("koord_cgroup_blockio_queue_seconds_total", OF_POD), "queued"),
                            Query(rate("koord_cgroup_blockio_device_seconds_total", OF_POD), "with the disk"),
                            Query(rate("koord_cgroup_blockio_device_excess_seconds_total", OF_POD), "beyond its usual"),
                        ),
                        "s",
                        needs="blockio",
                    ),
                    Panel(
                        "Pressure",
                        one(
                            f"max by (resource) (rate(koord_cgroup_pressure_seconds_total{{{stalls}}}{RATE}))",
                            "{{resource}}",
                        ),
                        "percentunit",
                        needs="pressure",
                    ),
                ),
            ),
            (
                "Culprits",
                (
                    Panel(
                        "Time lost, by culprit",
                        blame,
                        "s",
                        width=24,
                        needs="cpu",
                    ),
                ),
            ),
        ),
        _WORKLOAD,
        span="now-1h",
    )


def culprits() -> Dashboard:
    """Who costs the others time."""
    names = {"cpu": "Run queues", "memory": "Memory reclaim", "blockio": "Disks"}
    panels = tuple(
        Panel(
            f"{title}: time that others lost to it",
            one(top(10, rate(f"koord_cgroup_{what}_blame_seconds_total", OF_NODE, CULPRIT)), BY_CULPRIT),
            "s",
            stacked=True,
            needs=what,
            only_faults=what == "memory",
            about="Empty while the node has memory." if what == "memory" else "",
        )
        for what, title in names.items()
    )
    best_effort = OF_NODE + ',qos="BE"'
    used = counted_once("koord_cgroup_cpu_usage_seconds_total", best_effort, RATE)
    owners = f"sum by (namespace, name) ({used})"
    held = counted_once("koord_cgroup_memory_usage_bytes", best_effort)
    return Dashboard(
        "koord-culprits",
        "Koord / Culprits",
        "Work that costs others time, and what best-effort work gets.",
        (
            ("Blame", panels),
            (
                "Owners of best-effort work",
                (
                    Panel("CPU that it got", one(top(15, owners), "{{namespace}} {{name}}"), "cores", stacked=True),
                    Panel(
                        "CPU that it waited for",
                        one(
                            top(
                                15,
                                rate("koord_cgroup_cpu_wait_seconds_total", OF_NODE + ',qos="BE"', "namespace, name"),
                            ),
                            "{{namespace}} {{name}}",
                        ),
                        "s",
                        needs="cpu",
                        about="Runnable, and not running: what suppression and its neighbours cost it.",
                    ),
                    Panel(
                        "Memory that it holds",
                        one(
                            f"sum by (namespace, name) ({held})",
                            "{{namespace}} {{name}}",
                        ),
                        "bytes",
                        stacked=True,
                    ),
                    Panel(
                        "Not acted upon, by reason",
                        one(rate("koord_culprits_skipped_total", OF_NODE, "reason"), "{{reason}}"),
                        "ops",
                        only_faults=True,
                    ),
                ),
            ),
        ),
        (INSTANCES,),
        span="now-1h",
    )


def actions() -> Dashboard:
    """What was done, and what it changed."""
    decided = rate("koord_actions_total", OF_NODE, "strategy, knob, outcome, dry_run")
    return Dashboard(
        "koord-actions",
        "Koord / Actions",
        "Actions and their effect: a rung is kept if the victim recovered, else it is taken back.",
        (
            (
                "Response",
                (
                    Panel(
                        "Rungs in effect",
                        one(
                            f"sum by (resource, rung) (koord_response_rungs_active{{{OF_NODE}}})",
                            "{{resource}} {{rung}}",
                        ),
                    ),
                    Panel(
                        "Steps",
                        one(
                            f"sum by (resource, rung, step) (increase(koord_response_steps_total{{{OF_NODE}}}{RATE}))",
                            "{{resource}} {{rung}}: {{step}}",
                        ),
                        stacked=True,
                    ),
                    Panel(
                        "Loss beside action",
                        (
                            Query(
                                f"sum(koord_verdict_lost_seconds_per_second{{{OF_NODE}}}) or vector(0)",
                                "lost per second",
                            ),
                            Query(f"sum(koord_settings_active{{{OF_NODE}}}) or vector(0)", "settings in effect"),
                        ),
                        about="The loss should fall when settings take effect, and stay low when they are lifted.",
                    ),
                    Panel(
                        "Tripwire",
                        one(rate("koord_tripwire_trips_total", OF_NODE, "outcome"), "{{outcome}}"),
                        "ops",
                        only_faults=True,
                        about="The kernel's own alarm: a cgroup lost more than its budget between two ticks.",
                    ),
                ),
            ),
            (
                "Enforcer",
                (
                    Panel("Decisions", one(decided, "{{strategy}} {{knob}} {{outcome}} dry_run={{dry_run}}"), "ops"),
                    Panel(
                        "Settings in effect",
                        one(f"sum by (strategy, knob) (koord_settings_active{{{OF_NODE}}})", "{{strategy}} {{knob}}"),
                        stacked=True,
                    ),
                    Panel(
                        "Intents of strategies",
                        one(
                            f"sum by (strategy, result) (koord_strategy_intents{{{OF_NODE}}})",
                            "{{strategy}} {{result}}",
                        ),
                    ),
                    Panel(
                        "Protocol state",
                        one(f"sum by (strategy, knob) (koord_protocol_settings{{{OF_NODE}}})", "{{strategy}} {{knob}}"),
                        stacked=True,
                        only_faults=True,
                        about="Settings that follow pods; empty on hosts without Kubernetes.",
                    ),
                ),
            ),
        ),
        (INSTANCES,),
        span="now-1h",
    )


def agent() -> Dashboard:
    """What the agent itself costs."""
    return Dashboard(
        "koord-agent",
        "Koord / Agent",
        "The agent's own cost and health.",
        (
            (
                "Cost",
                (
                    Panel(
                        "CPU",
                        one(rate("koord_agent_cpu_seconds_total", OF_NODE, "instance"), "{{instance}}"),
                        "percentunit",
                        about="Share of one CPU.",
                    ),
                    Panel("Memory", one(f"koord_agent_resident_bytes{{{OF_NODE}}}", "{{instance}}"), "bytes"),
                    Panel("Duration of a tick", one(f"koord_agent_tick_seconds{{{OF_NODE}}}", "{{instance}}"), "s"),
                    Panel("Cgroups", one(f"koord_agent_cgroups{{{OF_NODE}}}", "{{instance}}")),
                    Panel(
                        "Time in BPF programs",
                        one(rate("koord_bpf_run_seconds_total", OF_NODE, "probe"), "{{probe}}"),
                        "percentunit",
                        only_faults=True,
                        about="Filled while kernel.bpf_stats_enabled is on.",
                    ),
                    Panel("Judging", one(rate("koord_judge_run_seconds_total", OF_NODE), "judging"), "percentunit"),
                ),
            ),
            (
                "Health",
                (
                    Panel(
                        "Lost events",
                        one(
                            rate("koord_lost_events_total", OF_NODE + ',source!="net.unkeyed_rx_ns"', "source"),
                            "{{source}}",
                        ),
                        "ops",
                        about="Without net.unkeyed_rx_ns, which counts nanoseconds.",
                    ),
                    Panel(
                        "Failures",
                        (
                            Query(rate("koord_judge_failures_total", OF_NODE), "judging"),
                            Query(rate("koord_strategy_failures_total", OF_NODE, "strategy"), "strategy {{strategy}}"),
                        ),
                        "ops",
                    ),
                    Panel("Baselines", one(f"sum by (state) (koord_baseline_cells{{{OF_NODE}}})", "{{state}}")),
                    Panel("Missing capabilities", one(f"koord_capability{{{OF_NODE}}} == 0"), "short", "table"),
                ),
            ),
        ),
        (INSTANCES,),
        span="now-6h",
    )
