"""The table of knobs: one row for each, with all that validation, planning, writing and capability probing need.

To add a knob: a member of `api.intents.Knob` and its row here. Where `assign_file` (one file that holds the value)
does not do, the row names a function of the module beside this one.
"""

from collections.abc import Mapping
from functools import lru_cache

from api.intents import Knob, Setting
from koordlet.host.attribute_formats import Format
from koordlet.host.cgroups.controllers import Assignment
from koordlet.host.knobs.cpu import SHARES, WEIGHT, assign_idle, assign_quota, assign_weight
from koordlet.host.knobs.io import THROTTLES, assign_device_keys, assign_limits, assign_weights
from koordlet.host.knobs.machine import (
    FEATURES,
    SYSCTLS,
    assign_feature,
    assign_group,
    assign_schemata,
    assign_sysctl,
)
from koordlet.host.knobs.spec import (
    KnobFile,
    KnobHost,
    KnobSpec,
    Lack,
    Order,
    Scope,
    WritePhase,
    assign_nothing,
    assign_process_file,
)
from koordlet.host.knobs.values import Bytes, CpuList, CpuQuota, DeviceLimits, DeviceWeights, Integer, Text
from koordlet.host.traffic.classes import LEAST_RATE_BYTES

_SWITCH = Integer(0, 1)
_NO_PROTECTION_V1 = Lack("cgroup v1 has no memory protection; its soft limit is no equivalent", "boot with cgroup v2")
_NO_IO_COST = Lack("there is no io.cost here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOCOST")


def _assign_traffic(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:  # noqa: ARG001
    return host.traffic.assignments(target, value)


def _assign_policer(host: KnobHost, spec: KnobSpec, target: str, value: str) -> tuple[Assignment, ...]:  # noqa: ARG001
    return host.traffic.policers(target, value)


KNOBS: Mapping[Knob, KnobSpec] = {
    Knob.CPU_IDLE: KnobSpec(
        values=_SWITCH,
        order=Order.SMALLER_IS_WIDER,
        controller="cpu",
        v2=(KnobFile("cpu.idle", Format.INTEGER),),
        v1=(KnobFile("cpu.idle", Format.INTEGER),),
        probe="1",
        write_phase=WritePhase.WIDENED_FIRST,
        may_widen_protected=True,
        assign=assign_idle,
        lack=Lack("the kernel has no cpu.idle", "needs Linux 5.15 or later"),
    ),
    Knob.CPU_WEIGHT: KnobSpec(
        values=Integer(1, 10_000),
        order=Order.LARGER_IS_WIDER,
        controller="cpu",
        v2=(WEIGHT,),
        v1=(SHARES,),
        probe="1",
        may_widen_protected=True,
        assign=assign_weight,
    ),
    Knob.CPU_MAX: KnobSpec(
        values=CpuQuota(),
        order=Order.LARGER_IS_WIDER,
        controller="cpu",
        v2=(KnobFile("cpu.max", Format.CPU_MAX),),
        v1=(
            KnobFile("cpu.cfs_quota_us", Format.QUOTA_US),
            KnobFile("cpu.cfs_period_us", Format.INTEGER),
        ),
        probe="100000 100000",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
        assign=assign_quota,
    ),
    Knob.CPU_BURST: KnobSpec(
        values=Integer(0, 100_000_000),
        order=Order.LARGER_IS_WIDER,
        controller="cpu",
        v2=(KnobFile("cpu.max.burst", Format.INTEGER),),
        v1=(KnobFile("cpu.cfs_burst_us", Format.INTEGER),),
        probe="0",
        write_phase=WritePhase.TIGHTENED_FIRST,
        may_widen_protected=True,
        lack=Lack("the kernel has no CFS burst", "needs Linux 5.14 or later"),
    ),
    Knob.CPU_BVT: KnobSpec(
        values=Integer(-1, 2),
        order=Order.LARGER_IS_WIDER,
        controller="cpu",
        v2=(KnobFile("cpu.bvt_warp_ns", Format.INTEGER),),
        v1=(KnobFile("cpu.bvt_warp_ns", Format.INTEGER),),
        probe="-1",
        may_widen_protected=True,
        lack=Lack("the kernel has no group identity", "use cpu.idle instead"),
    ),
    Knob.CPUSET_CPUS: KnobSpec(
        values=CpuList(),
        order=Order.LARGER_IS_WIDER,
        controller="cpuset",
        v2=(KnobFile("cpuset.cpus", Format.CPUS),),
        v1=(KnobFile("cpuset.cpus", Format.CPUS),),
        probe="0",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
    ),
    Knob.CPUSET_MEMS: KnobSpec(
        values=CpuList(),
        order=Order.LARGER_IS_WIDER,
        controller="cpuset",
        v2=(KnobFile("cpuset.mems", Format.CPUS),),
        v1=(KnobFile("cpuset.mems", Format.CPUS),),
        probe="0",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
    ),
    Knob.FREEZE: KnobSpec(
        values=_SWITCH,
        order=Order.SMALLER_IS_WIDER,
        controller="freezer",
        v2=(KnobFile("cgroup.freeze", Format.INTEGER),),
        v1=(KnobFile("freezer.state", Format.FREEZER),),
        probe="1",
        may_widen_protected=True,
        lack=Lack("there is no freezer here", "mount the freezer controller or boot with cgroup v2"),
    ),
    Knob.MEMORY_MIN: KnobSpec(
        values=Bytes(0),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.min", Format.BYTES),),
        v1=(KnobFile("memory.min", Format.BYTES),),
        probe="1073741824",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
        lack_v1=_NO_PROTECTION_V1,
    ),
    Knob.MEMORY_LOW: KnobSpec(
        values=Bytes(0),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.low", Format.BYTES),),
        v1=(KnobFile("memory.low", Format.BYTES),),
        probe="1073741824",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
        lack_v1=_NO_PROTECTION_V1,
    ),
    Knob.MEMORY_HIGH: KnobSpec(
        values=Bytes(1),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.high", Format.BYTES),),
        v1=(KnobFile("memory.high", Format.BYTES),),
        probe="1073741824",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
        lack_v1=Lack("cgroup v1 has no memory.high; its soft limit is no equivalent", "boot with cgroup v2"),
    ),
    Knob.MEMORY_MAX: KnobSpec(
        values=Bytes(1),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.max", Format.BYTES),),
        v1=(KnobFile("memory.limit_in_bytes", Format.LIMIT_BYTES),),
        probe="1073741824",
        write_phase=WritePhase.BY_LEVEL,
        may_widen_protected=True,
    ),
    Knob.MEMORY_WMARK_RATIO: KnobSpec(
        values=Integer(0, 100),
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.wmark_ratio", Format.INTEGER),),
        v1=(KnobFile("memory.wmark_ratio", Format.INTEGER),),
        probe="95",
    ),
    Knob.MEMORY_WMARK_SCALE_FACTOR: KnobSpec(
        values=Integer(1, 1000),
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.wmark_scale_factor", Format.INTEGER),),
        v1=(KnobFile("memory.wmark_scale_factor", Format.INTEGER),),
        probe="50",
    ),
    Knob.MEMORY_WMARK_MIN_ADJ: KnobSpec(
        values=Integer(-25, 50),
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.wmark_min_adj", Format.INTEGER),),
        v1=(KnobFile("memory.wmark_min_adj", Format.INTEGER),),
        probe="0",
    ),
    Knob.MEMORY_PRIORITY: KnobSpec(
        values=Integer(0, 12),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.priority", Format.INTEGER),),
        v1=(KnobFile("memory.priority", Format.INTEGER),),
        probe="0",
        may_widen_protected=True,
    ),
    Knob.MEMORY_USE_PRIORITY_OOM: KnobSpec(
        values=_SWITCH,
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.use_priority_oom", Format.INTEGER),),
        v1=(KnobFile("memory.use_priority_oom", Format.INTEGER),),
        probe="1",
    ),
    Knob.MEMORY_OOM_GROUP: KnobSpec(
        values=_SWITCH,
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.oom.group", Format.INTEGER),),
        v1=(KnobFile("memory.oom.group", Format.INTEGER),),
        probe="1",
    ),
    Knob.PAGE_CACHE_ENABLE: KnobSpec(
        values=_SWITCH,
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.pagecache_limit.enable", Format.INTEGER),),
        v1=(KnobFile("memory.pagecache_limit.enable", Format.INTEGER),),
        probe="1",
    ),
    Knob.PAGE_CACHE_LIMIT: KnobSpec(
        values=Bytes(0),
        order=Order.LARGER_IS_WIDER,
        controller="memory",
        v2=(KnobFile("memory.pagecache_limit.size", Format.BYTES),),
        v1=(KnobFile("memory.pagecache_limit.size", Format.BYTES),),
        probe="1073741824",
    ),
    Knob.PAGE_CACHE_SYNC: KnobSpec(
        values=_SWITCH,
        order=Order.UNORDERED,
        controller="memory",
        v2=(KnobFile("memory.pagecache_limit.sync", Format.INTEGER),),
        v1=(KnobFile("memory.pagecache_limit.sync", Format.INTEGER),),
        probe="1",
    ),
    Knob.IO_WEIGHT: KnobSpec(
        values=DeviceWeights(),
        order=Order.LARGER_IS_WIDER,
        controller="io",
        v2=(
            KnobFile("io.weight", Format.DEVICE_WEIGHT),
            KnobFile("io.bfq.weight", Format.DEVICE_WEIGHT),
        ),
        v1=(
            KnobFile("blkio.bfq.weight", Format.INTEGER),
            KnobFile("blkio.weight", Format.INTEGER),
        ),
        probe="default 1",
        may_widen_protected=True,
        assign=assign_weights,
    ),
    Knob.IO_MAX: KnobSpec(
        values=DeviceLimits(),
        order=Order.LARGER_IS_WIDER,
        controller="io",
        v2=(KnobFile("io.max", Format.RATE),),
        v1=tuple(THROTTLES.values()),
        probe="1:0 rbps=1048576",
        may_widen_protected=True,
        assign=assign_limits,
    ),
    Knob.IO_LATENCY: KnobSpec(
        values=Text(),
        order=Order.LARGER_IS_WIDER,
        controller="io",
        v2=(KnobFile("io.latency", Format.RATE),),
        v1=(),
        probe="1:0 target=100000",
        assign=assign_device_keys,
        lack=Lack("there is no io.latency here", "boot with cgroup v2 and CONFIG_BLK_CGROUP_IOLATENCY"),
    ),
    Knob.IO_COST_QOS: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="io",
        v2=(KnobFile("io.cost.qos", Format.TEXT),),
        v1=(),
        probe="1:0 enable=1",
        scope=Scope.ROOT_CGROUP,
        assign=assign_device_keys,
        lack=_NO_IO_COST,
    ),
    Knob.IO_COST_MODEL: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="io",
        v2=(KnobFile("io.cost.model", Format.TEXT),),
        v1=(),
        probe="1:0 ctrl=auto",
        scope=Scope.ROOT_CGROUP,
        assign=assign_device_keys,
        lack=_NO_IO_COST,
    ),
    Knob.OOM_SCORE_ADJ: KnobSpec(
        values=Integer(-1000, 1000),
        order=Order.SMALLER_IS_WIDER,
        controller="cpu",
        v2=(KnobFile("/proc/<pid>/oom_score_adj", Format.INTEGER),),
        v1=(KnobFile("/proc/<pid>/oom_score_adj", Format.INTEGER),),
        probe="0",
        scope=Scope.PROCESSES,
        may_widen_protected=True,
        assign=assign_process_file,
    ),
    Knob.CORE_SCHED: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="cpu",
        v2=(),
        v1=(),
        probe="0",
        scope=Scope.PROCESSES,
        assign=assign_nothing,
        lack=Lack(
            "the agent sets no core scheduling cookies: no kernel that it is tried on has CONFIG_SCHED_CORE",
            "give whole cores by cpuset, or start the container by coresched of util-linux",
        ),
    ),
    Knob.RESCTRL_GROUP: KnobSpec(
        values=Text(empty=True),
        order=Order.UNORDERED,
        controller="cpu",
        v2=(KnobFile("/sys/fs/resctrl/<group>/tasks", Format.INTEGER),),
        v1=(KnobFile("/sys/fs/resctrl/<group>/tasks", Format.INTEGER),),
        probe="koord",
        scope=Scope.PROCESSES,
        assign=assign_group,
    ),
    Knob.RESCTRL_SCHEMATA: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="",
        v2=(KnobFile("/sys/fs/resctrl/<group>/schemata", Format.MASK),),
        v1=(KnobFile("/sys/fs/resctrl/<group>/schemata", Format.MASK),),
        probe="L3:0=1",
        scope=Scope.RESCTRL_GROUP,
        assign=assign_schemata,
    ),
    Knob.NET_CLASS: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="net_cls",
        v2=(KnobFile("qdisc htb 4b64:", Format.TEXT),),
        v1=(KnobFile("qdisc htb 4b64:", Format.TEXT),),
        probe="rate=131072 prio=7",
        assign=_assign_traffic,
    ),
    Knob.NET_INGRESS: KnobSpec(
        values=Bytes(LEAST_RATE_BYTES),
        order=Order.LARGER_IS_WIDER,
        controller="unified",
        v2=(KnobFile("net.ingress", Format.TEXT),),
        v1=(KnobFile("net.ingress", Format.TEXT),),
        probe="125000",
        assign=_assign_policer,
    ),
    Knob.SYSCTL: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="",
        v2=SYSCTLS,
        v1=SYSCTLS,
        probe="1",
        scope=Scope.HOST,
        assign=assign_sysctl,
    ),
    Knob.SCHED_FEATURE: KnobSpec(
        values=_SWITCH,
        order=Order.UNORDERED,
        controller="",
        v2=FEATURES,
        v1=FEATURES,
        probe="1",
        scope=Scope.HOST,
        assign=assign_feature,
        lack=Lack("scheduler features are not readable here", "mount debugfs on /sys/kernel/debug"),
    ),
    Knob.NODE_TAINT: KnobSpec(
        values=Text(),
        order=Order.UNORDERED,
        controller="",
        v2=(),
        v1=(),
        probe="koord:NoSchedule",
        scope=Scope.NODE,
        assign=assign_nothing,
        lack=Lack(
            "the manager sets taints, and nothing reports to it", "enable [cluster] node_metric and the enforcer"
        ),
    ),
}


def check(setting: Setting) -> None:
    """Raise ValueError, naming the fault, for a setting whose value no host could take."""
    if "\0" in setting.value or "\0" in setting.target:
        raise ValueError("a NUL character")
    _check_value(setting.knob, setting.value.strip())


@lru_cache(maxsize=1024)
def _check_value(knob: Knob, value: str) -> None:
    """Hundreds of cgroups are given one value; a fault is found anew each time."""
    KNOBS[knob].values.check(knob, value)
