"""Custom resources: one struct per kind and, derived from it, the schema that the API server enforces.

`DEFINITIONS` lists them all; `cluster.custom(WORKLOAD_PROFILE)` makes one readable and writable. The structs
hold every field of their kind (templates and free maps stay plain JSON), so that writing one back loses
nothing that the schema knows.
"""

from typing import Any

from api.crds.analysis import (
    RECOMMENDATION,
    WORKLOAD_PROFILE,
    DeliveredModels,
    Recommendation,
    ResourceInterference,
    SensitivityBin,
    WorkloadProfile,
    WorkloadProfileSpec,
    WorkloadProfileStatus,
    WorkloadReference,
)
from api.crds.definition import Definition, definition_document
from api.crds.interference import (
    INTERFERENCE_DETECTION_RULE,
    InterferenceDetectionRule,
    InterferenceDetectionRuleSpec,
)
from api.crds.node_metric import NODE_METRIC, NodeMetric
from api.crds.node_slo import NODE_SLO, NodeSLO
from api.crds.placement import (
    CLUSTER_NETWORK_TOPOLOGY,
    DEVICE,
    POD_MIGRATION_JOB,
    RESERVATION,
    SCHEDULE_EXPLANATION,
    ClusterNetworkTopology,
    PodMigrationJob,
    Reservation,
    ScheduleExplanation,
)
from api.crds.sharing import (
    CLUSTER_COLOCATION_PROFILE,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
    POD_GROUP,
    ClusterColocationProfile,
    ElasticQuota,
    ElasticQuotaProfile,
    PodGroup,
)
from api.crds.topology import NODE_RESOURCE_TOPOLOGY
from api.kube.device import Device
from api.kube.numa import NodeResourceTopology

DEFINITIONS: tuple[Definition[Any], ...] = (
    CLUSTER_COLOCATION_PROFILE,
    CLUSTER_NETWORK_TOPOLOGY,
    DEVICE,
    ELASTIC_QUOTA,
    ELASTIC_QUOTA_PROFILE,
    INTERFERENCE_DETECTION_RULE,
    NODE_METRIC,
    NODE_RESOURCE_TOPOLOGY,
    NODE_SLO,
    POD_GROUP,
    POD_MIGRATION_JOB,
    RECOMMENDATION,
    RESERVATION,
    SCHEDULE_EXPLANATION,
    WORKLOAD_PROFILE,
)

__all__ = [
    "CLUSTER_COLOCATION_PROFILE",
    "CLUSTER_NETWORK_TOPOLOGY",
    "DEFINITIONS",
    "DEVICE",
    "ELASTIC_QUOTA",
    "ELASTIC_QUOTA_PROFILE",
    "INTERFERENCE_DETECTION_RULE",
    "NODE_METRIC",
    "NODE_RESOURCE_TOPOLOGY",
    "NODE_SLO",
    "POD_GROUP",
    "POD_MIGRATION_JOB",
    "RECOMMENDATION",
    "RESERVATION",
    "SCHEDULE_EXPLANATION",
    "WORKLOAD_PROFILE",
    "ClusterColocationProfile",
    "ClusterNetworkTopology",
    "Definition",
    "DeliveredModels",
    "Device",
    "ElasticQuota",
    "ElasticQuotaProfile",
    "InterferenceDetectionRule",
    "InterferenceDetectionRuleSpec",
    "NodeMetric",
    "NodeResourceTopology",
    "NodeSLO",
    "PodGroup",
    "PodMigrationJob",
    "Recommendation",
    "Reservation",
    "ResourceInterference",
    "ScheduleExplanation",
    "SensitivityBin",
    "WorkloadProfile",
    "WorkloadProfileSpec",
    "WorkloadProfileStatus",
    "WorkloadReference",
    "definition_document",
]
