"""Dashboards of what is lent: owners of batch work, and overcommit with what it yields."""

from .board import Dashboard, Panel, Query, Variable
from .expressions import RATE, counted_once, one, rate, top

_OF_OWNER = 'namespace=~"$namespace"'
_OWNERS = Variable("namespace", "label_values(koord_manager_owner_cpu_cores, namespace)")
_BEST_EFFORT = _OF_OWNER + ',qos="BE"'
_OWNER_CPU, _OWNER_MEMORY = "koord_manager_owner_cpu_cores", "koord_manager_owner_memory_bytes"
_CPU, _MEMORY = "koord_manager_cluster_cpu_cores", "koord_manager_cluster_memory_bytes"
_HELD_BACK = _BEST_EFFORT + ',cause=~"own_quota|ancestor_quota"'

_NOT_EVICTED = f'increase(koord_actions_total{{knob="evict",outcome!~"evict.*|terminated|killed|gone"}}{RATE})'
_EVICTED = f"increase(koord_evictions_total{{{_OF_OWNER}}}{RATE})"


def _state(series: str, state: str, more: str = "", by: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f'sum{grouped} ({series}{{state="{state}"{"," if more else ""}{more}}})'


def _asked(series: str, by: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f'sum{grouped} ({series}{{state=~"requested|pending",{_OF_OWNER}}})'


def owners() -> Dashboard:
    """What owners of batch work asked for, were offered, got and lost."""
    got = f"sum by (namespace, name) ({counted_once('koord_cgroup_cpu_usage_seconds_total', _BEST_EFFORT, RATE)})"
    return Dashboard(
        "koord-owners",
        "Koord / Owners of batch work",
        "Mid, batch and free work by its owner, a namespace: asked, offered, got, suppressed, evicted and why.",
        (
            (
                "Asked, offered and got",
                (
                    Panel(
                        "CPU: asked, offered, got",
                        (
                            Query(_asked(_OWNER_CPU), "asked"),
                            Query(_state(_CPU, "allocatable", 'priority=~"mid|batch"'), "offered by nodes"),
                            Query(_state(_OWNER_CPU, "requested", _OF_OWNER), "placed"),
                            Query(_state(_OWNER_CPU, "used", _OF_OWNER), "got"),
                        ),
                        "cores",
                        about="Asked counts pods with and without a node; nodes publish what they offer.",
                    ),
                    Panel(
                        "Memory: asked, offered, got",
                        (
                            Query(_asked(_OWNER_MEMORY), "asked"),
                            Query(_state(_MEMORY, "allocatable", 'priority=~"mid|batch"'), "offered by nodes"),
                            Query(_state(_OWNER_MEMORY, "requested", _OF_OWNER), "placed"),
                            Query(_state(_OWNER_MEMORY, "used", _OF_OWNER), "got"),
                        ),
                        "bytes",
                    ),
                    Panel(
                        "Asked, by owner",
                        one(top(15, _asked(_OWNER_CPU, "namespace, priority")), "{{namespace}} {{priority}}"),
                        "cores",
                        "bargauge",
                        8,
                    ),
                    Panel(
                        "Waits for a node, by owner",
                        one(
                            _state(_OWNER_CPU, "pending", _OF_OWNER, "namespace, priority"),
                            "{{namespace}} {{priority}}",
                        ),
                        "cores",
                        "bargauge",
                        8,
                    ),
                    Panel(
                        "Got, by owner",
                        one(
                            top(15, _state(_OWNER_CPU, "used", _OF_OWNER, "namespace, priority")),
                            "{{namespace}} {{priority}}",
                        ),
                        "cores",
                        "bargauge",
                        8,
                    ),
                ),
            ),
            (
                "Suppressed",
                (
                    Panel(
                        "CPU that best-effort work may use, of all nodes",
                        (
                            Query("sum(koord_batch_cpu_allowed_cores)", "allowed"),
                            Query(rate("koord_priority_cpu_usage_seconds_total", 'priority=~"batch|free"'), "used"),
                        ),
                        "cores",
                        about="Where allowed falls below the nodes' CPUs, suppression is in effect.",
                    ),
                    Panel(
                        "Runnable and not running, by cause",
                        one(rate("koord_cgroup_cpu_wait_seconds_total", _BEST_EFFORT, "cause"), "{{cause}}"),
                        "s",
                        stacked=True,
                        needs="cpu",
                        about="own_quota and ancestor_quota are suppression; neighbour is work that goes first.",
                    ),
                    Panel(
                        "CPU that each owner got",
                        one(top(15, got), "{{namespace}} {{name}}"),
                        "cores",
                        stacked=True,
                        about="As the agents measure it, in each second.",
                    ),
                    Panel(
                        "Held back by a quota, by owner",
                        one(
                            top(15, rate("koord_cgroup_cpu_wait_seconds_total", _HELD_BACK, "namespace, name")),
                            "{{namespace}} {{name}}",
                        ),
                        "s",
                        stacked=True,
                        needs="throttle",
                        only_faults=True,
                        about="Empty while nothing is suppressed.",
                    ),
                ),
            ),
            (
                "Evicted, and why",
                (
                    Panel(
                        "Evicted by nodes",
                        one(
                            f"sum by (namespace, name, strategy) ({_EVICTED})",
                            "{{namespace}} {{name}}: {{strategy}}",
                        ),
                        stacked=True,
                        only_faults=True,
                        about="The strategy says why, as memory_evict or cpu_evict. Empty while none was evicted.",
                    ),
                    Panel(
                        "Moved by the descheduler",
                        one(
                            f"sum by (namespace, strategy, result) (descheduler_pods_evicted{{{_OF_OWNER}}})",
                            "{{namespace}} {{strategy}}: {{result}}",
                        ),
                        kind="bargauge",
                        about="The plugin that chose the pods says why.",
                    ),
                    Panel(
                        "Not evicted, by reason",
                        one(
                            f"sum by (strategy, outcome) ({_NOT_EVICTED})",
                            "{{strategy}} {{outcome}}",
                        ),
                        only_faults=True,
                        about="Decisions about evictions: disruption budgets, cooldown, refusals of the API server.",
                    ),
                    Panel(
                        "Why pods wait for a node",
                        one("sum by (plugin) (scheduler_unschedulable_pods)", "{{plugin}}"),
                        stacked=True,
                    ),
                ),
            ),
        ),
        (_OWNERS,),
        span="now-6h",
    )


def overcommit() -> Dashboard:
    """What nodes have, what is sold of it twice, and what is used."""
    own = _state(_CPU, "allocatable", 'priority="prod"')
    lent = _state(_CPU, "allocatable", 'priority=~"mid|batch"')
    taken = f'sum({_CPU}{{state="requested"}})'
    used = f'sum({_CPU}{{state="used"}})'
    busy, cpus = "koord_host_cpu_busy_seconds_total", "count(koord_host_cpu_busy_seconds_total)"
    memory = "1 - sum(koord_host_memory_available_bytes) / sum(koord_host_memory_total_bytes)"
    own_memory = _state(_MEMORY, "allocatable", 'priority="prod"')
    return Dashboard(
        "koord-overcommit",
        "Koord / Overcommit and utilisation",
        "What nodes have, what is lent of it beyond prod's requests, who takes it, and what it yields.",
        (
            (
                "At a glance",
                (
                    Panel(
                        "CPU used, mean of a day",
                        one(f"avg_over_time((sum(rate({busy}[5m])) / {cpus})[1d:1m])"),
                        "percentunit",
                        "stat",
                        5,
                        5,
                        "Busy CPU time of a day over all CPU time.",
                        most=1,
                    ),
                    Panel(
                        "Requested by prod",
                        one(f"{_state(_CPU, 'requested', _is_prod())} / {own}"),
                        "percentunit",
                        "stat",
                        5,
                        5,
                        "Requests of prod pods over what nodes have.",
                    ),
                    Panel(
                        "Requested by all",
                        one(f"{taken} / {own}"),
                        "percentunit",
                        "stat",
                        5,
                        5,
                        "Beyond 100 %, CPUs are sold twice.",
                    ),
                    Panel(
                        "Lent",
                        one(f"{lent} / {own}"),
                        "percentunit",
                        "stat",
                        4,
                        5,
                        "Batch and mid CPU that nodes offer, over what they have.",
                    ),
                    Panel(
                        "Of it taken",
                        one(f"{_state(_CPU, 'requested', _is_lent())} / {lent}"),
                        "percentunit",
                        "stat",
                        5,
                        5,
                        "What little is taken leaves nodes idle: placement or quotas hold work back.",
                    ),
                ),
            ),
            (
                "CPU",
                (
                    Panel(
                        "Offered and requested",
                        (
                            Query(own, "nodes have"),
                            Query(f"{own} + {lent}", "with what is lent"),
                            Query(taken, "requested"),
                            Query(used, "used"),
                        ),
                        "cores",
                        about="The distance from used to what nodes have is what more lending could fill.",
                    ),
                    Panel(
                        "Lent, by class",
                        one(_state(_CPU, "allocatable", _is_lent(), "priority"), "{{priority}}"),
                        "cores",
                        stacked=True,
                    ),
                    Panel(
                        "Requested, by class",
                        one(_state(_CPU, "requested", by="priority"), "{{priority}}"),
                        "cores",
                        stacked=True,
                    ),
                    Panel(
                        "Used, by class",
                        one(_state(_CPU, "used", by="priority"), "{{priority}}"),
                        "cores",
                        stacked=True,
                        about="As nodes report it; system is what no pod used.",
                    ),
                ),
            ),
            (
                "Memory",
                (
                    Panel(
                        "Offered, requested and used",
                        (
                            Query(own_memory, "nodes have"),
                            Query(_state(_MEMORY, "allocatable", _is_lent()), "lent"),
                            Query(f'sum({_MEMORY}{{state="requested"}})', "requested"),
                            Query(f'sum({_MEMORY}{{state="used"}})', "used"),
                        ),
                        "bytes",
                    ),
                    Panel("Share in use", one(memory, "memory"), "percentunit", most=1),
                ),
            ),
            (
                "What it costs",
                (
                    Panel(
                        "Use beside loss",
                        (
                            Query(f"{rate(busy)} / {cpus}", "CPU used"),
                            Query(
                                f"(sum(koord_verdict_lost_seconds_per_second) or vector(0)) / {cpus}", "lost per CPU"
                            ),
                        ),
                        "percentunit",
                        about="Lending is too generous where the loss rises with the use.",
                    ),
                    Panel(
                        "Nodes by use",
                        one(top(15, f"avg by (instance) (rate({busy}{RATE}))"), "{{instance}}"),
                        "percentunit",
                        "bargauge",
                    ),
                ),
            ),
        ),
        span="now-24h",
    )


def _is_prod() -> str:
    return 'priority="prod"'


def _is_lent() -> str:
    return 'priority=~"mid|batch"'
