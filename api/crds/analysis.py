"""Knowledge about workloads: resource needs (Recommendation) and sensitivity to neighbours (WorkloadProfile).

The model behind WorkloadProfile: on a node, the *pressure* on a resource is the share of that resource's
capacity that neighbours take, from 0 to 1. A workload's *sensitivity* is the seconds it loses per second per
unit of pressure, at a given load of its own; its *aggressiveness* is the pressure that one replica of it
exerts. The lost seconds per second that resident i is predicted to suffer are

    sum over resources r of sensitivity(i, r, load of i) x sum over neighbours j of aggressiveness(j, r)
"""

from typing import Annotated

import msgspec

from api.crds.definition import TIME, Column, Definition, among, between
from api.kube.interference import UsualValues
from api.kube.meta import Condition, LabelSelector, ObjectMeta, ResourceList, Wire

MAX_USUAL_VALUES = 48
"""Usual values in one profile, so that tens of thousands of them fit."""
MAX_USAGE_CONTAINERS = 8
"""Containers of one profile whose use is stated."""
MAX_USAGE_BUCKETS = 176
"""Buckets of the recommender's histograms."""


class WorkloadReference(Wire, frozen=True, kw_only=True):
    """The object whose pods are meant: the owner that a human would name (Deployment, not ReplicaSet)."""

    kind: str
    name: str
    api_version: str = ""


class RecommendationTarget(Wire, frozen=True, kw_only=True):
    """A workload, or all pods that a selector selects."""

    type: Annotated[str, among("workload", "podSelector")]
    workload: WorkloadReference | None = None
    pod_selector: LabelSelector | None = None


_TARGETED = msgspec.Meta(
    extra_json_schema={
        "x-kubernetes-validations": [
            {
                "rule": "self.type == 'workload' ? has(self.workload) : has(self.podSelector)",
                "message": "type workload needs workload, type podSelector needs podSelector",
            }
        ]
    }
)


class RecommendationSpec(Wire, frozen=True, kw_only=True):
    """Target of the recommendation."""

    target: Annotated[RecommendationTarget, _TARGETED]


class ContainerRecommendation(Wire, frozen=True, kw_only=True):
    """Recommended requests of one container."""

    container_name: str
    resources: ResourceList = {}


class PodRecommendation(Wire, frozen=True, kw_only=True):
    """Recommended requests of one pod of the target."""

    container_statuses: list[ContainerRecommendation] = []


class RecommendationStatus(Wire, frozen=True, kw_only=True):
    """The recommendation and how far to trust it (conditions LowConfidence, FetchingHistory and others)."""

    pod_status: PodRecommendation | None = None
    update_time: Annotated[str, TIME] | None = None
    conditions: list[Condition] = []


class Recommendation(Wire, frozen=True, kw_only=True):
    """Recommended resources of a workload."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RecommendationSpec
    status: RecommendationStatus = RecommendationStatus()


class WorkloadProfileSpec(Wire, frozen=True, kw_only=True):
    """Whose profile it is: one container of a workload in the object's namespace, on one type of node.

    `node_type` is a value of the label `node.kubernetes.io/instance-type` ("" is any type).
    """

    workload: WorkloadReference
    container: str
    node_type: str = ""


class SensitivityBin(Wire, frozen=True, kw_only=True):
    """Sensitivity while the container's own CPU use is in [load_from, load_to) of its request.

    `lost_seconds_per_pressure` is lost seconds per second per unit of pressure; `error` its standard error
    in the same unit.
    """

    load_from: float
    load_to: float
    lost_seconds_per_pressure: float
    error: float | None = None
    samples: Annotated[int, between(0)] = 0


class ResourceInterference(Wire, frozen=True, kw_only=True):
    """One resource: how pressure on it hurts, and how much pressure one replica exerts (mean and p95).

    `load_from` ascends over the bins; gaps between bins have not been observed.
    """

    name: Annotated[
        str, among("cpu", "cpu-smt", "cache", "memory-bandwidth", "memory", "block-io", "network", "kernel")
    ]
    sensitivity: list[SensitivityBin] = []
    aggressiveness: float = 0.0
    aggressiveness_p95: float | None = None


class UsageHistogram(Wire, frozen=True, kw_only=True):
    """How use is spread: thousandths of the samples' weight by bucket of the recommender, from bucket `first` on.

    Bucket n begins at w * (1.05^n - 1) / 0.05, where w is 0.01 cores or 10 MB; without shares nothing was measured.
    """

    first: Annotated[int, between(0, MAX_USAGE_BUCKETS - 1)] = 0
    shares: Annotated[
        list[Annotated[int, between(0, 1000)]], msgspec.Meta(extra_json_schema={"maxItems": MAX_USAGE_BUCKETS})
    ] = []


class ContainerUsage(Wire, frozen=True, kw_only=True):
    """What the containers of one name used: CPU by sample, memory by the peak of each day, new samples weigh more."""

    container: str
    days: float = 0.0
    """Confidence: days of history, at most one for each 1,440 samples."""
    cpu: UsageHistogram = UsageHistogram()
    memory: UsageHistogram = UsageHistogram()


MAX_MODELS_CHARS = 32_768
"""Of a workload's packed models: many profiles share a store of a few gigabytes."""


class DeliveredModels(Wire, frozen=True, kw_only=True):
    """Anomaly models of a workload that nodes judge by, and how they did on held-out rows."""

    data: Annotated[str, msgspec.Meta(extra_json_schema={"maxLength": MAX_MODELS_CHARS})]
    """Numbers as JSON, compressed by zlib and in base64 (docs/models.md)."""
    sha256: str
    """Of the JSON, in hexadecimal digits."""
    recall: float = 0.0
    """Part of planted slow harm that they find."""
    plain_recall: float = 0.0
    """Part that a threshold with as many false alarms finds."""
    false_alarms: float = 0.0
    """Part of the ordinary rows."""
    rows: Annotated[int, between(0)] = 0
    """Held-out rows that these parts are of."""
    trained_time: Annotated[str, TIME] | None = None


class WorkloadProfileStatus(Wire, frozen=True, kw_only=True):
    """Sensitivity and pressure learned, with sample counts and times. Age is the reader's clock less `update_time`."""

    resources: list[ResourceInterference] = []
    usual_values: Annotated[list[UsualValues], msgspec.Meta(extra_json_schema={"maxItems": MAX_USUAL_VALUES})] = []
    """What is ordinary in the fleet; judges a replica on a node that has not learned the workload itself."""
    usage: Annotated[list[ContainerUsage], msgspec.Meta(extra_json_schema={"maxItems": MAX_USAGE_CONTAINERS})] = []
    samples: Annotated[int, between(0)] = 0
    """Observations behind the profile, each one container over one reporting interval."""
    replicas: Annotated[int, between(0)] = 0
    """Distinct containers observed."""
    first_sample_time: Annotated[str, TIME] | None = None
    update_time: Annotated[str, TIME] | None = None
    models: DeliveredModels | None = None
    """Written by `koord-manager train-models` alone."""
    conditions: list[Condition] = []


class WorkloadProfile(Wire, frozen=True, kw_only=True):
    """Sensitivity of a workload to its neighbours, and the pressure that it puts on them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadProfileSpec
    status: WorkloadProfileStatus = WorkloadProfileStatus()


RECOMMENDATION = Definition(
    "Recommendation",
    "recommendations",
    "analysis.koordinator.sh",
    Recommendation,
    namespaced=True,
    short_names=("recom",),
    columns=(
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Type", ".spec.target.type"),
        Column("Kind", ".spec.target.workload.kind"),
        Column("Name", ".spec.target.workload.name"),
        Column("LastUpdateTime", ".status.updateTime", "date"),
    ),
)
WORKLOAD_PROFILE = Definition(
    "WorkloadProfile",
    "workloadprofiles",
    "interference.koordinator.sh",
    WorkloadProfile,
    namespaced=True,
    short_names=("wlp",),
    columns=(
        Column("Kind", ".spec.workload.kind"),
        Column("Workload", ".spec.workload.name"),
        Column("Container", ".spec.container"),
        Column("Node type", ".spec.nodeType"),
        Column("Samples", ".status.samples", "integer"),
        Column("Updated", ".status.updateTime", "date"),
    ),
)
