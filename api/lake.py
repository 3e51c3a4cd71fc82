"""Tables that nodes export and `koord-manager analyze` reads: columns, units, version.

Files lie at `TABLE/date=YYYY-MM-DD/node=NAME/*.parquet`, so that `date` and `node` are columns of each table. A row
covers `seconds` from `time` on; rates are means over it. What a node did not measure is null.
"""

from collections.abc import Mapping
from typing import Literal

SCHEMA = "koord.lake/v1"
"""In the metadata of each file, under METADATA_KEY. A later version only adds columns."""
METADATA_KEY = "koord.schema"

ColumnKind = Literal["text", "number"]

_ROW = {
    "time": "start of the row, seconds since 1970",
    "seconds": "length of the row",
}
_CONTAINER = {
    "workload": "owner as Kind/namespace/name; or service, image, unit, path",
    "container": "container within the workload's pods; empty where the workload is the container",
    "namespace": "of the pod; empty outside pods",
    "node_type": "type of the node, within which workloads are compared",
    "path": "cgroup",
    "qos": "QoS class: LSE, LSR, LS, BE, SYSTEM or empty",
}
AMOUNTS = {
    "cpu_request_cores": "request at that time, NaN without one; so the three that follow",
    "cpu_limit_cores": "limit",
    "memory_request_bytes": "request",
    "memory_limit_bytes": "limit",
}
"""Amounts that a container asks for."""
OOM_KILLS = "oom_kills"

TABLES: Mapping[str, Mapping[str, str]] = {
    "profiles": {
        **_ROW,
        **_CONTAINER,
        "harmed_ratio": "part of the samples with an open verdict about it",
        "cpu_cores": "CPU time, seconds a second",
        "cpu_cores_max": "largest sample of it",
        "memory_bytes": "memory",
        "memory_bytes_max": "largest sample of it",
        "cpu_wait_neighbour": "waits for CPUs that others held, seconds a second",
        "cpu_wait_quota": "held back by quotas, seconds a second",
        "cpi": "cycles an instruction",
        "memory_stall": "stalls for lack of memory on the node, seconds a second",
        "blockio_wait": "waits for disks that others used, seconds a second",
        "turnaround_seconds": "mean time of a request that it serves",
        "requests": "requests served a second",
        **AMOUNTS,
        OOM_KILLS: "processes killed for lack of memory",
    },
    "nodes": {
        **_ROW,
        "logical_cores": "hardware threads",
        "physical_cores": "cores, siblings counted once",
        "memory_total_bytes": "memory of the node",
        "cpu_used_service_cores": "used by LSE, LSR and LS",
        "cpu_used_batch_cores": "used by BE",
        "cpu_used_other_cores": "used by SYSTEM and what has no class",
        "memory_used_service_bytes": "as the CPU",
        "memory_used_batch_bytes": "as the CPU",
        "memory_used_other_bytes": "as the CPU",
        "cpu_requested_cores": "sum of requests, those of BE left out",
        "memory_requested_bytes": "as the CPU",
    },
    "verdicts": {
        **_ROW,
        "victim": "cgroup that loses",
        "victim_workload": "its workload",
        "victim_namespace": "its namespace",
        "resource": "cpu, memory, blockio, network, cache",
        "cause": "cause of the verdict",
        "rule": "rule of the verdict",
        "culprit": "cgroup, or a bracketed name; empty for the part that nothing explains",
        "culprit_workload": "its workload",
        "culprit_namespace": "its namespace",
        "how": "direct or correlated; empty without culprit",
        "lost_seconds": "what the victim lost to the culprit in the row's time",
    },
    "actions": {
        "time": "of the decision, seconds since 1970",
        "strategy": "strategy that asked",
        "victim": "cgroup that the action is for; empty without a verdict",
        "rule": "rule of the verdict",
        "target": "cgroup acted on",
        "name": "its display name",
        "qos": "its QoS class, or the classes of what lives in it; empty where not known",
        "priority": "its priority class, else its pod's priority; empty where not known",
        "file": "attribute",
        "value_before": "value before",
        "value_after": "value after",
        "reason": "reason in words",
        "dry_run": "1 where nothing was written",
        "lease_seconds": "time that the action holds unless it is renewed",
        "outcome": "set, restored and others",
    },
}
"""Columns of each table with their meaning."""

_TEXTS = frozenset(
    (
        *_CONTAINER,
        *("victim", "victim_workload", "victim_namespace", "resource", "cause", "rule"),
        *("culprit", "culprit_workload", "culprit_namespace", "how"),
        *("strategy", "target", "name", "priority", "file", "value_before", "value_after", "reason", "outcome"),
    )
)

SERVICE_CLASSES = ("LSE", "LSR", "LS")
BATCH_CLASSES = ("BE",)


def kind_of(column: str) -> ColumnKind:
    """Return whether a column holds texts or numbers."""
    return "text" if column in _TEXTS else "number"
