"""Kernels that are tested, each with its cgroup layout."""

from dataclasses import dataclass
from typing import Literal

CgroupLayout = Literal["v1", "hybrid", "v2"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One boot: the default kernel of a Debian suite, and how cgroups are mounted in it."""

    name: str
    suite: str
    cgroup: CgroupLayout
    headers: bool = False
    """With the kernel's header files, for programs compiled in the guest."""
    threads_per_core: int = 1
    """Hardware threads of each core; the guest's CPUs are its threads."""
    possible_cpus: int = 2
    """CPUs that the kernel makes room for, two of them online; with many, CPUs share the probes' maps."""
    minutes: int = 0
    """What all its groups take of an emulated CPU, about; the longest is booted first."""


MATRIX = (
    Entry("6.1", "bookworm", "v2", headers=True, minutes=22),
    Entry("6.1-cgroup1", "bookworm", "v1", possible_cpus=255, minutes=9),
    Entry("6.12", "trixie", "v2", threads_per_core=2, minutes=12),
    Entry("newest", "sid", "v2", minutes=16),
)

_EACH_RELEASE = ("6.1", "6.12", "newest")
"""For programs that depend on the kernel's release and not on its cgroup layout."""

KERNELS_OF_GROUP = {
    "cgroups": ("6.1-cgroup1", "newest"),
    "churn": ("6.12",),
    "current_knobs": ("6.1-cgroup1", "newest"),
    "detect_bench": ("newest",),
    "disk_variance": _EACH_RELEASE,
    "enforcer": ("6.1-cgroup1", "newest"),
    "enforcer_guardian": ("6.12",),
    "enforcer_kill": ("newest",),
    "faults": ("6.12",),
    "full_node": ("6.1-cgroup1", "newest"),
    "ingress": ("6.1-cgroup1", "6.12"),
    "irq": _EACH_RELEASE,
    "memory_story": ("6.1", "6.1-cgroup1"),
    "net": _EACH_RELEASE,
    "net_paths": ("newest",),
    "pmu": _EACH_RELEASE,
    "pmu_focus": _EACH_RELEASE,
    "privileges": ("6.12",),
    "self_test": ("6.1", "newest"),
    "slowdown": ("newest",),
    "smt": _EACH_RELEASE,
    "stacks": _EACH_RELEASE,
    "strategy_numbers": ("6.1-cgroup1", "6.12"),
    "swap_out": ("6.1", "newest"),
    "traffic": ("6.1", "6.12"),
    "tree_events": ("6.1-cgroup1", "6.12"),
    "triage": ("6.12",),
    "tripwire": _EACH_RELEASE,
    "turnaround": _EACH_RELEASE,
    "unexplained_stalls": _EACH_RELEASE,
    "yarn_containers": ("6.1-cgroup1", "newest"),
}
"""Which kernels run a group, where not all do.

Programs in the kernel run in each release, and under v1 where the layout is what they tell apart. What the agent does
with files runs in one or two. The running kernel runs them all, and every kernel those that are asked for. Traffic in
other network namespaces is known since Linux 6.6 only, so it is tried before and after.
"""
