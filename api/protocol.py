"""Koordinator's protocol keys: labels, annotations and extended resources, spelled as they stand on the wire."""

SCHEDULER_NAME = "koord-scheduler"

# Extended resources; batch and mid cpu count millicores, memory counts bytes.
BATCH_CPU = "kubernetes.io/batch-cpu"
BATCH_MEMORY = "kubernetes.io/batch-memory"
MID_CPU = "kubernetes.io/mid-cpu"
MID_MEMORY = "kubernetes.io/mid-memory"
GPU = "koordinator.sh/gpu"
GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED = "koordinator.sh/gpu.shared"
RDMA = "koordinator.sh/rdma"
FPGA = "koordinator.sh/fpga"
NVIDIA_GPU = "nvidia.com/gpu"

DEPRECATED_RESOURCES: dict[str, str] = {
    "koordinator.sh/batch-cpu": BATCH_CPU,
    "koordinator.sh/batch-memory": BATCH_MEMORY,
    "kubernetes.io/rdma": RDMA,
    "kubernetes.io/fpga": FPGA,
    "kubernetes.io/gpu": GPU,
    "kubernetes.io/gpu-core": GPU_CORE,
    "kubernetes.io/gpu-memory": GPU_MEMORY,
    "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
}
"""Older spellings and what they stand for."""

# Pod labels.
LABEL_QOS_CLASS = "koordinator.sh/qosClass"
LABEL_PRIORITY = "koordinator.sh/priority"
LABEL_PRIORITY_CLASS = "koordinator.sh/priority-class"
LABEL_SCHEDULER_NAME = "scheduling.koordinator.sh/scheduler-name"
LABEL_PREEMPTION_POLICY = "scheduling.koordinator.sh/preemption-policy"
LABEL_DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"
LABEL_RESERVATION_IGNORED = "scheduling.koordinator.sh/reservation-ignored"
LABEL_RESERVATION_ORDER = "scheduling.koordinator.sh/reservation-order"
LABEL_QUOTA_NAME = "quota.scheduling.koordinator.sh/name"
LABEL_QUOTA_PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
LABEL_QUOTA_TREE_ID = "quota.scheduling.koordinator.sh/tree-id"
LABEL_POD_GROUP = "pod-group.scheduling.sigs.k8s.io"
LABEL_POD_GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
LABEL_POD_GROUP_MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
LABEL_EVICTION_ENABLED = "koordinator.sh/eviction-enabled"
LABEL_CORE_SCHED_GROUP_ID = "koordinator.sh/core-sched-group-id"
LABEL_CORE_SCHED_POLICY = "koordinator.sh/core-sched-policy"
LABEL_GPU_ISOLATION_PROVIDER = "koordinator.sh/gpu-isolation-provider"

# Pod annotations.
ANNOTATION_RESOURCE_SPEC = "scheduling.koordinator.sh/resource-spec"
ANNOTATION_RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
ANNOTATION_NUMA_TOPOLOGY_SPEC = "scheduling.koordinator.sh/numa-topology-spec"
ANNOTATION_DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"
ANNOTATION_DEVICE_ALLOCATE_HINT = "scheduling.koordinator.sh/device-allocate-hint"
ANNOTATION_DEVICE_JOINT_ALLOCATE = "scheduling.koordinator.sh/device-joint-allocate"
ANNOTATION_GPU_PARTITION_SPEC = "scheduling.koordinator.sh/gpu-partition-spec"
ANNOTATION_EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
ANNOTATION_USAGE_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
ANNOTATION_ESTIMATED_SCALING_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
ANNOTATION_ESTIMATED_SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
ANNOTATION_ESTIMATED_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"
ANNOTATION_SCHEDULING_HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
ANNOTATION_SCHEDULING_HINT_DEPRECATED = "scheduling.koordinator.sh/scheduling-hint"
ANNOTATION_RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
ANNOTATION_RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
ANNOTATION_EXACT_MATCH_RESERVATION = "scheduling.koordinator.sh/exact-match-reservation"
ANNOTATION_CPU_BURST = "koordinator.sh/cpuBurst"
ANNOTATION_CPU_QOS = "koordinator.sh/cpuQOS"
ANNOTATION_MEMORY_QOS = "koordinator.sh/memoryQOS"
ANNOTATION_BLKIO_QOS = "koordinator.sh/blkioQOS"
ANNOTATION_NETWORK_QOS = "koordinator.sh/networkQOS"
ANNOTATION_RESCTRL = "node.koordinator.sh/resctrl"
ANNOTATION_EVICTION_POLICY = "koordinator.sh/eviction-policy"
ANNOTATION_EVICTION_PRIORITY = "koordinator.sh/eviction-priority"
ANNOTATION_OOM_SCORE_ADJ = "koordinator.sh/oom-score-adj"
ANNOTATION_OOM_SCORE_ADJ_SPEC = "koordinator.sh/oom-score-adj-spec"
ANNOTATION_EXTENDED_RESOURCE_SPEC = "node.koordinator.sh/extended-resource-spec"
ANNOTATION_GANG_PREFIX = "gang.scheduling.koordinator.sh/"
ANNOTATION_NETWORK_TOPOLOGY_INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
ANNOTATION_NETWORK_TOPOLOGY_SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
ANNOTATION_NETWORK_TOPOLOGY_SELECTOR = "scheduling.koordinator.sh/network-topology-selector"
ANNOTATION_BIND_GANG_GROUP_ID = "internal.scheduling.koordinator.sh/bind-gang-group-id"
ANNOTATION_BIND_GANG_MEMBER_COUNT = "internal.scheduling.koordinator.sh/bind-gang-member-count"
ANNOTATION_STOP = "koordlet.koordinator.sh/stop"
"""Annotation of a node whose value "true" ends every action there."""
ANNOTATION_GPU_MINORS = "scheduling.koordinator.sh/gpu-minors"
ANNOTATION_BIND_TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"
ANNOTATION_RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
ANNOTATION_RESERVATION_NAME = "scheduling.koordinator.sh/reservation-name"
ANNOTATION_RESERVATION_NODE = "scheduling.koordinator.sh/reservation-node"
ANNOTATION_RESERVATION_RESIZE = "scheduling.koordinator.sh/reservation-resize-allocatable"
ANNOTATION_IS_PRE_ALLOCATION = "scheduling.koordinator.sh/is-pre-allocation"

# Namespace labels.
LABEL_GRANTED_QOS_CLASSES = "admission.koordinator.sh/qos-classes"
"""QoS classes that pods of a namespace may take where their use is restricted, joined by dots: `LSE.LSR`."""

# Colocation profiles, quotas and settings.
ANNOTATION_SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources"
QUOTA_PREFIX = "quota.scheduling.koordinator.sh/"
CONFIG_MAP_SLO_CONTROLLER = "slo-controller-config"

# Node labels and annotations.
LABEL_NODE_CPU_BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
LABEL_NODE_NUMA_ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
LABEL_NODE_NUMA_TOPOLOGY_POLICY = "node.koordinator.sh/numa-topology-policy"
LABEL_NODE_ENABLE_NUMA_RESERVATION = "node.koordinator.sh/enable-numa-reservation"
LABEL_NODE_GPU_PARTITION_POLICY = "node.koordinator.sh/gpu-partition-policy"
LABEL_NODE_GPU_VENDOR = "node.koordinator.sh/gpu-vendor"
LABEL_NODE_GPU_MODEL = "node.koordinator.sh/gpu-model"
LABEL_NODE_GPU_DRIVER_VERSION = "node.koordinator.sh/gpu-driver-version"
ANNOTATION_GPU_PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
ANNOTATION_NODE_RESERVATION = "node.koordinator.sh/reservation"
ANNOTATION_NODE_AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
ANNOTATION_NODE_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
ANNOTATION_NODE_SYSTEM_QOS_RESOURCE = "node.koordinator.sh/system-qos-resource"
ANNOTATION_NODE_CPU_NORMALIZATION_RATIO = "node.koordinator.sh/cpu-normalization-ratio"
ANNOTATION_SLOW_RATIO = "node.koordinator.sh/slow-ratio"
"""Slowness of a node against the fleet, written by koord-manager: 1.30 is 30 % slower."""
ANNOTATION_UPDATE_MODE = "analysis.koordinator.sh/update-mode"
"""Of a Recommendation, written by people: `InPlace` has koord-manager resize the workload's running pods."""
ANNOTATION_ADVICE = "analysis.koordinator.sh/advice"
"""Of a Recommendation, written by koord-manager: bounds, limits and replicas, for which the kind has no fields."""

# Kubernetes' own.
LABEL_HOSTNAME = "kubernetes.io/hostname"
LABEL_ZONE = "topology.kubernetes.io/zone"
LABEL_REGION = "topology.kubernetes.io/region"
TAINT_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
