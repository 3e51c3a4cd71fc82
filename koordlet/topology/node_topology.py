"""The NodeResourceTopology object: zones and annotations, and when it differs from what was said. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from api.cpuset import format_cpuset
from api.kube.meta import ObjectMeta, OwnerReference
from api.kube.numa import (
    ANNOTATION_BE_CPU_SHARED_POOLS,
    ANNOTATION_CPU_BASIC_INFO,
    ANNOTATION_CPU_SHARED_POOLS,
    ANNOTATION_CPU_TOPOLOGY,
    ANNOTATION_KUBELET_CPU_MANAGER,
    ANNOTATION_POD_CPU_ALLOCS,
    CpuTopologyReport,
    KubeletCpuManager,
    NodeResourceTopology,
    PodCpuAllocation,
    ResourceStatus,
    Zone,
    ZoneResource,
)
from api.kube.objects import Node
from api.kube.resources import (
    CPU,
    HUGEPAGES_PREFIX,
    MEMORY,
    QuantityError,
    Resources,
    format_resources,
    parse_resources,
)
from api.protocol import (
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_NODE_SYSTEM_QOS_RESOURCE,
    ANNOTATION_RESOURCE_STATUS,
    LABEL_NODE_ENABLE_NUMA_RESERVATION,
)
from koordlet.identity.pods import PodFacts
from koordlet.topology.cpu_state import CpuState, Machine
from koordlet.topology.share_pools import given_cpus, kubelet_held

LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "Koordinator"
ZONE_TYPE = "Node"
OWN_ANNOTATIONS = (
    ANNOTATION_CPU_TOPOLOGY,
    ANNOTATION_CPU_BASIC_INFO,
    ANNOTATION_CPU_SHARED_POOLS,
    ANNOTATION_BE_CPU_SHARED_POOLS,
    ANNOTATION_KUBELET_CPU_MANAGER,
    ANNOTATION_POD_CPU_ALLOCS,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_NODE_SYSTEM_QOS_RESOURCE,
)
"""Annotations that this program sets and removes; others stay."""
OWN_LABELS = (LABEL_MANAGED_BY, LABEL_NODE_ENABLE_NUMA_RESERVATION)
_PAGE_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def node_topology_object(state: CpuState, node: Node) -> NodeResourceTopology:
    """Return the object that tells of this state, owned by the node."""
    reserves = node.metadata.labels.get(LABEL_NODE_ENABLE_NUMA_RESERVATION, "")
    labels = {LABEL_MANAGED_BY: MANAGER} | ({LABEL_NODE_ENABLE_NUMA_RESERVATION: reserves} if reserves else {})
    # Without blockOwnerDeletion, which some clusters allow only to who may update the Node's finalizers.
    owner = OwnerReference(api_version="v1", kind="Node", name=node.name, uid=node.metadata.uid, controller=True)
    kubelets_part = _kubelets_part(node) if reserves == "true" else {}
    return NodeResourceTopology(
        metadata=ObjectMeta(
            name=node.name, labels=labels, annotations=_annotations(state, node), owner_references=[owner]
        ),
        topology_policies=[state.kubelet.alignment],
        zones=zones(state, kubelets_part),
    )


def zones(state: CpuState, kubelets_part: Mapping[str, int]) -> list[Zone]:
    """Return a zone for each NUMA node with CPUs or memory.

    Allocatable is the capacity less an equal share of what the kubelet keeps back (`kubelets_part`, where the node asks
    for that), available what no pod with an allocation on the node holds of it.
    """
    held = _held(state)
    capacities = _capacities(state.machine)
    share = {name: -(-amount // len(capacities)) for name, amount in kubelets_part.items()} if capacities else {}
    found = []
    for node, capacity in capacities.items():
        allocatable = {name: max(amount - share.get(name, 0), 0) for name, amount in capacity.items()}
        taken = held.get(node, {})
        available = {name: max(amount - taken.get(name, 0), 0) for name, amount in allocatable.items()}
        texts = [format_resources(amounts) for amounts in (capacity, allocatable, available)]
        resources = [
            ZoneResource(name=name, capacity=texts[0][name], allocatable=texts[1][name], available=texts[2][name])
            for name in sorted(capacity)
        ]
        found.append(Zone(name=f"node-{node}", type=ZONE_TYPE, resources=resources))
    return found


def merged(document: Mapping[str, Any] | None, wanted: NodeResourceTopology) -> dict[str, Any] | None:
    """Return the stored object changed to say what is wanted, or None where it says so already.

    Labels, annotations, owners and resources of zones that others set stay, as do fields that are not known here.
    """
    if document is None:
        made: dict[str, Any] = msgspec.to_builtins(wanted)
        return made
    meta = document.get("metadata") or {}
    labels = _replaced(meta.get("labels") or {}, wanted.metadata.labels, OWN_LABELS)
    annotations = _replaced(meta.get("annotations") or {}, wanted.metadata.annotations, OWN_ANNOTATIONS)
    others = [owner for owner in meta.get("ownerReferences") or [] if owner.get("kind") != "Node"]
    owners = [*others, *msgspec.to_builtins(wanted.metadata.owner_references)]
    changed = {
        **document,
        "metadata": {**meta, "labels": labels, "annotations": annotations, "ownerReferences": owners},
        "topologyPolicies": wanted.topology_policies,
        "zones": _merged_zones(document.get("zones") or [], msgspec.to_builtins(wanted.zones)),
    }
    return None if changed == document else changed


def _merged_zones(stored: Sequence[Mapping[str, Any]], wanted: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The wanted zones in their order, each with what others added to it."""
    before = {zone.get("name"): zone for zone in stored}
    found = []
    for zone in wanted:
        old = before.get(zone["name"], {})
        own = {resource["name"] for resource in zone["resources"]}
        added = [each for each in old.get("resources") or [] if not _ours(each.get("name", ""), own)]
        found.append({**old, **zone, "resources": [*zone["resources"], *added]})
    return found


def _ours(name: str, own: set[str]) -> bool:
    return name in own or name in (CPU, MEMORY) or name.startswith(HUGEPAGES_PREFIX)


def _annotations(state: CpuState, node: Node) -> dict[str, str]:
    manager = KubeletCpuManager(
        policy=state.kubelet.policy,
        options=dict(sorted(state.kubelet.options.items())),
        reserved_cpus=format_cpuset(state.kubelet.reserved),
    )
    values: dict[str, Any] = {
        ANNOTATION_CPU_TOPOLOGY: CpuTopologyReport(detail=list(state.machine.cpus)),
        ANNOTATION_CPU_BASIC_INFO: state.machine.basic,
        ANNOTATION_CPU_SHARED_POOLS: state.pools.ls,
        ANNOTATION_BE_CPU_SHARED_POOLS: state.pools.be,
        ANNOTATION_KUBELET_CPU_MANAGER: manager,
        ANNOTATION_POD_CPU_ALLOCS: _pod_allocations(state),
    }
    texts = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
    # The node's own annotations travel along as they are; one that cannot be read would mislead the readers.
    own = {key: node.metadata.annotations.get(key, "") for key in _NODES_OWN if key not in state.node.unreadable}
    return texts | {key: text for key, text in own.items() if text}


_NODES_OWN = (ANNOTATION_NODE_RESERVATION, ANNOTATION_NODE_SYSTEM_QOS_RESOURCE)


def _pod_allocations(state: CpuState) -> list[PodCpuAllocation]:
    """Pods with CPUs of their own by the kubelet; the scheduler knows what it gave itself."""
    held = kubelet_held(state.kubelet, state.pods.pods)
    found = []
    for uid in sorted(held):
        pod = state.pods.of_uid(uid)
        namespace, _, name = pod.name.partition("/") if pod else ("", "", "")
        cpus = format_cpuset(held[uid])
        found.append(PodCpuAllocation(namespace=namespace, name=name, uid=uid, cpuset=cpus, managed_by_kubelet=True))
    return found


def _capacities(machine: Machine) -> dict[int, Resources]:
    """Capacity by NUMA node; memory that is not known is absent, not 0."""
    found: dict[int, Resources] = {}
    for cpu in machine.cpus:
        amounts = found.setdefault(cpu.node, {CPU: 0})
        amounts[CPU] += 1000
    for node, memory in machine.memory.items():
        pages = {f"{HUGEPAGES_PREFIX}{_page_size(size)}": amount for size, amount in memory.huge_pages.items()}
        amounts = found.setdefault(node, {CPU: 0})
        amounts |= pages
        amounts[MEMORY] = max(memory.total_bytes - sum(pages.values()), 0)
    return dict(sorted(found.items()))


def _page_size(page_bytes: int) -> str:
    unit, name = next((pair for pair in _PAGE_UNITS if page_bytes % pair[0] == 0), (1, ""))
    return f"{page_bytes // unit}{name}"


def _held(state: CpuState) -> dict[int, Resources]:
    """Amounts by NUMA node of the pods with an allocation on it: by the scheduler, else by the kubelet."""
    nodes = {cpu.id: cpu.node for cpu in state.machine.cpus}
    found: dict[int, Resources] = {}
    for pod in state.pods.pods:
        for node, amounts in (_given_amounts(pod) or _of_cpus(given_cpus(pod), nodes)).items():
            _add(found.setdefault(node, {}), amounts)
    for cpus in kubelet_held(state.kubelet, state.pods.pods).values():
        for node, amounts in _of_cpus(cpus, nodes).items():
            _add(found.setdefault(node, {}), amounts)
    return found


def _given_amounts(pod: PodFacts) -> dict[int, Resources]:
    """Amounts by NUMA node in a pod's annotation, none of which may exceed what the pod requests."""
    text = pod.annotations.get(ANNOTATION_RESOURCE_STATUS)
    if not text or not pod.active:
        return {}
    try:
        status = msgspec.json.decode(text, type=ResourceStatus)
        given = {entry.node: parse_resources(entry.resources) for entry in status.numa_node_resources}
    except (msgspec.DecodeError, QuantityError, ValueError, RecursionError):
        return {}
    total: Resources = {}
    for amounts in given.values():
        _add(total, amounts)
    return given if all(0 <= amount <= pod.requests.get(name, 0) for name, amount in total.items()) else {}


def _of_cpus(cpus: Iterable[int], nodes: Mapping[int, int]) -> dict[int, Resources]:
    found: dict[int, Resources] = {}
    for cpu in cpus:
        if cpu in nodes:
            _add(found.setdefault(nodes[cpu], {}), {CPU: 1000})
    return found


def _add(total: Resources, amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _kubelets_part(node: Node) -> Resources:
    """CPU and memory that the kubelet keeps back: capacity less allocatable."""
    try:
        capacity, allocatable = parse_resources(node.status.capacity), parse_resources(node.status.allocatable)
    except QuantityError:
        return {}
    return {
        name: max(capacity[name] - allocatable[name], 0)
        for name in (CPU, MEMORY)
        if name in capacity and name in allocatable
    }


def _replaced(stored: Mapping[str, str], wanted: Mapping[str, str], own: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in stored.items() if key not in own} | dict(wanted)
