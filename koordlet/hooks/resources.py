"""What a container, or a pod as a whole, must run with. None is not decided here: the runtime's own value stays."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from api.cpuset import format_cpuset
from api.intents import Knob
from koordlet.strategies.cpuquota import PERIOD_US

UNLIMITED = -1
"""Quota or memory limit that is expressly none. A number below the least never means it."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One bind mount."""

    source: str
    destination: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """One character device."""

    path: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResources:
    """Resources of a container, or of a pod as a whole."""

    cpu_shares: int | None = None
    """As in cpu.shares, 2 to 262144."""
    cpu_quota_us: int | None = None
    """Per 100 ms, at least 1000, or UNLIMITED."""
    cpuset_cpus: frozenset[int] | None = None
    """Never empty."""
    memory_limit_bytes: int | None = None
    """Positive, or UNLIMITED."""
    bvt: int | None = None
    """Group identity, -1 to 2."""
    idle: bool | None = None
    core_sched_group: str | None = None
    """"0" leaves every group."""
    oom_score_adj: int | None = None
    resctrl_group: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables to add."""
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()


NOTHING = ContainerResources()
"""Nothing is decided."""


def merged(first: ContainerResources, second: ContainerResources) -> ContainerResources:
    """Return `first` with what only `second` decides; environment, mounts and devices of both, those of `first`
    first."""
    if second == NOTHING:
        return first
    joined = ("env", "mounts", "devices")
    filled = {
        item.name: getattr(second, item.name)
        for item in fields(ContainerResources)
        if item.name not in joined and getattr(first, item.name) is None
    }
    return replace(
        first,
        **filled,
        env={**second.env, **first.env},
        mounts=tuple(dict.fromkeys((*first.mounts, *second.mounts))),
        devices=tuple(dict.fromkeys((*first.devices, *second.devices))),
    )


def knob_values(resources: ContainerResources, *, v1: bool) -> dict[Knob, str]:
    """Return the kernel settings of a cgroup in cgroup v2 syntax; `v1` is the host's cpu hierarchy.

    Shares become a weight by the ratio that the host's writer reverses on v1, and by Kubernetes' formula on v2, where
    the neighbours' weights were made by it.
    """
    values: dict[Knob, str] = {}
    if resources.cpu_shares is not None:
        weigh = weight_of_shares_v1 if v1 else weight_of_shares
        values[Knob.CPU_WEIGHT] = str(weigh(resources.cpu_shares))
    if resources.cpu_quota_us is not None:
        quota = "max" if resources.cpu_quota_us == UNLIMITED else resources.cpu_quota_us
        values[Knob.CPU_MAX] = f"{quota} {PERIOD_US}"
    if resources.cpuset_cpus:
        values[Knob.CPUSET_CPUS] = format_cpuset(resources.cpuset_cpus)
    if resources.memory_limit_bytes is not None:
        limit = resources.memory_limit_bytes
        values[Knob.MEMORY_MAX] = "max" if limit == UNLIMITED else str(limit)
    return values


def weight_of_shares(shares: int) -> int:
    """Return the cpu.weight of cpu.shares by Kubernetes' formula: 2 is 1, 1024 is 39, 262144 is 10000."""
    shares = min(max(shares, 2), 262144)
    return 1 + (shares - 2) * 9999 // 262142


def weight_of_shares_v1(shares: int) -> int:
    """Return the cpu.weight that stands for cpu.shares on cgroup v1: 1024 is 100, as in the kernel."""
    return min(max((shares * 100 + 512) // 1024, 1), 10_000)
