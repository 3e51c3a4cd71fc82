"""Which kernels are tested, and with which cgroup layout."""

from __future__ import annotations

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


MATRIX = (
    Entry("6.1", "bookworm", "v2", headers=True),
    Entry("6.1-cgroup1", "bookworm", "v1"),
    Entry("6.12", "trixie", "v2", threads_per_core=2),
    Entry("newest", "sid", "v2"),
)
