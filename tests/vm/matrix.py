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


MATRIX = (
    Entry("6.1", "bookworm", "v2", headers=True),
    Entry("6.1-cgroup1", "bookworm", "v1", possible_cpus=255),
    Entry("6.12", "trixie", "v2", threads_per_core=2),
    Entry("newest", "sid", "v2"),
)

LONG_GROUPS = {
    "churn": ("6.12",),
    "detect_bench": ("newest",),
    "enforcer": ("6.1-cgroup1", "newest"),
    "enforcer_guardian": ("6.12",),
    "enforcer_kill": ("newest",),
    "full_node": ("6.1-cgroup1", "newest"),
    "ingress": ("6.1-cgroup1", "6.12"),
    "memory_story": ("6.1", "6.1-cgroup1"),
    "net_paths": ("newest",),
    "privileges": ("6.12",),
    "slowdown": ("newest",),
    "traffic": ("6.1", "6.12"),
    "triage": ("6.12",),
}
"""Long groups, half a minute or more of an emulated CPU, that count nothing a probe reports: which kernels run them.

The running kernel runs them all, and every kernel those that are asked for. Traffic in other network namespaces is
known since Linux 6.6 only, so it is tried before and after.
"""


def num_long_groups(entry: Entry) -> int:
    """Return how many long groups the entry runs; what is compiled in a guest takes it as long as five."""
    return sum(entry.name in kernels for kernels in LONG_GROUPS.values()) + 5 * entry.headers
