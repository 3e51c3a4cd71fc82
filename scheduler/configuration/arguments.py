"""Plugin arguments of a KubeSchedulerConfiguration as tables of the settings.

Sources: `pkg/scheduler/apis/config/v1/types.go` of Koordinator, `kube-scheduler/config/v1/types_pluginargs.go` of
Kubernetes. An argument left out, null or empty has the default of the settings, which for LoadAwareScheduling is not
upstream's in one point: nodes whose reports are too old still take pods.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from api.kube.resources import QuantityError, parse_resources
from api.kube.times import duration_seconds
from api.settings import SettingsError

Table = dict[str, Any]


class _Refused(Exception):
    """A value that cannot be carried out; the message says why."""


class _ResourceSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    weight: int = 1


class _ShapePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    utilization: int
    score: int


class _Ratio(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shape: list[_ShapePoint] = []


class _Scoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    type: str = "LeastAllocated"
    resources: list[_ResourceSpec] = []
    requested_to_capacity_ratio: _Ratio | None = None


class _SpreadConstraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str


class _PreAllocationConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    enable_cluster_mode: bool = False
    cluster_label_key: str = ""
    cluster_priority_annotation_key: str = ""
    prefer_no_pre_allocated_pods: bool = False


def plugin_settings(name: str, args: Mapping[str, Any], source: str, notes: list[str]) -> Table:
    """Return the table of the plugin called `name`; `notes` gains what is not carried out.

    Raises SettingsError naming the argument.
    """
    where = f"{source}: pluginConfig {name}"
    rows = ARGUMENTS.get(name, {})
    table: Table = {}
    for key, value in args.items():
        if key == "apiVersion" or value is None or value in ("", [], {}):
            continue
        if key == "kind":
            if value != f"{name}Args":
                raise SettingsError(where, "args.kind", f"expected {name}Args")
            continue
        row = rows.get(key)
        if row is None:
            known = ", ".join(sorted(rows)) or "none"
            raise SettingsError(where, f"args.{key}", f"no such argument; there are {known}")
        try:
            done = row(value)
        except (_Refused, QuantityError, msgspec.ValidationError) as error:
            raise SettingsError(where, f"args.{key}", str(error)) from error
        if isinstance(done, str):
            if done:
                notes.append(f"{where}: {key}: {done}")
        else:
            table |= done
    return table


Row = Callable[[Any], Table | str]
"""An argument's value to settings, or to the note of why it has no effect ("" needs none)."""


def _as(key: str) -> Row:
    return lambda value: {key: value}


def _seconds(key: str) -> Row:
    def read(value: Any) -> Table:
        seconds = duration_seconds(value) if isinstance(value, str) else None
        return {key: seconds if seconds is not None else _refuse("expected a duration such as 120s")}

    return read


def _number(key: str) -> Row:
    return lambda value: {key: float(value)} if isinstance(value, int) else _refuse("expected a number of seconds")


def _amounts(key: str) -> Row:
    return lambda value: {key: parse_resources({name: str(text) for name, text in dict(value).items()})}


def _noted(note: str, *, harmless: tuple[Any, ...] = ()) -> Row:
    return lambda value: "" if value in (False, 0, *harmless) else note


def _refuse(problem: str) -> NoReturn:
    raise _Refused(problem)


def _refused(problem: str) -> Row:
    return lambda value: _refuse(problem) if value else {}


def _scoring(key: str, *, weights: str = "resources", ratio: bool = False) -> Row:
    def read(value: Any) -> Table:
        stated = msgspec.convert(value, _Scoring)
        table: Table = {key: stated.type}
        if weights and stated.resources:
            table[weights] = {each.name: each.weight for each in stated.resources}
        if stated.requested_to_capacity_ratio is not None and stated.requested_to_capacity_ratio.shape:
            if not ratio:
                _refuse("requestedToCapacityRatio is NodeResourcesFit's alone")
            table["shape"] = [msgspec.to_builtins(each) for each in stated.requested_to_capacity_ratio.shape]
        return table

    return read


def _aggregated(value: Any) -> Table:
    rows: dict[str, Row] = {
        "usageThresholds": _as("usage_thresholds"),
        "usageAggregationType": _as("usage_aggregation_type"),
        "usageAggregatedDuration": _seconds("usage_aggregated_seconds"),
        "scoreAggregationType": _as("score_aggregation_type"),
        "scoreAggregatedDuration": _seconds("score_aggregated_seconds"),
    }
    table: Table = {}
    for key, each in dict(value).items():
        if key not in rows:
            _refuse(f"no {key} in it; there are {', '.join(rows)}")
        done = rows[key](each)
        if isinstance(done, dict):
            table |= done
    return {"aggregated": table}


def _estimator(value: Any) -> str:
    return "" if value == "defaultEstimator" else f"there is the default estimator only, no {value}"


def _spread(value: Any) -> Table:
    constraints = msgspec.convert(value, list[_SpreadConstraint])
    if any(each.when_unsatisfiable != "ScheduleAnyway" for each in constraints):
        _refuse("default constraints can only be ScheduleAnyway here; state others in the pods")
    return {"default_max_skew": {each.topology_key: each.max_skew for each in constraints}}


def _pre_allocation(value: Any) -> Table:
    config = msgspec.convert(value, _PreAllocationConfig)
    table: Table = {
        "pre_allocation_cluster_mode": config.enable_cluster_mode,
        "prefer_no_pre_allocated_pods": config.prefer_no_pre_allocated_pods,
    }
    if config.cluster_label_key:
        table["pre_allocatable_label"] = config.cluster_label_key
    if config.cluster_priority_annotation_key:
        table["pre_allocatable_priority_annotation"] = config.cluster_priority_annotation_key
    return table


_WORKERS = _noted("")
_NO_NODES_SAMPLED = _noted("")

ARGUMENTS: dict[str, dict[str, Row]] = {
    "LoadAwareScheduling": {
        "filterExpiredNodeMetrics": _as("filter_expired_node_metrics"),
        "nodeMetricExpirationSeconds": _number("node_metric_expiration_seconds"),
        "enableScheduleWhenNodeMetricsExpired": _as("enable_schedule_when_node_metrics_expired"),
        "resourceWeights": _as("resource_weights"),
        "dominantResourceWeight": _as("dominant_resource_weight"),
        "usageThresholds": _as("usage_thresholds"),
        "prodUsageThresholds": _as("prod_usage_thresholds"),
        "prodUsageIncludeSys": _as("prod_usage_include_sys"),
        "scoreAccordingProdUsage": _as("score_according_prod_usage"),
        "estimator": _estimator,
        "estimatedScalingFactors": _as("estimated_scaling_factors"),
        "estimatedSecondsAfterPodScheduled": _number("estimated_seconds_after_pod_scheduled"),
        "estimatedSecondsAfterInitialized": _number("estimated_seconds_after_initialized"),
        "allowCustomizeEstimation": _as("allow_customize_estimation"),
        "aggregated": _aggregated,
        "supportedResources": _noted("only resources with a threshold or a weight are looked at"),
    },
    "NodeNUMAResource": {
        "defaultCPUBindPolicy": _as("default_cpu_bind_policy"),
        "scoringStrategy": _scoring("scoring_strategy"),
        "numaScoringStrategy": _scoring("numa_scoring_strategy", weights=""),
    },
    "DeviceShare": {
        "allocator": _noted(""),
        "scoringStrategy": _scoring("scoring_strategy"),
        "disableDeviceNUMATopologyAlignment": _as("disable_device_numa_topology_alignment"),
        "gpuSharedResourceTemplatesConfig": _noted(
            "templates are read from this scheduler's settings, gpu_shared_resource_templates"
        ),
        "gpuShareUnsupportedModels": _as("gpu_share_unsupported_models"),
    },
    "Reservation": {
        "enablePreemption": _noted("reservations preempt nothing"),
        "minCandidateNodesPercentage": _NO_NODES_SAMPLED,
        "minCandidateNodesAbsolute": _NO_NODES_SAMPLED,
        "controllerWorkers": _WORKERS,
        "gcDurationSeconds": _number("gc_seconds"),
        "gcIntervalSeconds": _noted(""),
        "disableGarbageCollection": _as("disable_garbage_collection"),
        "resyncIntervalSeconds": _noted(""),
        "preAllocationConfig": _pre_allocation,
        "ignoredResources": _refused("a reservation's extended resources are all fitted"),
        "ignoredResourceGroups": _refused("a reservation's extended resources are all fitted"),
        "reservationSelectorIndex": _noted(""),
    },
    "ElasticQuota": {
        "delayEvictTime": _seconds("delay_evict_seconds"),
        "revokePodInterval": _noted(""),
        "defaultQuotaGroupMax": _amounts("default_quota_max"),
        "systemQuotaGroupMax": _amounts("system_quota_max"),
        "quotaGroupNamespace": _as("quota_group_namespace"),
        "monitorAllQuotas": _as("monitor_all_quotas"),
        "enableCheckParentQuota": _as("enable_check_parent_quota"),
        "enableRuntimeQuota": _as("enable_runtime_quota"),
        "enableMinQuotaScale": _as("enable_min_quota_scale"),
        "disableDefaultQuotaPreemption": _as("disable_default_quota_preemption"),
        "enableQueueHint": _noted(""),
        "quotaSnapshotUpdateInterval": _noted(""),
        "hookPlugins": _refused("quotas have no hooks"),
    },
    "Coscheduling": {
        "defaultTimeout": _seconds("default_timeout_seconds"),
        "defaultMatchPolicy": _as("default_match_policy"),
        "controllerWorkers": _WORKERS,
        "skipCheckScheduleCycle": _noted(""),
        "enablePreemption": _noted(""),
        "awareNetworkTopology": _noted(""),
    },
    "SchedulingHint": {"maxHintNodes": _as("max_hint_nodes")},
    "ScarceResourceAvoidance": {"resources": _as("resources")},
    "NodeResourcesFitPlus": {"resources": _as("resources")},
    "NodeResourcesFit": {
        "scoringStrategy": _scoring("strategy", ratio=True),
        "ignoredResources": _as("ignored_resources"),
        "ignoredResourceGroups": _as("ignored_resource_groups"),
    },
    "NodeResourcesBalancedAllocation": {
        "resources": lambda value: {"resources": [each.name for each in msgspec.convert(value, list[_ResourceSpec])]}
    },
    "InterferenceAware": {
        "strict": _as("strict"),
        "minimumSamples": _as("minimum_samples"),
        "halfScoreLostSeconds": _as("half_score_lost_seconds"),
        "sensitiveLostSeconds": _as("sensitive_lost_seconds"),
        "verdictLostSeconds": _as("verdict_lost_seconds"),
        "verdictSeconds": _as("verdict_seconds"),
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": _as("hard_pod_affinity_weight"),
        "ignorePreferredTermsOfExistingPods": _noted("preferred terms of placed pods always count"),
    },
    "PodTopologySpread": {
        "defaultConstraints": _spread,
        "defaultingType": _noted("", harmless=("System", "List")),
    },
    "NodeAffinity": {"addedAffinity": _refused("affinity is the pods' own here; label nodes or taint them instead")},
    "VolumeBinding": {
        "bindTimeoutSeconds": _number("bind_timeout_seconds"),
        "shape": _noted("volumes do not score"),
    },
    "DefaultPreemption": {
        "minCandidateNodesPercentage": _as("min_candidate_nodes_percentage"),
        "minCandidateNodesAbsolute": _as("min_candidate_nodes_absolute"),
    },
    "DynamicResources": {"filterTimeout": _noted(""), "bindingTimeout": _noted("")},
}
"""Arguments by plugin."""
