"""Dashboards of a cluster: all nodes together, scheduler, manager."""

from .board import Dashboard, Panel, Query
from .expressions import PLACE, RATE, WHO, one, quantile, rate, top


def cluster() -> Dashboard:
    """All nodes together."""
    busy, cpus = "koord_host_cpu_busy_seconds_total", "count(koord_host_cpu_busy_seconds_total)"
    free = "sum(koord_host_memory_available_bytes) / sum(koord_host_memory_total_bytes)"
    by_class = rate("koord_priority_cpu_usage_seconds_total", by="priority")
    parts = {
        "Prod": "What services and other work of full price use of all CPUs.",
        "Batch": "What batch work uses; the day's mean rises with it.",
        "Mid": "What mid work, which lives on what prod reserves and leaves, uses.",
    }
    return Dashboard(
        "koord-cluster",
        "Koord / Cluster",
        "Use of all nodes, and the loss that it costs.",
        (
            (
                "Use",
                (
                    Panel(
                        "All nodes, mean of a day",
                        one(f"avg_over_time((sum(rate({busy}[5m])) / {cpus})[1d:1m])"),
                        "percentunit",
                        "stat",
                        8,
                        6,
                        "The number that co-location exists to raise: busy CPU time of a day over all CPU time.",
                        most=1,
                    ),
                    Panel(
                        "Total, now",
                        one(f"{rate(busy)} / {cpus}"),
                        "percentunit",
                        "stat",
                        4,
                        6,
                        "Busy CPU time over all CPU time.",
                        most=1,
                    ),
                    *(
                        Panel(
                            title,
                            one(
                                f"{rate('koord_priority_cpu_usage_seconds_total', _is(title.lower()))} / {cpus}",
                            ),
                            "percentunit",
                            "stat",
                            4,
                            6,
                            about,
                            most=1,
                        )
                        for title, about in parts.items()
                    ),
                    Panel(
                        "CPU and memory",
                        (Query(f"{rate(busy)} / {cpus}", "CPU"), Query(f"1 - {free}", "memory")),
                        "percentunit",
                        most=1,
                        about="Share in use over all nodes.",
                    ),
                    Panel(
                        "CPU by priority class",
                        one(by_class, "{{priority}}"),
                        "cores",
                        stacked=True,
                        about="Batch and mid work should fill what prod leaves; system is the nodes' own programs.",
                    ),
                ),
            ),
            (
                "Loss",
                (
                    Panel(
                        "Lost by latency-sensitive work",
                        one("sum(koord_verdict_lost_seconds_per_second) or vector(0)"),
                        "s",
                        "stat",
                        8,
                        5,
                        "Seconds that victims lose in each second, over all open verdicts.",
                    ),
                    Panel("Nodes", one("count(koord_build_info)"), "short", "stat", 5, 5),
                    Panel("Open verdicts", one("sum(koord_verdicts_open) or vector(0)"), "short", "stat", 5, 5),
                    Panel("Actions in effect", one("sum(koord_settings_active) or vector(0)"), "short", "stat", 6, 5),
                    Panel(
                        "Seconds lost per second, by resource",
                        one(
                            "sum by (resource, cause) (koord_verdict_lost_seconds_per_second)", "{{resource}} {{cause}}"
                        ),
                        "s",
                        stacked=True,
                    ),
                    Panel(
                        "Verdicts opened",
                        one(rate("koord_verdicts_total", by="resource, cause"), "{{resource}} {{cause}}"),
                        "ops",
                        stacked=True,
                    ),
                    Panel(
                        "Nodes by loss",
                        one(top(10, "sum by (instance) (koord_verdict_lost_seconds_per_second)"), "{{instance}}"),
                        "s",
                        "bargauge",
                    ),
                    Panel(
                        "Victims",
                        one(top(10, f"sum by ({PLACE}) (koord_harm_ratio)"), WHO),
                        "percentunit",
                        "bargauge",
                        about="Seconds lost to others per second of progress.",
                    ),
                ),
            ),
        ),
        span="now-24h",
    )


def _is(priority: str) -> str:
    return f'priority="{priority}"'


def scheduler() -> Dashboard:
    """The scheduler, under the stock scheduler's names."""
    attempt, waited = "scheduler_scheduling_attempt_duration_seconds", "scheduler_pod_scheduling_sli_duration_seconds"
    return Dashboard(
        "koord-scheduler",
        "Koord / Scheduler",
        "Attempts, queues and waiting pods.",
        (
            (
                "Pods",
                (
                    Panel("Attempts", one(rate("scheduler_schedule_attempts_total", by="result"), "{{result}}"), "ops"),
                    Panel("Pending", one("sum by (queue) (scheduler_pending_pods)", "{{queue}}"), stacked=True),
                    Panel(
                        "Creation to binding",
                        tuple(Query(quantile(q, waited), f"p{q * 100:g}") for q in (0.5, 0.99)),
                        "s",
                    ),
                    Panel(
                        "Time of an attempt",
                        tuple(Query(quantile(q, attempt), f"p{q * 100:g}") for q in (0.5, 0.99)),
                        "s",
                    ),
                    Panel(
                        "Unschedulable, by plugin",
                        one("sum by (plugin) (scheduler_unschedulable_pods)", "{{plugin}}"),
                        stacked=True,
                    ),
                    Panel("Wait at Permit", one("sum(scheduler_permit_waiting_pods)", "pods")),
                ),
            ),
            (
                "State and faults",
                (
                    Panel("Cache", one("sum by (type) (scheduler_scheduler_cache_size)", "{{type}}")),
                    Panel("Preemptions", one(rate("scheduler_preemption_attempts_total"), "attempts"), "ops"),
                    Panel(
                        "Faults",
                        (
                            Query(rate("koord_scheduler_faults_total", by="where"), "{{where}}"),
                            Query(rate("koord_scheduler_failed_writes_total", by="verb"), "write: {{verb}}"),
                        ),
                        "ops",
                        only_faults=True,
                    ),
                ),
            ),
        ),
        span="now-1h",
    )


def manager() -> Dashboard:
    """Controllers and webhooks."""
    plan = "koord_manager_plan_duration_seconds"
    return Dashboard(
        "koord-manager",
        "Koord / Manager",
        "Controllers: what they planned, wrote and held back.",
        (
            (
                "Controllers",
                (
                    Panel(
                        "Writes",
                        one(
                            f"sum by (controller, kind, result) (increase(koord_manager_writes_total{RATE}))",
                            "{{controller}} {{kind}} {{result}}",
                        ),
                        stacked=True,
                    ),
                    Panel("Held back", one("sum by (controller) (koord_manager_objects_due)", "{{controller}}")),
                    Panel("Time of a plan, p99", one(quantile(0.99, plan, by="controller"), "{{controller}}"), "s"),
                    Panel("Objects known", one("sum by (kind) (koord_manager_objects)", "{{kind}}")),
                    Panel("Leader", one("sum(koord_manager_leading)"), "short", "stat", 6, 6),
                    Panel(
                        "API server silent for",
                        one("max(koord_manager_api_server_silent_seconds)"),
                        "s",
                        "stat",
                        6,
                        6,
                    ),
                    Panel(
                        "Requests to the API server",
                        one(rate("koord_manager_requests_total", by="method, code"), "{{method}} {{code}}"),
                        "reqps",
                    ),
                    Panel(
                        "Warnings and failures",
                        (
                            Query(
                                rate("koord_manager_warnings_total", by="controller, reason"),
                                "{{controller}}: {{reason}}",
                            ),
                            Query(rate("koord_manager_plan_failures_total", by="controller"), "{{controller}} failed"),
                        ),
                        "ops",
                        only_faults=True,
                    ),
                    Panel(
                        "Webhooks, p99",
                        one(quantile(0.99, "koord_manager_webhook_duration_seconds", by="path"), "{{path}}"),
                        "s",
                        only_faults=True,
                        about="Empty where the webhooks are off.",
                    ),
                ),
            ),
        ),
        span="now-6h",
    )
