"""NodeNUMAResource: CPUs of their own for latency-sensitive pods, and NUMA alignment of cpu, memory and devices."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import msgspec
import numpy as np

from api.cpuset import format_cpuset
from api.kube.numa import NodeResourceTopology, ResourceSpec
from api.kube.objects import Node
from api.kube.resources import CPU, MEMORY
from api.protocol import (
    ANNOTATION_RESERVATION_ALLOCATED,
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    LABEL_NODE_NUMA_ALLOCATE_STRATEGY,
)
from cluster.resources import Key, Resource
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.devices.payload import drawn_from
from scheduler.framework import Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Route, Scores
from scheduler.numa.accumulator import CpuDemand
from scheduler.numa.columns import BIND_RULES, NUMA_RULES, MachineColumns
from scheduler.numa.hints import NumaHint, NumaPolicy, PolicyConflictError
from scheduler.numa.machine import MILLI, Machine
from scheduler.numa.placement import NumaExclusive, allocation_score
from scheduler.numa.plan import NumaDemand, NumaPlan, PlanError, make_plan
from scheduler.numa.reports import (
    clamped,
    decode_status,
    encode_status,
    machine_shape,
    node_bind_policy,
    read_annotation,
)
from scheduler.numa.request import CpuRequest, exclusive_policy, node_numa_policy, read_request
from scheduler.numa.shown import available_cpus, topology_options
from scheduler.numa.topology import CpuBindPolicy, NumaStrategy

TOPOLOGIES = Resource(
    "NodeResourceTopology",
    "noderesourcetopologies",
    NodeResourceTopology,
    "topology.node.k8s.io",
    "v1alpha1",
    namespaced=False,
)
FULL_RULE = BIND_RULES.index(CpuBindPolicy.FULL_PCPUS)
SPREAD_RULE = BIND_RULES.index(CpuBindPolicy.SPREAD_BY_PCPUS)
NO_TOPOLOGY, NOT_WHOLE, SMT, CONFLICT, SHORT, AMPLIFIED, NUMA = (1 << bit for bit in range(7))


PLANS = "NodeNUMAResource/plans"
"""Where an attempt keeps the plans made for it, in `Attempt.memo`."""


@runtime_checkable
class DeviceHints(Protocol):
    """NUMA hints that the device plugin gives for a pod on a row."""

    def numa_hints(self, attempt: Attempt, row: Row) -> list[list[NumaHint]]:
        """NUMA hints of each kind of device that the pod asks for."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of NodeNUMAResource."""

    default_cpu_bind_policy: Literal["FullPCPUs", "SpreadByPCPUs", ""] = "FullPCPUs"
    """Layout for LSE and LSR pods that declare none; empty leaves them in the shared pool."""
    scoring_strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    """Preference among nodes."""
    numa_scoring_strategy: Literal["LeastAllocated", "MostAllocated"] = "LeastAllocated"
    """Preference among NUMA nodes, unless the node's label says otherwise."""
    resources: dict[str, int] = msgspec.field(default_factory=lambda: {CPU: 1, MEMORY: 1})
    """Weights of the scored resources."""


class NodeNUMAResource(Plugin[CpuRequest]):
    """Filters, scores and allocates CPUs and NUMA nodes; see the module docstring."""

    name: ClassVar[str] = "NodeNUMAResource"
    rank: ClassVar[int] = 330
    requeue_on: ClassVar[frozenset[str]] = frozenset(
        {
            "nodes/add",
            "nodes/update",
            "pods/delete",
            "noderesourcetopologies/add",
            "noderesourcetopologies/update",
        }
    )
    watches: ClassVar[tuple[Resource[Any], ...]] = (TOPOLOGIES,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self.machines: dict[Row, Machine] = {}
        self.columns = MachineColumns(handle.snapshot)
        self._scoring = NumaStrategy(config.scoring_strategy)

    # Observer

    def on_object(self, event: ObjectEvent) -> None:
        """A node reported its machine."""
        row = self.handle.snapshot.row(event.key.name)
        if row is not None:
            self._refit(row, self.handle.snapshot.node(row), event.after)
            self.handle.snapshot.touch(row)

    def node_changed(self, row: Row, node: Node) -> None:
        """Labels and annotations of a node bear on its machine."""
        self._refit(row, node, self.handle.objects(TOPOLOGIES).get(Key("", node.name)))

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self.machines.pop(row, None)
        self.columns.clear(row)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Charge what the pod's annotation says it was given."""
        text = info.annotation(ANNOTATION_RESOURCE_STATUS)
        if not text:
            return
        resource_spec = read_annotation(info.pod.metadata.annotations, ANNOTATION_RESOURCE_SPEC, ResourceSpec)
        exclusive = exclusive_policy(resource_spec.preferred_cpu_exclusive_policy if resource_spec else "")
        hold = decode_status(text, exclusive, drawn_from(info.annotation(ANNOTATION_RESERVATION_ALLOCATED)))
        if hold is not None:
            hold = clamped(hold, info.requests.get(CPU, 0), info.requests.get(MEMORY, 0))
            self.machines.setdefault(row, Machine()).hold(info.uid, hold)
            self.columns.mirror(row, self.machines[row])

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Give the pod's CPUs back."""
        machine = self.machines.get(row)
        if machine is not None and info.uid in machine.holders:
            machine.release(info.uid)
            self.columns.mirror(row, machine)

    def _refit(self, row: Row, node: Node, report: NodeResourceTopology | None) -> None:
        machine = self.machines.setdefault(row, Machine())
        machine.refit(machine_shape(node, report))
        self.columns.mirror(row, machine)
        self.columns.rules(row, node_bind_policy(node, report), node_numa_policy(node, report))

    # One attempt

    def prepare(self, info: PodInfo) -> CpuRequest | None:
        """Read the pod's request. None when it asks for neither cpu nor memory."""
        return read_request(info, CpuBindPolicy(self.config.default_cpu_bind_policy))

    def pre_filter(self, attempt: Attempt, spec: CpuRequest) -> Reason | None:
        """CPUs of one's own come whole."""
        if spec.bind and not spec.whole:
            return Reason("the requested CPUs must be integer", resolvable=False)
        return None

    def reasons(self, spec: CpuRequest) -> tuple[Reason, ...]:
        """Meaning of the filter's bits."""
        return (
            Reason("node(s) without a valid CPU topology", resolvable=False),
            Reason("node(s) that bind CPUs and the requested CPUs are not integer", resolvable=False),
            Reason("node(s) requested CPUs are not a multiple of the threads per core", resolvable=False),
            Reason("node(s) CPU bind or NUMA policy conflicts with the pod's", resolvable=False),
            Reason("Insufficient CPUs to bind"),
            Reason("Insufficient amplified cpu"),
            Reason("node(s) NUMA topology affinity"),
        )

    def filter(self, attempt: Attempt, spec: CpuRequest, rows: Rows) -> Bits | None:
        """Counts decide for most rows; rows with a NUMA policy or a reservation try the plan itself."""
        if not spec.bind and not spec.policy and not self.columns.any_rules:
            return None
        bits = self._counted(attempt, spec, rows)
        exact = (self.columns.policy(rows) > 1) | (spec.policy in (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE))
        if spec.policy:
            exact |= self.columns.policy(rows) > 0
        exact &= self.handle.snapshot.live[rows]
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        for row in attempt.restored:
            exact |= numbers == row
        for index in np.flatnonzero(exact & ((bits == 0) | (bits == SHORT))):
            bits[index] = self._try(attempt, spec, int(numbers[index]))
        return bits

    def _counted(self, attempt: Attempt, spec: CpuRequest, rows: Rows) -> Bits:
        """Filter bits from counts of CPUs: each row's first objection."""
        columns = self.columns
        rule = columns.bind(rows)
        bound = (rule > 0) & (spec.cpu_millicores > 0) | bool(spec.bind)
        full = (rule == FULL_RULE) | ((rule == 0) & (spec.required is CpuBindPolicy.FULL_PCPUS))
        spread = (rule == SPREAD_RULE) | ((rule == 0) & (spec.required is CpuBindPolicy.SPREAD_BY_PCPUS))
        count = -(-spec.cpu_millicores // MILLI)
        available = np.where(full, columns.whole(rows), np.where(spread, columns.cores(rows), columns.free(rows)))
        conflict = np.zeros_like(full)
        if spec.required:
            conflict = (rule > 0) & (rule != BIND_RULES.index(spec.required))
        ratio = columns.hundredths(rows)
        asked = np.where(bound & (ratio > 100), -(-spec.cpu_millicores * ratio // 100), spec.cpu_millicores)
        bound_cpu = columns.bound_millicores(rows)
        cpu = attempt.snapshot.columns[CPU]
        taken = attempt.requested(rows)[:, cpu] - bound_cpu - (-bound_cpu * ratio // 100)
        beyond = (ratio > 100) & (spec.cpu_millicores > 0) & (taken + asked > attempt.snapshot.allocatable[rows, cpu])
        threads = np.maximum(columns.threads(rows), 1)
        objections = (
            (bound & (columns.threads(rows) == 0), NO_TOPOLOGY),
            (bound & (not spec.whole), NOT_WHOLE),
            (bound & conflict, CONFLICT),
            (bound & full & (count % threads != 0), SMT),
            (bound & (available < count), SHORT),
            (beyond, AMPLIFIED),
        )
        bits = np.zeros(rule.shape[0], dtype=np.int64)
        for objection, bit in objections:
            bits = np.where((bits == 0) & objection, bit, bits)
        return bits

    def score(self, attempt: Attempt, spec: CpuRequest, rows: Rows) -> Scores | None:
        """By what is allocated of the node, or of the NUMA nodes that the pod would use."""
        if not spec.bind and not spec.policy and not self.columns.any_rules:
            return None
        concerned = (self.columns.bind(rows) > 0) | (self.columns.policy(rows) > 0) | bool(spec.bind or spec.policy)
        scores = np.zeros(concerned.shape[0], dtype=np.int64)
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        aligned = (self.columns.policy(rows) > 0) | bool(spec.policy)
        for index in np.flatnonzero(concerned & aligned & attempt.snapshot.live[rows]):
            scores[index] = self._numa_score(attempt, spec, int(numbers[index]))
        plain = concerned & ~aligned
        if plain.any():
            scores = np.where(plain, self._node_score(attempt, spec, rows), scores)
        return scores

    def reserve(self, attempt: Attempt, spec: CpuRequest, row: Row) -> Reason | None:
        """Choose CPUs and NUMA nodes and write them to the pod's annotation."""
        try:
            plan = self._plan(attempt, spec, row)
        except (PlanError, PolicyConflictError) as error:
            return Reason(str(error))
        if plan.mask:
            attempt.memo[self.name] = plan.mask
        if plan.cpus or plan.numa:
            attempt.pod.patch[ANNOTATION_RESOURCE_STATUS] = encode_status(plan.cpus, plan.numa)
        return None

    def unreserve(self, attempt: Attempt, spec: CpuRequest, row: Row) -> None:
        """Take the decision back."""
        attempt.pod.patch.pop(ANNOTATION_RESOURCE_STATUS, None)

    def routes(self) -> Mapping[str, Route]:
        """CPU and NUMA allocations of a node."""
        return {
            "nodes/{name}": self._show,
            "availableCPUs/{node_name}": lambda node_name: available_cpus(self._machine(node_name)),
            "cpuTopologyOptions/{node_name}": lambda node_name: topology_options(self._machine(node_name)),
        }

    # Internals

    def _try(self, attempt: Attempt, spec: CpuRequest, row: Row) -> int:
        try:
            self._plan(attempt, spec, row)
        except PolicyConflictError:
            return CONFLICT
        except PlanError as error:
            return SHORT if "CPUs" in str(error) else NUMA
        return 0

    def _plan(self, attempt: Attempt, spec: CpuRequest, row: Row) -> NumaPlan:
        """The plan on a row as this pod sees it, made once per attempt and state of the machine.

        Raises PlanError or PolicyConflictError.
        """
        machine = self.machines.setdefault(row, Machine())
        holders = tuple(
            share.holder.uid for share in attempt.restored.get(row, ()) if share.holder.uid in machine.holders
        )
        plans = attempt.memo.setdefault(PLANS, {})
        key = (row, machine.version, holders)
        if key not in plans:
            plans[key] = self._made(attempt, spec, row, holders)
        plan: NumaPlan = plans[key]
        return plan

    def _made(self, attempt: Attempt, spec: CpuRequest, row: Row, holders: tuple[str, ...]) -> NumaPlan:
        machine = self.machines[row]
        preferred = frozenset().union(*(machine.holders[uid].cpus for uid in holders))
        demand = self._demand(attempt, spec, row)
        peer = self.handle.peers().get("DeviceShare")
        hints: list[list[NumaHint]] = []
        if (demand.node_policy or demand.pod_policy) and isinstance(peer, DeviceHints):
            hints = peer.numa_hints(attempt, row)
        view = machine.without(holders) if holders else machine
        return make_plan(view, demand, preferred=preferred, device_hints=hints)

    def _demand(self, attempt: Attempt, spec: CpuRequest, row: Row) -> NumaDemand:
        labels = attempt.snapshot.node(row).metadata.labels
        rule = BIND_RULES[int(self.columns.bind(slice(row, row + 1))[0])]
        bind = rule or spec.bind
        cpus = None
        if bind and spec.cpu_millicores:
            count = -(-spec.cpu_millicores // MILLI)
            cpus = CpuDemand(count, bind, spec.exclusive, required=bool(rule or spec.required))
        label = labels.get(LABEL_NODE_NUMA_ALLOCATE_STRATEGY, "")
        strategy = label if label in set(NumaStrategy) else self.config.numa_scoring_strategy
        return NumaDemand(
            spec.cpu_millicores,
            spec.memory_bytes,
            cpus,
            NUMA_RULES[int(self.columns.policy(slice(row, row + 1))[0])],
            spec.policy,
            spec.numa_exclusive,
            NumaStrategy(strategy),
        )

    def _node_score(self, attempt: Attempt, spec: CpuRequest, rows: Rows) -> Scores:
        snapshot = attempt.snapshot
        total: Scores = np.zeros(snapshot.live[rows].shape[0], dtype=np.int64)
        asked = {CPU: spec.cpu_millicores, MEMORY: spec.memory_bytes}
        taken = attempt.requested(rows)
        for name, weight in self.config.resources.items():
            column = snapshot.resource_column(name)
            capacity = np.maximum(snapshot.allocatable[rows, column], 1)
            used = taken[:, column] + asked.get(name, 0)
            part = used if self._scoring is NumaStrategy.MOST_ALLOCATED else capacity - used
            total += np.where(used <= capacity, part * 100 // capacity, 0) * weight
        return np.asarray(total // max(1, sum(self.config.resources.values())), dtype=np.int64)

    def _numa_score(self, attempt: Attempt, spec: CpuRequest, row: Row) -> int:
        """On the NUMA nodes of the plan; half when single-NUMA and spanning pods would mix; 0 without a plan."""
        try:
            plan = self._plan(attempt, spec, row)
        except (PlanError, PolicyConflictError):
            return 0
        machine = self.machines[row]
        capacity, used = {}, {}
        for name, amount in ((CPU, spec.cpu_millicores), (MEMORY, spec.memory_bytes)):
            total, free = machine.numa_total(name), machine.numa_free(name)
            nodes = [node for node in total if plan.mask >> node & 1]
            capacity[name] = sum(total[node] for node in nodes)
            used[name] = capacity[name] - sum(free.get(node, 0) for node in nodes) + amount
        score = allocation_score(used, capacity, self.config.resources, self._scoring)
        return score // 2 if plan.mixes and spec.numa_exclusive is NumaExclusive.PREFERRED else score

    def _machine(self, node_name: str) -> Machine:
        """Raises LookupError for an unknown node."""
        row = self.handle.snapshot.row(node_name)
        if row is None or row not in self.machines:
            raise LookupError(f"no node {node_name}")
        return self.machines[row]

    def _show(self, name: str) -> dict[str, Any]:
        machine = self._machine(name)
        return {
            "freeCPUs": format_cpuset(machine.free),
            "withheldCPUs": format_cpuset(machine.shape.withheld),
            "numaFree": {name: machine.numa_free(name) for name in (CPU, MEMORY)},
            "numaStatus": machine.status(),
            "pods": {uid: format_cpuset(hold.cpus) for uid, hold in machine.holders.items()},
        }
