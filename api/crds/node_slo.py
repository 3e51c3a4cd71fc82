"""slo.koordinator.sh NodeSLO: the strategies that a node's agent follows; named like the node."""

from typing import Annotated, Any

import msgspec

from api.crds.definition import OPAQUE, Definition, among, between
from api.kube.meta import ObjectMeta, Quantity, Wire

Percent = Annotated[int, between(0, 100)]
Extensions = Annotated[dict[str, Any], OPAQUE]


class ResourceThresholdStrategy(Wire, frozen=True, kw_only=True):
    """Thresholds of suppression and eviction of best-effort work; percents of capacity unless said otherwise."""

    enable: bool | None = None
    cpu_suppress_threshold_percent: Percent | None = None
    cpu_suppress_min_percent: Percent | None = None
    cpu_suppress_policy: Annotated[str, among("cpuset", "cfsQuota")] | None = None
    memory_evict_threshold_percent: Percent | None = None
    memory_evict_lower_percent: Percent | None = None
    memory_allocatable_evict_threshold_percent: Annotated[int, between(0)] | None = None
    memory_allocatable_evict_lower_percent: Annotated[int, between(0)] | None = None
    cpu_evict_be_satisfaction_upper_percent: Percent | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionUpperPercent"
    )
    cpu_evict_be_satisfaction_lower_percent: Percent | None = msgspec.field(
        default=None, name="cpuEvictBESatisfactionLowerPercent"
    )
    cpu_evict_be_usage_threshold_percent: Percent | None = msgspec.field(
        default=None, name="cpuEvictBEUsageThresholdPercent"
    )
    cpu_evict_time_window_seconds: Annotated[int, between(1)] | None = None
    cpu_evict_threshold_percent: Percent | None = None
    cpu_evict_lower_percent: Percent | None = None
    cpu_allocatable_evict_threshold_percent: Annotated[int, between(0)] | None = None
    cpu_allocatable_evict_lower_percent: Annotated[int, between(0)] | None = None
    cpu_evict_policy: Annotated[str, among("evictByRealLimit", "evictByAllocatable")] | None = None
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: Annotated[int, between(0, 7999)] | None = None


class ResourceQOSPolicies(Wire, frozen=True, kw_only=True):
    """Mechanism that implements a quality of service."""

    cpu_policy: Annotated[str, among("groupIdentity", "coreSched")] | None = None
    net_qos_policy: Annotated[str, among("tc", "terway-qos")] | None = msgspec.field(default=None, name="netQOSPolicy")


class CPUQOS(Wire, frozen=True, kw_only=True):
    """Scheduling of a class's groups."""

    enable: bool | None = None
    group_identity: Annotated[int, between(-1, 2)] | None = None
    sched_idle: Annotated[int, between(0, 1)] | None = None
    core_expeller: bool | None = None


class MemoryQOS(Wire, frozen=True, kw_only=True):
    """Memory protection, throttling and reclaim of a class's groups."""

    enable: bool | None = None
    min_limit_percent: Percent | None = None
    low_limit_percent: Percent | None = None
    throttling_percent: Percent | None = None
    wmark_ratio: Percent | None = None
    wmark_scale_permill: Annotated[int, between(1, 1000)] | None = None
    wmark_min_adj: Annotated[int, between(-25, 50)] | None = None
    priority_enable: Annotated[int, between(0, 1)] | None = None
    priority: Annotated[int, between(0, 12)] | None = None
    oom_kill_group: Annotated[int, between(0, 1)] | None = None
    page_cache_enable: bool | None = None
    page_cache_limit_percent: Percent | None = None
    page_cache_limit_size: int | None = None
    page_cache_reclaim_sync: bool | None = None


class BlockIOConfig(Wire, frozen=True, kw_only=True):
    """Limits, weight and latency targets of one block device; latencies in microseconds."""

    read_iops: int | None = msgspec.field(default=None, name="readIOPS")
    write_iops: int | None = msgspec.field(default=None, name="writeIOPS")
    read_bps: int | None = msgspec.field(default=None, name="readBPS")
    write_bps: int | None = msgspec.field(default=None, name="writeBPS")
    io_weight_percent: Annotated[int, between(1, 100)] | None = None
    read_latency: int | None = None
    write_latency: int | None = None
    read_latency_percent: Percent | None = None
    write_latency_percent: Percent | None = None
    enable_user_model: bool | None = None
    model_read_bps: int | None = msgspec.field(default=None, name="modelReadBPS")
    model_write_bps: int | None = msgspec.field(default=None, name="modelWriteBPS")
    model_read_seq_iops: int | None = msgspec.field(default=None, name="modelReadSeqIOPS")
    model_write_seq_iops: int | None = msgspec.field(default=None, name="modelWriteSeqIOPS")
    model_read_rand_iops: int | None = msgspec.field(default=None, name="modelReadRandIOPS")
    model_write_rand_iops: int | None = msgspec.field(default=None, name="modelWriteRandIOPS")


class BlockConfig(Wire, frozen=True, kw_only=True):
    """One block device, volume group or pod volume."""

    name: str = ""
    type: Annotated[str, among("device", "volumegroup", "podvolume")] | None = None
    io_cfg: BlockIOConfig = BlockIOConfig()


class BlockIOQOS(Wire, frozen=True, kw_only=True):
    """Block IO of a class's groups."""

    enable: bool | None = None
    blocks: list[BlockConfig] = []


class ResctrlQOS(Wire, frozen=True, kw_only=True):
    """Share of cache ways and memory bandwidth, in percent."""

    enable: bool | None = None
    cat_range_start_percent: Percent | None = None
    cat_range_end_percent: Percent | None = None
    mba_percent: Percent | None = None


class NetworkQOS(Wire, frozen=True, kw_only=True):
    """Bandwidths: a number is a percent of the node's total, a text an amount in bits per second."""

    enable: bool | None = None
    ingress_request: int | str | None = None
    ingress_limit: int | str | None = None
    egress_request: int | str | None = None
    egress_limit: int | str | None = None


class ResourceQOS(Wire, frozen=True, kw_only=True):
    """Everything set for one class."""

    cpu_qos: CPUQOS | None = msgspec.field(default=None, name="cpuQOS")
    memory_qos: MemoryQOS | None = msgspec.field(default=None, name="memoryQOS")
    blkio_qos: BlockIOQOS | None = msgspec.field(default=None, name="blkioQOS")
    resctrl_qos: ResctrlQOS | None = msgspec.field(default=None, name="resctrlQOS")
    network_qos: NetworkQOS | None = msgspec.field(default=None, name="networkQOS")


class ResourceQOSStrategy(Wire, frozen=True, kw_only=True):
    """Quality of service by class."""

    policies: ResourceQOSPolicies | None = None
    lsr_class: ResourceQOS | None = None
    ls_class: ResourceQOS | None = None
    be_class: ResourceQOS | None = None
    system_class: ResourceQOS | None = None
    cgroup_root: ResourceQOS | None = None


class CPUBurstStrategy(Wire, frozen=True, kw_only=True):
    """Limits within which latency-sensitive containers may exceed their quota for a while."""

    policy: Annotated[str, among("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto")] | None = None
    cpu_burst_percent: Annotated[int, between(1, 10000)] | None = None
    cfs_quota_burst_percent: Annotated[int, between(100)] | None = None
    cfs_quota_burst_period_seconds: Annotated[int, between(-1)] | None = None
    share_pool_threshold_percent: Percent | None = None


class SystemStrategy(Wire, frozen=True, kw_only=True):
    """Settings of the whole kernel."""

    min_free_kbytes_factor: Annotated[int, between(1)] | None = None
    watermark_scale_factor: Annotated[int, between(1, 400)] | None = None
    memcg_reap_back_ground: Annotated[int, between(0, 1)] | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: dict[str, bool] = {}
    page_cache_limit_enabled: Annotated[int, between(0, 1)] | None = None
    total_network_bandwidth: Quantity | None = None


class CgroupPath(Wire, frozen=True, kw_only=True):
    """Path of a host application's cgroup."""

    base: Annotated[str, among("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort")] | None = None
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(Wire, frozen=True, kw_only=True):
    """A process group on the node that is no pod."""

    name: str
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None
    strategy: Extensions | None = None


POOL_NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z"
"""Name of a pool of extension resourcePools, which becomes that of a resource group on the node."""


class NodeSLOSpec(Wire, frozen=True, kw_only=True):
    """All strategies of a node; None leaves one to the agent's defaults."""

    resource_used_threshold_with_be: ResourceThresholdStrategy | None = msgspec.field(
        default=None, name="resourceUsedThresholdWithBE"
    )
    resource_qos_strategy: ResourceQOSStrategy | None = msgspec.field(default=None, name="resourceQOSStrategy")
    cpu_burst_strategy: CPUBurstStrategy | None = None
    system_strategy: SystemStrategy | None = None
    extensions: Extensions | None = None
    host_applications: list[HostApplication] = []


class NodeSLO(Wire, frozen=True, kw_only=True):
    """Strategies of a node, written by the manager."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSLOSpec = NodeSLOSpec()
    status: Extensions | None = None


NODE_SLO = Definition("NodeSLO", "nodeslos", "slo.koordinator.sh", NodeSLO)
