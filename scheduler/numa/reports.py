"""Annotations and reports to values: a node's machine, a pod's request and its allocation."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import msgspec

from api.cpuset import format_cpuset, parse_cpuset
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.numa import (
    ANNOTATION_CPU_TOPOLOGY,
    ANNOTATION_KUBELET_CPU_MANAGER,
    ANNOTATION_POD_CPU_ALLOCS,
    CpuDetail,
    CpuTopologyReport,
    KubeletCpuManager,
    NodeResourceTopology,
    NumaNodeResources,
    PodCpuAllocation,
    ResourceStatus,
)
from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY, format_resources, parse_resources
from api.protocol import (
    ANNOTATION_NODE_AMPLIFICATION,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_NODE_SYSTEM_QOS_RESOURCE,
    LABEL_NODE_CPU_BIND_POLICY,
    LABEL_NODE_ENABLE_NUMA_RESERVATION,
)
from scheduler.cluster_state.nodeinfo import node_reservation
from scheduler.numa.machine import MILLI, CpuHold, MachineShape, NumaAmounts
from scheduler.numa.topology import CpuBindPolicy, CpuExclusivePolicy, CpuInfo, CpuTopology

T = TypeVar("T")

MAX_NUMA_NODES = 1024
"""NUMA nodes of the largest kernel configuration; higher numbers are not believed."""
MAX_AMPLIFICATION = 100.0
MAX_CPUS = 8192
"""CPUs of the largest kernel configuration; further ones are not believed."""


class SystemResource(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs of the node's system daemons."""

    cpuset: str = ""
    cpuset_exclusive: bool = True


def read_annotation(annotations: Mapping[str, str], key: str, kind: type[T]) -> T | None:
    """The JSON value of an annotation; None when it is missing or cannot be read."""
    text = annotations.get(key)
    try:
        return decode_annotation(text, kind) if text else None
    except AnnotationError:
        return None


def machine_shape(node: Node, report: NodeResourceTopology | None) -> MachineShape:
    """The machine of a node from its agent's report and its own annotations."""
    ratios = read_annotation(node.metadata.annotations, ANNOTATION_NODE_AMPLIFICATION, dict[str, float]) or {}
    ratio = min(max(1.0, ratios.get(CPU, 1.0)), MAX_AMPLIFICATION)
    if report is None:
        return MachineShape(CpuTopology({}), amplification=ratio)
    topology = _topology(report)
    withheld = _withheld(node, report) & frozenset(topology.cpus)
    numa = _zones(report)
    if node.metadata.labels.get(LABEL_NODE_ENABLE_NUMA_RESERVATION) == "true":
        numa = _less_reserved(numa, node, topology)
    return MachineShape(topology, withheld, numa, ratio)


def node_bind_policy(node: Node, report: NodeResourceTopology | None) -> CpuBindPolicy:
    """The layout that the node demands of every pod with a cpu request; NONE when it demands nothing."""
    label = node.metadata.labels.get(LABEL_NODE_CPU_BIND_POLICY, "")
    annotations = report.metadata.annotations if report else {}
    kubelet = read_annotation(annotations, ANNOTATION_KUBELET_CPU_MANAGER, KubeletCpuManager)
    static_full = (
        kubelet is not None and kubelet.policy == "static" and kubelet.options.get("full-pcpus-only") == "true"
    )
    if label == "FullPCPUsOnly" or static_full:
        return CpuBindPolicy.FULL_PCPUS
    return CpuBindPolicy.SPREAD_BY_PCPUS if label == "SpreadByPCPUs" else CpuBindPolicy.NONE


def encode_status(cpus: frozenset[int], numa: NumaAmounts) -> str:
    """The annotation `resource-status`."""
    nodes = [
        NumaNodeResources(node=node, resources=dict(format_resources(amounts)))
        for node, amounts in sorted(numa.items())
    ]
    return msgspec.json.encode(ResourceStatus(cpuset=format_cpuset(cpus), numa_node_resources=nodes)).decode()


def decode_status(text: str, exclusive: CpuExclusivePolicy, within: str) -> CpuHold | None:
    """CPUs and NUMA amounts in an annotation `resource-status`; None when it cannot be read."""
    try:
        status = decode_annotation(text, ResourceStatus)
        cpus = parse_cpuset(status.cpuset, MAX_CPUS)
        numa = {entry.node: parse_resources(entry.resources) for entry in status.numa_node_resources}
    except ValueError:
        return None
    if not all(0 <= node < MAX_NUMA_NODES and min(amounts.values(), default=0) >= 0 for node, amounts in numa.items()):
        return None
    return CpuHold(cpus, exclusive, numa, within)


def clamped(hold: CpuHold, cpu_millicores: int, memory_bytes: int) -> CpuHold:
    """The share as far as the pod asked for it: what goes beyond is not believed at all."""
    cpus = hold.cpus if len(hold.cpus) * MILLI < cpu_millicores + MILLI else frozenset()
    limits = {CPU: cpu_millicores, MEMORY: memory_bytes}
    sums = {name: sum(amounts.get(name, 0) for amounts in hold.numa.values()) for name in limits}
    exceeds = any(sums[name] > limit for name, limit in limits.items())
    return replace(hold, cpus=cpus, numa={} if exceeds else hold.numa)


def _topology(report: NodeResourceTopology) -> CpuTopology:
    """Cores get machine-wide numbers: the report counts them within a socket on some machines."""
    details = read_annotation(report.metadata.annotations, ANNOTATION_CPU_TOPOLOGY, CpuTopologyReport)
    rows = [row for row in details.detail if _possible(row)] if details else []
    places = sorted({(row.socket, row.node, row.core) for row in rows})
    number = {place: index for index, place in enumerate(places)}
    return CpuTopology.of(CpuInfo(row.id, number[row.socket, row.node, row.core], row.node, row.socket) for row in rows)


def _possible(row: CpuDetail) -> bool:
    return 0 <= row.id < MAX_CPUS and 0 <= row.node < MAX_NUMA_NODES


def _withheld(node: Node, report: NodeResourceTopology) -> frozenset[int]:
    annotations, own = report.metadata.annotations, node.metadata.annotations
    lists = []
    kubelet = read_annotation(annotations, ANNOTATION_KUBELET_CPU_MANAGER, KubeletCpuManager)
    if kubelet is not None:
        lists.append(kubelet.reserved_cpus)
    given = read_annotation(annotations, ANNOTATION_POD_CPU_ALLOCS, list[PodCpuAllocation]) or []
    lists += [allocation.cpuset for allocation in given if allocation.managed_by_kubelet]
    system = read_annotation(own, ANNOTATION_NODE_SYSTEM_QOS_RESOURCE, SystemResource)
    if system is not None and system.cpuset_exclusive:
        lists.append(system.cpuset)
    if ANNOTATION_NODE_RESERVATION in own and (reservation := node_reservation(node)) is not None:
        lists.append(reservation.reserved_cpus)
    withheld: set[int] = set()
    for text in lists[:MAX_CPUS]:
        withheld |= _cpus(text)
    return frozenset(withheld)


def _cpus(text: str) -> frozenset[int]:
    try:
        return parse_cpuset(text, MAX_CPUS)
    except ValueError:
        return frozenset()


def _zones(report: NodeResourceTopology) -> dict[int, dict[str, int]]:
    """Allocatable cpu and memory of zones named like `node-0`."""
    zones: dict[int, dict[str, int]] = {}
    for zone in report.zones:
        _, _, number = zone.name.rpartition("-")
        if number.isdecimal() and len(number) < 5 and int(number) < MAX_NUMA_NODES:
            listed = {item.name: item.allocatable for item in zone.resources if item.name in (CPU, MEMORY)}
            zones[int(number)] = parse_resources(listed)
    return zones


def _less_reserved(numa: dict[int, dict[str, int]], node: Node, topology: CpuTopology) -> dict[int, dict[str, int]]:
    """NUMA amounts less the node's reservation: where its CPUs are, else evenly over the NUMA nodes."""
    reservation = node_reservation(node)
    if reservation is None or not numa:
        return numa
    amounts = parse_resources(reservation.resources)
    left = {place: dict(have) for place, have in numa.items()}
    reserved = _cpus(reservation.reserved_cpus)
    for cpu in reserved & frozenset(topology.cpus):
        place = topology.cpus[cpu].node
        if place in left:
            left[place][CPU] = max(0, left[place].get(CPU, 0) - MILLI)
    for resource in (MEMORY,) if reserved else (CPU, MEMORY):
        share = -(-amounts.get(resource, 0) // len(left))
        for have in left.values():
            have[resource] = max(0, have.get(resource, 0) - share)
    return left
