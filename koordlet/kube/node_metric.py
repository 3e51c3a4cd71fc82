"""The status of a NodeMetric from recent usage, pods, predictions, verdicts and wanted taints. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from api.crds.node_metric import (
    AggregatedUsage,
    HostApplicationUsage,
    NodeMetricStatus,
    NodeUsage,
    PodUsage,
    PredictedAmount,
    ResourceMap,
)
from api.kube.device import DeviceInfo
from api.kube.interference import (
    EXTENSION_INTERFERENCE,
    EXTENSION_THROTTLED,
    EXTENSION_USUAL,
    EXTENSION_WAITED,
    EXTENSION_WANTED_TAINTS,
    EXTENSION_WORKLOAD,
    WantedTaint,
    WireUsualValues,
    WireVerdict,
)
from api.kube.resources import CPU, MEMORY, format_resources
from api.kube.times import rfc3339
from koordlet.identity.host_applications import HostApplicationGroup
from koordlet.identity.pod_lookup import band_with_default, qos_with_default
from koordlet.identity.pods import PodFacts, PodTable
from koordlet.kube.device_history import NODE_UID, DeviceHistory
from koordlet.kube.report_policy import MAX_SPAN_SECONDS, ReportPolicy
from koordlet.kube.usage_meter import TickUsage
from koordlet.kube.usage_series import Quantity, UsageSeries, percentile
from koordlet.kube.verdict_entries import by_victim, extension
from koordlet.prediction.predictors import Prediction

NODE = "node"
SYSTEM = "system"
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
COLD_SHARE = 0.5
"""Share of a window from which its percentiles are reported."""
LIFETIME_INTERVALS = 3.0
"""Lifetime of a verdict or taint in report intervals: those of an agent that has died end soon."""


class UsageHistory:
    """Usage of the node, its pods and applications that reports are made of. Times are monotonic seconds."""

    def __init__(self, interval_seconds: float, policy: ReportPolicy | None = None) -> None:
        """`interval_seconds` is the time between two ticks; samples are taken at most once a second."""
        grain_seconds = max(interval_seconds, 1.0)
        self._grain_seconds = grain_seconds
        self.node = UsageSeries(MAX_SPAN_SECONDS, grain_seconds)
        self.pods = UsageSeries((policy or ReportPolicy()).aggregate_seconds, grain_seconds)
        """By uid."""
        self.applications = UsageSeries((policy or ReportPolicy()).aggregate_seconds, grain_seconds)
        self._policy = policy or ReportPolicy()
        self.devices = DeviceHistory(grain_seconds, MAX_SPAN_SECONDS, self._policy.aggregate_seconds)

    @property
    def nbytes(self) -> int:
        """Size of all rings in bytes."""
        return self.node.nbytes + self.pods.nbytes + self.applications.nbytes + self.devices.nbytes

    def follow(self, policy: ReportPolicy) -> None:
        """Keep usage for as long as the policy needs it; a longer window starts anew."""
        if policy.aggregate_seconds > self._policy.aggregate_seconds:
            self.pods = UsageSeries(policy.aggregate_seconds, self._grain_seconds)
            self.applications = UsageSeries(policy.aggregate_seconds, self._grain_seconds)
            self.devices.span_pods(policy.aggregate_seconds)
            self._policy = policy

    def add(self, usage: TickUsage, now_seconds: float) -> None:
        """Add the usage of a tick and forget who is gone."""
        self.node.append({NODE: usage.node, SYSTEM: usage.system}, now_seconds)
        for series, samples in ((self.pods, usage.pods), (self.applications, usage.applications)):
            series.forget(set(series.keys) - samples.keys())
            series.append(samples, now_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What a report says besides usage."""

    pods: PodTable
    applications: Mapping[str, HostApplicationGroup] = field(default_factory=dict)
    """By name."""
    prediction: Prediction | None = None
    verdicts: Sequence[WireVerdict] = ()
    """Without `until`."""
    taints: Sequence[WantedTaint] = ()
    """Without `until`."""
    usual_values: Sequence[WireUsualValues] = ()
    throttled: Mapping[str, float] = field(default_factory=dict)
    """Seconds a second that pods lost to their own quotas since the last report, by uid."""
    waited: Mapping[str, float] = field(default_factory=dict)
    """The same of waits for CPUs that others held."""


def status_of(
    history: UsageHistory, policy: ReportPolicy, stated: Stated, *, now_seconds: float, wall_seconds: float
) -> NodeMetricStatus:
    """Return the status to report at a time, given on both clocks; what was not measured is left out."""
    since_seconds = now_seconds - policy.aggregate_seconds
    history.devices.forget_before(since_seconds)
    quantities = {CPU: Quantity.CPU, MEMORY: policy.memory}
    of_node = {name: history.node.means(each, since_seconds) for name, each in quantities.items()}
    of_pods = {name: history.pods.means(each, since_seconds) for name, each in quantities.items()}
    of_apps = {name: history.applications.means(each, since_seconds) for name, each in quantities.items()}
    until_seconds = wall_seconds + LIFETIME_INTERVALS * policy.report_seconds
    listed = sorted(stated.pods.pods, key=lambda pod: tuple(pod.name.split("/", 1)))
    usages = {pod.name: usage for pod in listed if (usage := _usage(of_pods, measured_key(history, pod))).resources}
    verdicts = by_victim(stated.verdicts, usages, until_seconds)
    besides: dict[str, object] = {}
    if "" in verdicts:
        besides[EXTENSION_INTERFERENCE] = extension(verdicts, "")
    if stated.taints:
        until = rfc3339(until_seconds)
        taints = [msgspec.to_builtins(msgspec.structs.replace(taint, until=until)) for taint in stated.taints]
        besides[EXTENSION_WANTED_TAINTS] = taints
    if stated.usual_values:
        besides[EXTENSION_USUAL] = msgspec.to_builtins(stated.usual_values)
    prediction = stated.prediction
    return NodeMetricStatus(
        update_time=rfc3339(wall_seconds),
        node_metric=NodeUsage(
            node_usage=_with_devices(_usage(of_node, NODE), history.devices.averages(NODE_UID, since_seconds)),
            aggregated_node_usages=_aggregated(history.node, NODE, policy, now_seconds, history.devices),
            system_usage=_usage(of_node, SYSTEM),
            aggregated_system_usages=_aggregated(history.node, SYSTEM, policy, now_seconds),
        )
        if _usage(of_node, NODE).resources
        else None,
        pods_metric=[
            _pod(
                pod,
                _with_devices(usages[pod.name], history.devices.averages(pod.cgroup_uid or pod.uid, since_seconds)),
                extension(verdicts, pod.name),
                {
                    EXTENSION_THROTTLED: stated.throttled.get(measured_key(history, pod)),
                    EXTENSION_WAITED: stated.waited.get(measured_key(history, pod)),
                },
            )
            for pod in listed
            if pod.name in usages
        ],
        host_application_metric=[
            HostApplicationUsage(name=name, usage=usage, priority=app.priority, qos=app.qos.value)
            for name, app in sorted(stated.applications.items())
            if (usage := _usage(of_apps, name)).resources
        ],
        prod_reclaimable_metric=_predicted(prediction.reclaimable) if prediction else None,
        prod_peak_metric=_predicted(prediction.peak) if prediction else None,
        extensions=besides or None,
    )


def measured_key(history: UsageHistory, pod: PodFacts) -> str:
    """Return the uid that a pod's usage is kept under: that of the API server, or that in its cgroups' names."""
    return pod.uid if pod.uid in history.pods else pod.cgroup_uid or pod.uid


def _pod(pod: PodFacts, usage: ResourceMap, verdicts: dict[str, object], lost: Mapping[str, float | None]) -> PodUsage:
    namespace, _, name = pod.name.partition("/")
    besides: dict[str, object] = {EXTENSION_INTERFERENCE: verdicts} if verdicts else {}
    if pod.workload and pod.workload != pod.name:
        besides[EXTENSION_WORKLOAD] = pod.workload
    besides |= {key: round(seconds, 4) for key, seconds in lost.items() if seconds is not None}
    return PodUsage(
        name=name,
        namespace=namespace,
        pod_usage=usage,
        priority=band_with_default(pod).value,
        qos=qos_with_default(pod).value,
        extensions=besides or None,
    )


def _aggregated(
    series: UsageSeries, key: str, policy: ReportPolicy, now_seconds: float, devices: DeviceHistory | None = None
) -> list[AggregatedUsage]:
    """Return average and percentiles over each window of which at least half has samples, with those of devices."""
    found = []
    for duration_seconds in policy.durations:
        since_seconds = now_seconds - duration_seconds
        if series.span_seconds(since_seconds) < COLD_SHARE * duration_seconds:
            continue
        samples = {
            CPU: series.samples(key, Quantity.CPU, since_seconds),
            MEMORY: series.samples(key, policy.memory, since_seconds),
        }
        usage = {"avg": _resources({name: float(np.mean(each)) for name, each in samples.items() if len(each)})}
        for kind, quantile in PERCENTILES.items():
            usage[kind] = _resources({name: percentile(each, quantile) for name, each in _measured(samples)})
        if devices is not None:
            usage["avg"] = _with_devices(usage["avg"], devices.averages(NODE_UID, since_seconds))
            for kind, quantile in PERCENTILES.items():
                usage[kind] = _with_devices(usage[kind], devices.percentiles(since_seconds, quantile))
        if usage["avg"].resources:
            found.append(AggregatedUsage(usage=usage, duration=go_duration(duration_seconds)))
    return found


def _measured(samples: Mapping[str, NDArray[np.float64]]) -> list[tuple[str, NDArray[np.float64]]]:
    return [(name, each) for name, each in samples.items() if len(each)]


def _usage(figures: Mapping[str, Mapping[str, float]], key: str) -> ResourceMap:
    return _resources({name: by_key[key] for name, by_key in figures.items() if key in by_key})


def _with_devices(usage: ResourceMap, devices: list[DeviceInfo]) -> ResourceMap:
    return msgspec.structs.replace(usage, devices=devices) if devices else usage


def _resources(figures: Mapping[str, float]) -> ResourceMap:
    """Return cores and bytes as quantities, cut to whole millicores and bytes."""
    amounts = {name: int(each * 1000) if name == CPU else int(each) for name, each in figures.items()}
    return ResourceMap(resources={**format_resources(amounts)})


def _predicted(amounts: Mapping[str, int]) -> PredictedAmount:
    return PredictedAmount(resource=ResourceMap(resources={**format_resources(amounts)}))


def go_duration(seconds: float) -> str:
    """Return a duration in the words of Go's standard library: `5m0s`, `1h0m0s`, `1.5s`."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    tail = f"{math.trunc(rest)}s" if rest == math.trunc(rest) else f"{rest:g}s"
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + tail
