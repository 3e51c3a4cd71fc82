"""LoadAwareScheduling: nodes by real usage: hot ones are closed, cool ones preferred; new pods count by estimate.

Percentages and scores are the integers of Koordinator's LoadAwareScheduling; `scheduler.load` holds them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds import NODE_METRIC
from api.kube.annotations import AnnotationError, decode_annotation
from api.kube.objects import Node
from api.kube.pod_requests import effective_limits
from api.kube.resources import CPU, MEMORY, Resources, parse_resources
from api.kube.times import epoch_seconds
from api.protocol import (
    ANNOTATION_ESTIMATED_SCALING_FACTORS,
    ANNOTATION_ESTIMATED_SECONDS_AFTER_INITIALIZED,
    ANNOTATION_ESTIMATED_SECONDS_AFTER_SCHEDULED,
    ANNOTATION_NODE_RAW_ALLOCATABLE,
)
from api.qos import PriorityBand
from cluster.resources import Key, custom
from scheduler.cluster_state.columns import Row, Rows
from scheduler.cluster_state.podinfo import PodClass, PodInfo, read_amounts
from scheduler.framework import Action, Attempt, Bits, Handle, ObjectEvent, Plugin, Reason, Route, Scores, Write
from scheduler.load.columns import load_scores
from scheduler.load.estimate import ScalingFactors, estimated_usage
from scheduler.load.node import Assigned, LoadScope, LoadView
from scheduler.load.report import load_of
from scheduler.load.table import LoadTable, Report, Slot
from scheduler.load.thresholds import Aggregated, Thresholds
from scheduler.priority import band_of

NODE_METRICS = custom(NODE_METRIC)
SWEEP_AT = 256
"""Pods placed and gone from which they are looked for."""


class AggregatedArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits and scores by percentile."""

    usage_thresholds: dict[str, int] = {}
    """Percent per resource; empty filters by the average."""
    usage_aggregation_type: Literal["", "avg", "p50", "p90", "p95", "p99"] = ""
    """Percentile that the limits look at."""
    usage_aggregated_seconds: float = 0.0
    """Window of that percentile; 0 is the longest reported."""
    score_aggregation_type: Literal["", "avg", "p50", "p90", "p95", "p99"] = ""
    """Percentile that scores look at; empty scores by the average."""
    score_aggregated_seconds: float = 0.0
    """Window of that percentile; 0 is the longest reported."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of LoadAwareScheduling."""

    filter_expired_node_metrics: bool = True
    """Reject nodes with an expired report in the filter."""
    node_metric_expiration_seconds: float = 180.0
    """A report this old is expired."""
    enable_schedule_when_node_metrics_expired: bool = True
    """Let nodes with an expired report take pods: an outage of the agents must not close the cluster."""
    resource_weights: dict[str, int] = msgspec.field(default_factory=dict)
    """Weights of the score; empty is cpu 1, memory 1 unless a dominant weight is set."""
    dominant_resource_weight: int = 0
    """Additional weight of a node's scarcest resource."""
    usage_thresholds: dict[str, int] = msgspec.field(default_factory=lambda: {CPU: 65, MEMORY: 95})
    """Percent of allocatable up to which a node takes pods; 0 leaves a resource out."""
    prod_usage_thresholds: dict[str, int] = msgspec.field(default_factory=dict)
    """The same for prod pods, measured on the usage of prod pods; empty treats them like all others."""
    prod_usage_include_sys: bool = False
    """Count the system's usage as prod usage."""
    score_according_prod_usage: bool = False
    """Score prod pods by prod usage."""
    estimated_scaling_factors: dict[str, int] = msgspec.field(default_factory=dict)
    """Percent of request or limit that a pod is expected to use; missing ones are cpu 85, memory 70."""
    estimated_seconds_after_pod_scheduled: float = 0.0
    """Time after placement for which a pod counts by estimate whatever is reported."""
    estimated_seconds_after_initialized: float = 0.0
    """The same after its Initialized condition."""
    allow_customize_estimation: bool = False
    """Honour the annotations of pods about their own estimation."""
    aggregated: AggregatedArgs = AggregatedArgs()
    """Percentiles instead of averages."""

    @property
    def weights(self) -> dict[str, int]:
        """Score weights with the default filled in."""
        if self.resource_weights or self.dominant_resource_weight:
            return self.resource_weights
        return {CPU: 1, MEMORY: 1}


@dataclass(frozen=True, slots=True, eq=False)
class LoadSpec:
    """Expected usage of a class of pods, and the checks that apply to it."""

    estimate: Resources
    amounts: tuple[int, ...]
    """The estimate by resource of the table."""
    prod: bool
    exempt: bool
    """Pods of a DaemonSet are not filtered."""
    after_scheduled: float
    after_initialized: float


class LoadAware(Plugin[LoadSpec]):
    """Filters and scores by measured and estimated load."""

    name = "LoadAwareScheduling"
    rank = 310
    requeue_on = frozenset({"nodes/add", "nodes/update", "pods/delete", "nodemetrics/add", "nodemetrics/update"})
    watches = (NODE_METRICS,)

    def __init__(self, config: Config, handle: Handle) -> None:
        super().__init__(config, handle)
        by = config.aggregated
        self._factors = ScalingFactors().overridden(config.estimated_scaling_factors)
        names = {*config.weights, *config.usage_thresholds, *config.prod_usage_thresholds, *by.usage_thresholds}
        self._table = LoadTable(
            handle.snapshot,
            [*(name for name in (CPU, MEMORY) if name in names), *sorted(names - {CPU, MEMORY})],
            expiration_seconds=config.node_metric_expiration_seconds,
        )
        self._scored = [index for index, name in enumerate(self._table.resources) if name in config.weights]
        self._weights = [config.weights[self._table.resources[index]] for index in self._scored]
        aggregated = Aggregated(
            usage_thresholds=by.usage_thresholds,
            usage_aggregation_type=by.usage_aggregation_type,
            usage_aggregated_duration=f"{by.usage_aggregated_seconds:f}s",
        )
        self._thresholds = Thresholds(
            config.usage_thresholds, config.prod_usage_thresholds, aggregated, config.prod_usage_include_sys
        )
        self._score_views = (
            LoadView(LoadScope.NODE, by.score_aggregation_type, by.score_aggregated_seconds),
            LoadView(LoadScope.PROD, with_system=config.prod_usage_include_sys),
        )
        self._specs: WeakKeyDictionary[PodClass, LoadSpec] = WeakKeyDictionary()
        self._placed_at: dict[str, float] = {}
        """When this scheduler placed a pod, by UID."""
        self._now = 0.0

    # Observer

    def node_changed(self, row: Row, node: Node) -> None:
        """Take up the node's allocatable and its own thresholds."""
        known = row in self._table.rows
        thresholds = self._thresholds.on(node)
        limits = thresholds.general(), thresholds.for_prod()
        views = (limits[0].view, limits[1].view, *self._score_views)
        self._table.set_node(row, _allocatable(node), views, limits)
        metric = self.handle.objects(NODE_METRICS).get(Key("", node.name))
        if not known and metric is not None:
            self._table.set_load(row, load_of(metric), self._now)

    def node_removed(self, row: Row) -> None:
        """Forget the row."""
        self._table.drop_node(row)

    def pod_added(self, row: Row, info: PodInfo) -> None:
        """Count the pod by its estimate until reports show it; a reservation uses nothing until its owners come."""
        if info.stand_in:
            return
        self._table.add_pod(row, info.uid, self._assigned(info))

    def pod_removed(self, row: Row, info: PodInfo) -> None:
        """Forget the pod."""
        if info.stand_in:
            return
        self._table.remove_pod(row, info.uid)

    def on_object(self, event: ObjectEvent) -> None:
        """A report arrived."""
        row = self.handle.snapshot.row(event.key.name)
        if row is not None:
            load = None if event.action is Action.DELETE else load_of(event.after)
            self._table.set_load(row, load, self._now)
            self.handle.snapshot.touch(row)

    def tick(self, now: float) -> Iterable[Write]:
        """Let reports expire, and forget when pods were placed once they are gone."""
        self._now = now
        for row in self._table.expire(now):
            self.handle.snapshot.touch(row)
        if len(self._placed_at) > 2 * len(self.handle.snapshot.pods) + SWEEP_AT:
            self._placed_at = {uid: at for uid, at in self._placed_at.items() if uid in self.handle.snapshot.pods}
        return ()

    # One attempt

    def prepare(self, info: PodInfo) -> LoadSpec:
        """Estimate the class."""
        spec = self._specs.get(info.cls)
        if spec is None:
            spec = self._specs[info.cls] = self._estimated(info)
        return spec

    def reasons(self, spec: LoadSpec) -> tuple[Reason, ...]:
        """Expired report, then each resource by average, then each by percentile."""
        return (
            Reason("node(s) with an expired NodeMetric"),
            *(Reason(f"node(s) {name} usage exceed threshold") for name in self._table.resources),
            *(Reason(f"node(s) {name} aggregated usage exceed threshold") for name in self._table.resources),
        )

    def filter(self, attempt: Attempt, spec: LoadSpec, rows: Rows) -> Bits | None:
        """Nodes whose usage with the pod would exceed a threshold, or that have no recent report."""
        if spec.exempt:
            return None
        table = self._table
        slot = Slot.FILTER_PROD if spec.prod else Slot.FILTER
        report = table.report(rows)
        old = report == Report.EXPIRED
        over: Bits | None = None
        for index, amount in enumerate(spec.amounts):
            exceeded = table.exceeded(slot, index, amount, rows)
            if exceeded.any():
                over = exceeded.astype(np.int64) << index if over is None else over | exceeded.astype(np.int64) << index
        if over is None and not old.any():
            return None
        return self._bits(over, old, slot=slot, rows=rows, known=report == Report.FRESH)

    def score(self, attempt: Attempt, spec: LoadSpec, rows: Rows) -> Scores | None:
        """Free share of what matters; nodes without a recent report have 0."""
        if not self._scored:
            return None
        slot = Slot.SCORE_PROD if spec.prod and self.config.score_according_prod_usage else Slot.SCORE
        table = self._table
        allocatable, used = table.allocatable(rows), table.used(slot, rows)
        scores: Scores = load_scores(
            [allocatable[index] for index in self._scored],
            [used[index] + spec.amounts[index] for index in self._scored],
            weights=self._weights,
            dominant_weight=self.config.dominant_resource_weight,
        )
        scores *= table.report(rows) == Report.FRESH
        return scores

    def reserve(self, attempt: Attempt, spec: LoadSpec, row: Row) -> Reason | None:
        """Note when the pod is placed."""
        self._now = max(self._now, attempt.now)
        attempt.memo[self.name] = self._placed_at.get(attempt.pod.uid)
        self._placed_at[attempt.pod.uid] = attempt.now
        return None

    def unreserve(self, attempt: Attempt, spec: LoadSpec, row: Row) -> None:
        """The pod was not placed after all."""
        before = attempt.memo.get(self.name)
        if before is None:
            self._placed_at.pop(attempt.pod.uid, None)
        else:
            self._placed_at[attempt.pod.uid] = before

    def routes(self) -> Mapping[str, Route]:
        """Report and usage of a node."""
        return {"node/{name}": self.describe}

    def describe(self, name: str) -> dict[str, Any]:
        """Report and assumed usage of a node. LookupError for an unknown node."""
        row = self.handle.snapshot.row(name)
        if row is None:
            raise LookupError(f"no node {name}")
        table = self._table
        state = table.rows[row]
        used = {slot.name.lower(): [int(each[row]) for each in table.used(slot, slice(None))] for slot in Slot}
        return {
            "node": name,
            "report": Report(int(table.report(slice(row, row + 1))[0])).name.lower(),
            "updateSeconds": state.load.update_seconds if state.load else None,
            "used": {slot: dict(zip(table.resources, amounts, strict=True)) for slot, amounts in used.items()},
            "assignedPods": {pod.key: pod.estimate for pod in state.assigned.values()},
        }

    # Internals

    def _bits(
        self,
        over: Bits | None,
        old: NDArray[np.bool_],
        *,
        slot: Slot,
        rows: Rows,
        known: NDArray[np.bool_],
    ) -> Bits:
        """Reason bits: exceeded limits where the report counts, and old reports where they matter."""
        table, config = self._table, self.config
        bits: Bits = np.zeros(old.shape[0], dtype=np.int64)
        if over is not None:
            counts = known if config.filter_expired_node_metrics else known | old
            bits = np.where(counts, over << (1 + len(table.resources) * table.by_percentile(rows)), 0)
        if config.filter_expired_node_metrics and not config.enable_schedule_when_node_metrics_expired:
            bits |= table.limited(slot, rows) & old
        return bits

    def _estimated(self, info: PodInfo) -> LoadSpec:
        pod, config = info.pod, self.config
        factors = self._factors
        windows = [config.estimated_seconds_after_pod_scheduled, config.estimated_seconds_after_initialized]
        if config.allow_customize_estimation:
            annotations = pod.metadata.annotations
            factors = factors.overridden(_factors(annotations.get(ANNOTATION_ESTIMATED_SCALING_FACTORS)))
            for index, key in enumerate(
                (ANNOTATION_ESTIMATED_SECONDS_AFTER_SCHEDULED, ANNOTATION_ESTIMATED_SECONDS_AFTER_INITIALIZED)
            ):
                text = annotations.get(key, "")
                windows[index] = float(text) if text.isdecimal() else windows[index]
        band = band_of(pod)
        estimate = estimated_usage(info.requests, effective_limits(pod, read_amounts), band=band, factors=factors)
        amounts = tuple(estimate.get(name, 0) for name in self._table.resources)
        owner = pod.metadata.controlled_by
        return LoadSpec(
            estimate,
            amounts,
            band is PriorityBand.PROD,
            owner is not None and owner.kind == "DaemonSet",
            *windows,
        )

    def _assigned(self, info: PodInfo) -> Assigned:
        spec = self.prepare(info)
        conditions = {item.type: item for item in info.pod.status.conditions if item.status == "True"}
        placed = self._placed_at.get(info.uid)
        if placed is None:
            scheduled = conditions.get("PodScheduled")
            placed = epoch_seconds(scheduled.last_transition_time) if scheduled else None
        if placed is None:
            placed = epoch_seconds(info.pod.status.start_time or info.pod.metadata.creation_timestamp) or 0.0
        until = placed + spec.after_scheduled if spec.after_scheduled > 0 else None
        initialized = conditions.get("Initialized")
        since = epoch_seconds(initialized.last_transition_time) if initialized else None
        if since is not None and spec.after_initialized > 0:
            until = since + spec.after_initialized
        return Assigned(info.key, spec.estimate, placed, spec.prod, until)


def _allocatable(node: Node) -> Resources:
    """Amounts that usage is compared with: those before amplification where the node reports them."""
    amounts = parse_resources(node.status.allocatable)
    text = node.metadata.annotations.get(ANNOTATION_NODE_RAW_ALLOCATABLE)
    if text:
        try:
            amounts |= parse_resources(decode_annotation(text, dict[str, str | int | float]))
        except ValueError:
            return amounts
    return amounts


def _factors(text: str | None) -> dict[str, int]:
    """A pod's own scaling factors; unreadable ones are passed over."""
    if not text:
        return {}
    try:
        return decode_annotation(text, dict[str, int])
    except AnnotationError:
        return {}
