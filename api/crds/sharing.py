"""Gangs, quotas and colocation profiles: who shares a cluster, in what order and under which rules."""

from typing import Annotated, Any

from api.crds.definition import OPAQUE, TIME, Column, Definition, among
from api.kube.meta import Labels, LabelSelector, ObjectMeta, ResourceList, Wire

SIGS_GROUP = "scheduling.sigs.k8s.io"
SIGS_APPROVAL = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"


class PodGroupSpec(Wire, frozen=True, kw_only=True):
    """Number of pods that start together; `schedule_timeout_seconds` None leaves it to the scheduler."""

    min_member: int = 0
    min_resources: ResourceList = {}
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(Wire, frozen=True, kw_only=True):
    """Progress of the group."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: Annotated[str, TIME] | None = None


class PodGroup(Wire, frozen=True, kw_only=True):
    """A gang."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


class ElasticQuotaSpec(Wire, frozen=True, kw_only=True):
    """Guarantee of a quota and the limit that it may borrow up to; labels hold its place in the tree."""

    min: ResourceList = {}
    max: ResourceList = {}


class ElasticQuotaStatus(Wire, frozen=True, kw_only=True):
    """Usage of its pods."""

    used: ResourceList = {}


class ElasticQuota(Wire, frozen=True, kw_only=True):
    """A node of a quota tree."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()


class ElasticQuotaProfileSpec(Wire, frozen=True, kw_only=True):
    """The root quota to keep, and the nodes whose resources it shares; the ratio is a fraction as text."""

    quota_name: str
    node_selector: LabelSelector
    quota_labels: Labels = {}
    resource_ratio: str | None = None


class ElasticQuotaProfile(Wire, frozen=True, kw_only=True):
    """Makes a quota tree from a set of nodes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ElasticQuotaProfileSpec
    status: Annotated[dict[str, Any], OPAQUE] | None = None


class ClusterColocationProfileSpec(Wire, frozen=True, kw_only=True):
    """Selector of pods that the webhook changes, and fields it sets. `patch` is a strategic merge patch of a pod."""

    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    probability: int | str | None = None
    qos_class: Annotated[str, among("", "LSE", "LSR", "LS", "BE", "SYSTEM")] = ""
    priority_class_name: str = ""
    koordinator_priority: int | None = None
    labels: Labels = {}
    annotations: dict[str, str] = {}
    label_keys_mapping: dict[str, str] = {}
    annotation_keys_mapping: dict[str, str] = {}
    label_suffixes: dict[str, str] = {}
    scheduler_name: str = ""
    patch: Annotated[dict[str, Any], OPAQUE] | None = None


class ClusterColocationProfile(Wire, frozen=True, kw_only=True):
    """Classes, priorities and scheduler for pods that do not ask for them."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()
    status: Annotated[dict[str, Any], OPAQUE] | None = None


POD_GROUP = Definition(
    "PodGroup",
    "podgroups",
    SIGS_GROUP,
    PodGroup,
    namespaced=True,
    status=False,
    short_names=("pg", "pgs"),
    approval=SIGS_APPROVAL,
    columns=(
        Column("Phase", ".status.phase"),
        Column("MinMember", ".spec.minMember", "integer"),
        Column("Running", ".status.running", "integer"),
    ),
)
ELASTIC_QUOTA = Definition(
    "ElasticQuota",
    "elasticquotas",
    SIGS_GROUP,
    ElasticQuota,
    namespaced=True,
    status=False,
    short_names=("eq", "eqs"),
    approval=SIGS_APPROVAL,
)
ELASTIC_QUOTA_PROFILE = Definition(
    "ElasticQuotaProfile",
    "elasticquotaprofiles",
    "quota.koordinator.sh",
    ElasticQuotaProfile,
    namespaced=True,
    status=False,
    short_names=("eqp",),
)
CLUSTER_COLOCATION_PROFILE = Definition(
    "ClusterColocationProfile", "clustercolocationprofiles", "config.koordinator.sh", ClusterColocationProfile
)
