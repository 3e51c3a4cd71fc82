"""The agent's part of docs/metrics.md, from the metric table; `make docs` writes the page."""

from collections.abc import Iterator

import koordlet.collectors
import probes
from api.metrics import METRICS, Metric, MetricKind
from api.plugin import discover
from koordlet.collectors import Collector
from koordlet.metrics import owners
from koordlet.metrics.actions import FAMILIES as ACTION_FAMILIES
from koordlet.metrics.inflicted import FAMILIES as INFLICTED_FAMILIES
from koordlet.metrics.koordinator_names import FAMILIES as KOORDINATOR
from koordlet.metrics.labels import CGROUP_LABELS, CULPRIT, VICTIM
from koordlet.metrics.priorities import FAMILIES as PRIORITY_FAMILIES
from koordlet.metrics.verdicts import FAMILIES as JUDGE_FAMILIES
from probes.probe import Probe

_HEAD = """# Metrics

Made from the metric table (`api/metrics.py`) and from what the programs register, by `make docs`; a test keeps it true.

## koordlet

The endpoint listens on 127.0.0.1:9316 by default, and serves HTTPS with `[metrics] certificate` and `key`.
Base units are seconds and bytes; counters end in `_total`; histogram buckets have their upper edge in seconds.
Series of a container carry the labels `namespace`, `pod` and
`container` of the kubelet's, cAdvisor's and kube-state-metrics' series, with which they join (`container="POD"` is the
sandbox; the scrape needs `honor_labels: true`, as the kubelet's does). Series of any other cgroup carry `cgroup`, its
path under the cpu hierarchy in printable form, those of a pod's own cgroup beside `namespace` and `pod`; of two
instances of one container the later one has it, too; a path of more than 512 letters is cut. All carry `name`, `qos`.
The workload of a pod is one series more, with the labels of kube-state-metrics, to sum by:
`... * on (namespace, pod) group_left (owner_kind, owner_name) koord_pod_owner`.
The busiest `[metrics] max_cgroups` have series of their own, all others are summed as `cgroup="other"`, so sums stay
whole. Blame carries the victim's
labels (`victim_cgroup` for its path) and the culprit's with the prefix `culprit_`: the worst `culprits_per_victim` by
name, the rest as `other`, kernel threads as `[kernel]`. Labels that do not apply and series that are still zero are
left out. Histograms are given for `histogram_cgroups` cgroups and, as `koord_host_...`, for all together.
Open verdicts have series of their own for the worst `max_verdicts`; the culprit is then the first one,
`culprit_cgroup` in brackets where it is no cgroup.

| series | kind | labels | meaning |
|---|---|---|---|
"""

_SELF = (
    ("koord_build_info", "gauge", "version, kernel", "Version of the agent"),
    ("koord_capability", "gauge", "name", "1 where this host can measure it, 0 where not"),
    ("koord_lost_events_total", "counter", "source", "Events that were lost, by source"),
    ("koord_exported_cgroups", "gauge", "", "Cgroups with series of their own"),
    (owners.NAME, "gauge", ", ".join(owners.LABELS), owners.TEXT),
    (
        "koord_bpf_run_seconds_total",
        "counter",
        "probe, program",
        "Time in BPF programs while kernel.bpf_stats_enabled is on",
    ),
    ("koord_bpf_runs_total", "counter", "probe, program", "Runs of BPF programs while kernel.bpf_stats_enabled is on"),
)


def render() -> str:
    """The whole page."""
    rows: dict[str, list[Metric]] = {}
    for metric in (*METRICS, *_declared()):
        if metric.family:
            rows.setdefault(metric.series, []).append(metric)
    lines = [_row(series, members) for series, members in rows.items()]
    lines += [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in (*_SELF, *_families())]
    lines += [_koordinator()]
    return _HEAD + "\n".join(lines) + "\n"


def _koordinator() -> str:
    """The second table: names of Koordinator's agent."""
    head = (
        "\n## Koordinator's names\n\n"
        "With `[metrics] koordinator_names = true` the endpoint serves these too; all have the label `node`.\n\n"
        "| series | labels | meaning |\n|---|---|---|\n"
    )
    rows = (f"| `{name}` | {', '.join(labels)} | {text} |" for name, (labels, text) in KOORDINATOR.items())
    return head + "\n".join(rows)


def _declared() -> Iterator[Metric]:
    """Columns that collectors and probes of this project declare themselves."""
    for kind in discover(koordlet.collectors, Collector).values():  # type: ignore[type-abstract]
        yield from kind.metrics
    for probe in discover(probes, Probe).values():  # type: ignore[type-abstract]
        yield from probe.metrics


def _families() -> list[tuple[str, str, str, str]]:
    return [
        (f"{name}_total" if kind == "counter" else name, kind, ", ".join(labels), text)
        for name, (kind, labels, text) in {
            **INFLICTED_FAMILIES,
            **PRIORITY_FAMILIES,
            **JUDGE_FAMILIES,
            **ACTION_FAMILIES,
        }.items()
    ]


def _row(series: str, members: list[Metric]) -> str:
    first = members[0]
    if first.table.endswith(".blame"):
        keys = ", ".join((*VICTIM, *CULPRIT))
    elif first.table == "cgroup":
        keys = ", ".join(CGROUP_LABELS)
    else:
        keys = first.table.partition(".")[2]
    constant = [
        f"{name} ({', '.join(sorted({member.labels[name] for member in members}))})" for name in sorted(first.labels)
    ]
    labels = ", ".join(part for part in (keys, *constant) if part)
    kind = (
        f"{first.kind.value}, also `{series.replace('_cgroup_', '_host_')}`"
        if first.kind is MetricKind.HISTOGRAM
        else first.kind
    )
    return f"| `{series}` | {kind} | {labels} | {first.help} |"
