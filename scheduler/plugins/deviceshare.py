"""DeviceShare: GPUs whole and shared, NICs and FPGAs, by topology and partition, or where they fragment least."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import DEVICE
from api.kube.objects import Node
from api.kube.resources import CPU, parse_quantity, parse_resources
from api.protocol import (
    ANNOTATION_DEVICE_ALLOCATED,
    ANNOTATION_RESERVATION_ALLOCATED,
    FPGA,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    LABEL_NODE_GPU_PARTITION_POLICY,
    RDMA,
)
from cluster.resources import NODES, PODS, Key, Resource, custom, merge_patch
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodInfo
from scheduler.devices.allocator import DeviceRequest, PartitionRule, allocate
from scheduler.devices.candidates import DeviceError, DevicePreferences, DeviceStrategy
from scheduler.devices.fragmentation import GpuState, TaskType
from scheduler.devices.inventory import Grant, NodeDevices
from scheduler.devices.ledger import DeviceLedger, summary
from scheduler.devices.mix import WorkloadMix
from scheduler.devices.numahints import device_hints
from scheduler.devices.partition import default_table
from scheduler.devices.payload import PodDeviceRequest, drawn_from, encode_grants, read_request
from scheduler.devices.request import WHOLE_PERCENT, DeviceKind, DeviceRequestError, device_demands
from scheduler.devices.scoring import gradient_scores, look_ahead, ranked, remainder_scores, usage_scores
from scheduler.devices.template import Template
from scheduler.devices.vendors import (
    HAMI_CORE,
    LABEL_HAMI_NODE,
    LOCK_SECONDS,
    LOCKS,
    GivenGpu,
    NodeLock,
    NodeLocks,
    gpu_annotations,
    time_annotations,
)
from scheduler.framework import Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Route, Scores, Verb, Write, scaled
from scheduler.numa.hints import NumaHint

DEVICES = custom(DEVICE)
LABEL_ISOLATION = "koordinator.sh/gpu-isolation-provider"
LABEL_MODEL = "node.koordinator.sh/gpu-model"
LABEL_VENDOR = "node.koordinator.sh/gpu-vendor"
NUMA_MEMO = "NodeNUMAResource"
"""Where the NUMA plugin leaves the mask of NUMA nodes it chose, in `Attempt.memo`."""


class UnsupportedModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A GPU model that cannot be shared; empty fields match anything."""

    vendor: str = ""
    model: str = ""


class PodKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of pod of the workload, for Fragmentation."""

    cpu_millicores: int
    gpus: int = 0
    gpu_percent: int = 100
    weight: float = 1.0
    models: list[str] = []
    """GPU models that serve it; empty for any."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of DeviceShare."""

    scoring_strategy: Literal["LeastAllocated", "MostAllocated", "BestFit", "Fragmentation"] = "LeastAllocated"
    """Spread; pack by share of the node; leave the least cpu and GPU over; or leave over what the workload's own
    mix of pods can use."""
    resources: dict[str, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys((GPU_MEMORY_RATIO, GPU_MEMORY, RDMA, FPGA), 1)
    )
    """Weights of the scored resources."""
    disable_device_numa_topology_alignment: bool = False
    """Keep devices out of NUMA alignment."""
    gpu_share_unsupported_models: list[UnsupportedModel] = []
    """Models that only serve whole."""
    gpu_shared_resource_templates: dict[str, dict[str, dict[str, str | int | float]]] = {}
    """Shapes in which the cards of a model are shared: `<vendor>-<model>` to template name to amounts."""
    workload: list[PodKind] = []
    """The mix of pods for Fragmentation; empty learns it from the pods that arrive."""
    look_ahead: Annotated[int, msgspec.Meta(ge=0, le=256)] = 0
    """Nodes of least fragmentation, by Fragmentation, that are also filled up with pods of the mix in thought: the one
    of them is taken that leaves the least unused. 8 is a good number; 0 is off."""
    device_plugin_adaption: bool = False
    """Tell device plugins of vendors what a pod was given, by annotations of the pod, and lock the nodes of those that
    serve one pod at a time. Needs the right to patch nodes, and pods that HAMi-core isolates: value
    `scheduler.devicePluginAdaption` of the chart."""


@dataclass(frozen=True, slots=True)
class DeviceClassSpec:
    """Device request of a class of pods."""

    request: PodDeviceRequest
    task: TaskType
    isolation: str = ""
    error: str = ""

    @property
    def shared(self) -> bool:
        """Return whether the pod shares a GPU."""
        gpu = self.request.demands.get(DeviceKind.GPU)
        return gpu is not None and gpu.shared


SHARE_REFUSED, ISOLATION, RULES = 1, 2, 4
KINDS = tuple(DeviceKind)
SHORT = 8
"""First bit of the reasons "Insufficient <kind> devices", in order of DeviceKind."""


def _task_type(kind: PodKind) -> TaskType:
    return TaskType(kind.cpu_millicores, kind.gpus, kind.gpu_percent, kind.weight, frozenset(kind.models))


class DeviceShare(Plugin[DeviceClassSpec]):
    """Filters, scores and allocates devices; see the module docstring."""

    name: ClassVar[str] = "DeviceShare"
    rank: ClassVar[int] = 340
    requeue_on: ClassVar[frozenset[str]] = frozenset(
        {"nodes/add", "nodes/update", "pods/delete", "devices/add", "devices/update"}
    )
    watches: ClassVar[tuple[Resource[Any], ...]] = (DEVICES,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        self.ledger = DeviceLedger()
        self._fragmentation = config.scoring_strategy == "Fragmentation"
        self._by_remainder = config.scoring_strategy in ("Fragmentation", "BestFit")
        self._strategy = DeviceStrategy("MostAllocated" if self._by_remainder else config.scoring_strategy)
        self._templates = {
            model: tuple(Template(name, parse_resources(amounts)) for name, amounts in shapes.items())
            for model, shapes in config.gpu_shared_resource_templates.items()
        }
        self._model = handle.snapshot.column(np.int64, 0)
        self._honors = handle.snapshot.column(bool, False)
        """Rows whose node gives whole GPUs by partition only."""
        self._mix = WorkloadMix([_task_type(kind) for kind in config.workload])
        self._locks = NodeLocks()
        self._bound_at_ns = 0
        """Time that the pod bound last was told."""
        self._now = 0.0

    # Observer

    def on_object(self, event: ObjectEvent) -> None:
        """A node reported its devices."""
        row = self.handle.snapshot.row(event.key.name)
        if row is not None:
            self.ledger.refit(row, event.after)
            self.handle.snapshot.touch(row)

    def node_changed(self, row: Row, node: Node) -> None:
        """Take up the devices that were reported before the node appeared."""
        self.ledger.columns.ensure(row + 1)
        self._honors.values[row] = node.metadata.labels.get(LABEL_NODE_GPU_PARTITION_POLICY) == "Honor"
        self._model.values[row] = self._mix.model(node.metadata.labels.get(LABEL_MODEL, ""))
        self._locks.seen(node.name, node.metadata.annotations)
        device = self.handle.objects(DEVICES).get(Key("", node.name))
        if device is not None and row not in self.ledger.nodes:
            self.ledger.refit(row, device)

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self.ledger.forget(row)
        self._locks.forget(self.handle.snapshot.names[row])

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Charge what the pod's annotation says it was given."""
        text = info.annotation(ANNOTATION_DEVICE_ALLOCATED)
        if not text:
            return
        try:
            request = read_request(info.pod.metadata.annotations, device_demands(info.requests))
        except DeviceRequestError:
            return
        within = drawn_from(info.annotation(ANNOTATION_RESERVATION_ALLOCATED))
        self.ledger.charge(row, info.uid, text, request, within)

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Give the pod's devices back."""
        self.ledger.discharge(row, info.uid)

    def pod_queued(self, info: PodInfo) -> None:
        """Count the pod into the learned mix."""
        if self._fragmentation and self._mix.learns:
            spec = self.prepare(info)
            if spec is not None and not spec.error:
                self._mix.see(spec.task)

    def tick(self, now: float) -> Iterable[Write]:
        """Take up what the mix has learned."""
        self._now = now
        if self._fragmentation and self._mix.refresh():
            self.handle.invalidate()
        return ()

    # One attempt

    def prepare(self, info: PodInfo) -> DeviceClassSpec | None:
        """Read the pod's demand; pods without one matter for the CPU they take off GPU nodes."""
        cpu = info.requests.get(CPU, 0)
        try:
            demands = device_demands(info.requests)
            if not demands and not self._by_remainder:
                return None
            pod_request = read_request(info.pod.metadata.annotations, demands)
        except DeviceRequestError as error:
            return DeviceClassSpec(PodDeviceRequest({}, {}), TaskType(cpu, 0, 0, 1.0), error=str(error))
        gpu = pod_request.demands.get(DeviceKind.GPU)
        percent = gpu.each.get(GPU_MEMORY_RATIO, WHOLE_PERCENT) if gpu else 0
        task = TaskType(cpu, gpu.count if gpu else 0, percent, 1.0)
        return DeviceClassSpec(pod_request, task, info.labels.get(LABEL_ISOLATION, ""))

    def pre_filter(self, attempt: Attempt, spec: DeviceClassSpec) -> Reason | None:
        """Refuse requests that contradict the protocol."""
        return Reason(spec.error, resolvable=False) if spec.error else None

    def reasons(self, spec: DeviceClassSpec) -> tuple[Reason, ...]:
        """Meaning of the filter's bits."""
        return (
            Reason("node(s) GPU model that cannot be shared", resolvable=False),
            Reason("node(s) without the pod's GPU isolation provider", resolvable=False),
            Reason("node(s) device topology, partition or joint allocation not possible"),
            *(Reason(f"Insufficient {kind} devices") for kind in DeviceKind),
        )

    def filter(self, attempt: Attempt, spec: DeviceClassSpec, rows: Rows) -> Bits | None:
        """Count free devices everywhere; try the allocation itself where more than counting decides."""
        if not spec.request.demands:
            return None
        known = self.ledger.columns.known[rows]
        bits = np.zeros(known.shape[0], dtype=np.int64)
        for kind, demand in spec.request.demands.items():
            short = known & (self.ledger.columns.fitting(demand, rows) < demand.count)
            bits |= short * (SHORT << KINDS.index(kind))
        if spec.request.plain and not attempt.restored and not self._ruled(spec):
            return bits
        numbers = np.arange(attempt.snapshot.rows_used)[rows]
        ruled = self._honors.values[rows] | (not spec.request.plain) | (spec.shared and self._ruled(spec))
        for row in attempt.restored:
            ruled |= numbers == row
        for index in np.flatnonzero(known & ruled & attempt.snapshot.live[rows]):
            bits[index] = self._try(attempt, spec, int(numbers[index]))
        return bits

    def score(self, attempt: Attempt, spec: DeviceClassSpec, rows: Rows) -> Scores | None:
        """By the configured strategy."""
        if self.config.scoring_strategy == "BestFit":
            return remainder_scores(self.gpu_state(rows, attempt), spec.task)
        if self._fragmentation:
            return self._gradient(attempt, spec, rows)[0]
        return sum(
            (
                usage_scores(self.ledger.columns, demand, self.config.resources, self._strategy, rows)
                for demand in spec.request.demands.values()
            ),
            np.zeros(self.ledger.columns.known[rows].shape[0], dtype=np.int64),
        )

    def normalize(self, attempt: Attempt, spec: DeviceClassSpec, scores: Scores, feasible: NDArray[np.bool_]) -> Scores:
        """To 0..100 over the feasible rows."""
        if self._fragmentation and self.config.look_ahead:
            state = self.gpu_state(attempt.snapshot.all_rows, attempt)
            scores = look_ahead(self._mix.filling, state, spec.task, scores, feasible, self.config.look_ahead)
        return ranked(scores, feasible) if self._by_remainder else scaled(scores, feasible)

    def reserve(self, attempt: Attempt, spec: DeviceClassSpec, row: Row) -> Reason | None:
        """Choose the devices and write them to the pod's annotation."""
        if not spec.request.demands or not self.ledger.columns.known[row]:
            return None
        request = self._request(attempt, spec, row, attempt.memo.get(NUMA_MEMO, 0))
        if self._fragmentation and spec.task.gpus == 1 and spec.request.plain:
            request = self._least_fragmenting(attempt, spec, row, request)
        try:
            grants = allocate(self._view(attempt, row), request)
            told = self._told(grants, row) if self.config.device_plugin_adaption else {}
        except DeviceError as error:
            return Reason(str(error))
        attempt.pod.patch[ANNOTATION_DEVICE_ALLOCATED] = encode_grants(grants, self.ledger.nodes[row])
        attempt.pod.patch.update(told)
        return None

    def unreserve(self, attempt: Attempt, spec: DeviceClassSpec, row: Row) -> None:
        """Take the decision back."""
        attempt.pod.patch.pop(ANNOTATION_DEVICE_ALLOCATED, None)

    def pre_bind(self, attempt: Attempt, spec: DeviceClassSpec, row: Row) -> Reason | Sequence[Write]:
        """Tell the node's device plugin the time, and lock the node for plugins that serve one pod at a time."""
        info = attempt.pod
        if not self.config.device_plugin_adaption or info.stand_in or ANNOTATION_DEVICE_ALLOCATED not in info.patch:
            return ()
        node, shares_gpu = attempt.snapshot.node(row), DeviceKind.GPU in spec.request.demands
        vendor = self._vendor_and_model(row)[0] if shares_gpu else ""
        writes: list[Write] = []
        now = max(attempt.now, self._now)
        if vendor in LOCKS:
            key, lock = LOCKS[vendor], NodeLock(now, info.key)
            try:
                held = self._locks.held(node.name, key, node.metadata.annotations)
            except DeviceError as error:
                return Reason(f"node {node.name}: annotation {key}: {error}")
            if held is not None and self._still_held(held, info, row, now):
                return Reason(f"node {node.name} is locked for pod {held.pod} until its device plugin has served it")
            self._locks.take(node.name, key, lock)
            writes.append(
                Write(
                    Verb.PATCH, NODES, Key("", node.name), merge_patch({"metadata": {"annotations": {key: lock.text}}})
                )
            )
        if shares_gpu and info.labels.get(LABEL_ISOLATION) == HAMI_CORE:
            body = {"metadata": {"uid": info.uid, "labels": {LABEL_HAMI_NODE: node.name}}}
            writes.append(Write(Verb.PATCH, PODS, Key(info.namespace, info.pod.metadata.name), merge_patch(body)))
        self._bound_at_ns = max(self._bound_at_ns + 1, int(now * 1e9))
        info.patch.update(time_annotations(vendor, self._bound_at_ns))
        return writes

    def numa_hints(self, attempt: Attempt, row: Row) -> list[list[NumaHint]]:
        """NUMA hints of the pod's devices on a row, for the plugin that aligns; none when it requests none."""
        spec = self.prepare(attempt.pod)
        aligned = not self.config.disable_device_numa_topology_alignment
        if spec is None or spec.error or not aligned or not self.ledger.columns.known[row]:
            return []
        return device_hints(self._view(attempt, row), self._request(attempt, spec, row))

    def routes(self) -> Mapping[str, Route]:
        """Device allocations by node."""
        return {"nodeDeviceSummaries": self._summaries, "nodeDeviceSummaries/{name}": self._summary}

    # Internals

    def _told(self, grants: Sequence[Grant], row: Row) -> dict[str, str]:
        """What the node's device plugin is told of the GPUs; empty without any."""
        devices = self.ledger.nodes[row].devices.get(DeviceKind.GPU, {})
        gpus = [GivenGpu(grant, devices[grant.minor].id) for grant in grants if grant.kind is DeviceKind.GPU]
        return gpu_annotations(gpus, *self._vendor_and_model(row)) if gpus else {}

    def _vendor_and_model(self, row: Row) -> tuple[str, str]:
        """Vendor and model of a node's GPUs, by its Device object or else the node itself."""
        node = self.handle.snapshot.node(row)
        device = self.handle.objects(DEVICES).get(Key("", node.name))
        labels = node.metadata.labels | (device.metadata.labels if device is not None else {})
        return labels.get(LABEL_VENDOR, ""), labels.get(LABEL_MODEL, "")

    def _still_held(self, lock: NodeLock, info: PodInfo, row: Row, now: float) -> bool:
        """Return whether a lock keeps the pod away: it is young, and another's that is on the node."""
        others = {other.key for other in self.handle.snapshot.residents[row].values() if other.uid != info.uid}
        return now - lock.at_seconds <= LOCK_SECONDS and lock.pod in others

    def _ruled(self, spec: DeviceClassSpec) -> bool:
        """Return whether some node may add a rule of its own for such pods."""
        if spec.shared:
            return bool(spec.isolation or self.config.gpu_share_unsupported_models or self._templates)
        return DeviceKind.GPU in spec.request.demands

    def _try(self, attempt: Attempt, spec: DeviceClassSpec, row: Row) -> int:
        labels = attempt.snapshot.node(row).metadata.labels
        if spec.shared and self._unsupported(labels):
            return SHARE_REFUSED
        if spec.shared and spec.isolation and labels.get(LABEL_ISOLATION) != spec.isolation:
            return ISOLATION
        try:
            allocate(self._view(attempt, row), self._request(attempt, spec, row))
        except DeviceError as error:
            short = [SHORT << at for at, kind in enumerate(KINDS) if str(error) == f"Insufficient {kind} devices"]
            return short[0] if short else RULES
        return 0

    def _unsupported(self, labels: Mapping[str, str]) -> bool:
        return any(
            model.vendor in ("", labels.get(LABEL_VENDOR)) and model.model in ("", labels.get(LABEL_MODEL))
            for model in self.config.gpu_share_unsupported_models
        )

    def _view(self, attempt: Attempt, row: Row) -> NodeDevices:
        return self.ledger.view(row, (share.holder.uid for share in attempt.restored.get(row, ())))

    def _request(self, attempt: Attempt, spec: DeviceClassSpec, row: Row, numa_mask: int = 0) -> DeviceRequest:
        pod_request, labels = spec.request, attempt.snapshot.node(row).metadata.labels
        holders = [share.holder.uid for share in attempt.restored.get(row, ())]
        reserved = self.ledger.reserved_minors(row, holders) if holders else {}
        narrowed = {
            kind: replace(
                pod_request.preferences.get(kind, DevicePreferences()),
                first=reserved.get(kind, ()),
                numa_mask=numa_mask,
            )
            for kind in pod_request.demands
        }
        pod_rule = pod_request.partition
        rule = PartitionRule(
            self.ledger.nodes[row].partitions or default_table(labels.get(LABEL_MODEL, "")),
            honor=labels.get(LABEL_NODE_GPU_PARTITION_POLICY) == "Honor",
            best_only=pod_rule is not None and pod_rule.allocate_policy == "Restricted",
            bandwidth=parse_quantity(pod_rule.ring_bus_bandwidth) if pod_rule is not None else 0,
        )
        return DeviceRequest(
            pod_request.demands,
            narrowed,
            pod_request.joint,
            pod_request.same_pcie,
            rule,
            self._templates.get(f"{labels.get(LABEL_VENDOR, '')}-{labels.get(LABEL_MODEL, '')}", ()),
            self._strategy,
        )

    def gpu_state(self, rows: Rows, attempt: Attempt | None = None) -> GpuState:
        """Free cpu and GPUs of the rows, as the attempted pod sees them."""
        snapshot = self.handle.snapshot
        cpu = snapshot.columns[CPU]
        taken = attempt.requested(rows) if attempt is not None else snapshot.requested[rows]
        free = snapshot.allocatable[rows, cpu] - taken[:, cpu]
        return GpuState(free, self.ledger.columns.gpu_percent(rows), self._model.values[rows])

    def _gradient(self, attempt: Attempt, spec: DeviceClassSpec, rows: Rows) -> tuple[Scores, Scores]:
        return gradient_scores(self._mix.workload, self.gpu_state(rows, attempt), spec.task)

    def _least_fragmenting(
        self, attempt: Attempt, spec: DeviceClassSpec, row: Row, request: DeviceRequest
    ) -> DeviceRequest:
        """The request with the GPU of least fragmentation preferred."""
        rows = slice(row, row + 1)
        if self.config.look_ahead:
            position = int(self._mix.filling.gradient(self.gpu_state(rows, attempt), spec.task).gpu[0])
        else:
            position = int(self._gradient(attempt, spec, rows)[1][0])
        preferences = request.preferences_for(DeviceKind.GPU)
        if position < 0 or preferences.first:
            return request
        minor = self.ledger.nodes[row].of_kind(DeviceKind.GPU)[position].minor
        return replace(
            request, preferences={**request.preferences, DeviceKind.GPU: replace(preferences, first=(minor,))}
        )

    def _summaries(self) -> dict[str, Any]:
        names = self.handle.snapshot.names
        return {names[row]: summary(ledger) for row, ledger in self.ledger.nodes.items()}

    def _summary(self, name: str) -> dict[str, Any]:
        row = self.handle.snapshot.row(name)
        if row is None or row not in self.ledger.nodes:
            raise LookupError(f"no devices known of node {name}")
        return summary(self.ledger.nodes[row])
