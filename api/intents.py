"""Intents of strategies and response: values that the enforcer applies, audits or refuses.

Settings of cgroups use the syntax of cgroup v2 on every host (Documentation/admin-guide/cgroup-v2.rst); the agent's
host layer translates them for v1. Settings that are no cgroup file have a knob of their own.
"""

from enum import IntEnum, StrEnum

import msgspec


class Knob(StrEnum):
    """Kernel or cluster setting. Members named after a cgroup v2 file take that file's text."""

    CPU_IDLE = "cpu.idle"
    CPU_WEIGHT = "cpu.weight"
    CPU_MAX = "cpu.max"
    CPU_BURST = "cpu.max.burst"
    CPU_BVT = "cpu.bvt_warp_ns"
    """Group identity of kernels that have it: -1, 0, 1 or 2."""
    CPUSET_CPUS = "cpuset.cpus"
    CPUSET_MEMS = "cpuset.mems"
    FREEZE = "cgroup.freeze"
    MEMORY_MIN = "memory.min"
    MEMORY_LOW = "memory.low"
    MEMORY_HIGH = "memory.high"
    MEMORY_MAX = "memory.max"
    MEMORY_WMARK_RATIO = "memory.wmark_ratio"
    """Watermark of background reclaim as percent of the limit, on kernels that have it."""
    MEMORY_WMARK_SCALE_FACTOR = "memory.wmark_scale_factor"
    MEMORY_WMARK_MIN_ADJ = "memory.wmark_min_adj"
    MEMORY_PRIORITY = "memory.priority"
    MEMORY_USE_PRIORITY_OOM = "memory.use_priority_oom"
    MEMORY_OOM_GROUP = "memory.oom.group"
    PAGE_CACHE_ENABLE = "memory.pagecache_limit.enable"
    PAGE_CACHE_LIMIT = "memory.pagecache_limit.size"
    PAGE_CACHE_SYNC = "memory.pagecache_limit.sync"
    IO_WEIGHT = "io.weight"
    IO_MAX = "io.max"
    IO_LATENCY = "io.latency"
    IO_COST_QOS = "io.cost.qos"
    IO_COST_MODEL = "io.cost.model"
    OOM_SCORE_ADJ = "oom_score_adj"
    """Of every process of the cgroup."""
    CORE_SCHED = "core_sched"
    """Core scheduling group of every process of the cgroup; "0" is none."""
    RESCTRL_GROUP = "resctrl.group"
    """Resource group whose tasks the cgroup's processes are; "" is the root group."""
    RESCTRL_SCHEMATA = "resctrl.schemata"
    """Schemata lines of the resource group named by `target`."""
    NET_CLASS = "net.class"
    NET_INGRESS = "net.ingress"
    """Traffic class of the cgroup: rate and ceiling in bytes/s and priority, "rate=1000 ceil=2000 prio=1"."""
    SYSCTL = "sysctl"
    """Host-wide; `target` is the name below /proc/sys or /sys/kernel/mm."""
    SCHED_FEATURE = "sched.feature"
    """Host-wide; `target` is the scheduler feature's name, the value "1" or "0"."""
    NODE_TAINT = "node.taint"
    """Keeps new pods off the node; `target` is the taint's key, the value "value:Effect"."""


class Strength(IntEnum):
    """Cost of an action for the cgroup that it acts on; conflicts and budgets go by it."""

    INVISIBLE = 0
    """Costs only while another cgroup competes: idle class, weight, protection, burst."""
    MILD = 1
    """Placement, reclaim of cold memory, soft limits."""
    HARD = 2
    """Limits that hold even while the resource is idle."""
    DRASTIC = 3
    """Freezing and eviction."""


class _Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    strategy: str
    """Module name of the strategy."""
    target: str
    """Path of a cgroup below the mount of its hierarchy, starting with `/`, or what the knob says it is."""
    reason: str
    """One sentence, with the numbers that decided."""
    verdict: str = ""
    """`victim|rule` of the verdict that it answers; empty where a strategy acts on its own measurements."""
    strength: Strength = Strength.MILD


class Setting(_Wanted, frozen=True, tag="setting"):
    """Value to be in effect while the lease lasts; requested anew each tick, restored when it no longer is."""

    knob: Knob
    value: str
    lease_seconds: float = 60.0
    """Time that an action stays in effect without being requested again."""
    protocol_state: bool = False
    """State that the protocol gives the pod (shares of batch resources, cpusets, memory QoS): it follows the pod and
    stays when the agent goes. Every other setting is an action: leased, and restored."""


class Reclaim(_Wanted, frozen=True, tag="reclaim"):
    """Reclaim of the target's memory, once; nothing to restore."""

    amount_bytes: int


class Evict(_Wanted, frozen=True, tag="evict"):
    """Eviction of the target: of a pod by the Eviction API, of any other cgroup by SIGTERM, then SIGKILL."""

    grace_seconds: float = 30.0
    """Time between the two signals; a pod has a grace period of its own."""


Intent = Setting | Reclaim | Evict
