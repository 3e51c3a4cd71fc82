"""Memory domains that online and best-effort workloads share, and their free memory: a few file reads a tick.

Pods and applications are read only where free memory is below half of the limit; until then no strategy has anything
to decide there.
"""

from collections.abc import Iterable, Sequence

from api import cgroup_path
from koordlet.host.cgroups.hierarchies import find_hierarchies
from koordlet.host.cgroups.memory import MemoryFiles
from koordlet.host.files import HostTree
from koordlet.strategies.view import Group, GroupKind, MemoryDomain

PLENTY_RATIO = 0.5
"""Free part of a limit above which its members are not read."""


class MemoryDomainReader:
    """Reads the memory files of each tick, which it keeps open."""

    def __init__(self, tree: HostTree, files: MemoryFiles, *, v1: bool) -> None:
        self._tree = tree
        self._files = files
        self.v1 = v1
        """True where the memory controller is of cgroup v1."""

    def domains(self, groups: Sequence[Group], memory_bytes: int, available_bytes: int) -> tuple[MemoryDomain, ...]:
        """Return the node and every limited cgroup above both kinds of workloads, innermost last."""
        members = outermost(groups)
        domains = [self._domain("/", members, memory_bytes, available_bytes)]
        shared = shared_ancestors(members)
        for path in shared:
            limit, usage = self._files.limit_bytes(path), self._files.usage_bytes(path)
            if limit and usage is not None:
                domains.append(self._domain(path, members, limit, max(limit - usage, 0)))
        self._files.keep({*(member.path for member in members), *shared})
        return tuple(domains)

    def _domain(self, path: str, members: Sequence[Group], limit: int, free: int) -> MemoryDomain:
        if free > limit * PLENTY_RATIO:
            return MemoryDomain(path=path, limit_bytes=limit, free_bytes=free)
        prefix = path.rstrip("/") + "/"
        inside = [member for member in members if member.path.startswith(prefix)]
        usage = {member.path: self._files.usage_bytes(member.path) for member in inside}
        swap = self._has_swap()
        reclaimable = {
            member.path: self._files.reclaimable_bytes(member.path, swap=swap)
            for member in inside
            if member.best_effort and not member.protected
        }
        return MemoryDomain(
            path=path,
            limit_bytes=limit,
            free_bytes=free,
            usage_bytes={name: amount for name, amount in usage.items() if amount is not None},
            reclaimable_bytes={name: amount for name, amount in reclaimable.items() if amount is not None},
        )

    def _has_swap(self) -> bool:
        return len((self._tree.text("/proc/swaps") or "").splitlines()) > 1


def open_memory_domains(tree: HostTree) -> MemoryDomainReader | None:
    """Return a reader; None without a memory controller."""
    hierarchies = find_hierarchies(tree)
    if hierarchies.memory is None:
        return None
    v1 = hierarchies.memory != hierarchies.unified
    return MemoryDomainReader(tree, MemoryFiles(hierarchies.memory, v1=v1), v1=v1)


def outermost(groups: Sequence[Group]) -> list[Group]:
    """Return pods and applications without those inside another one: no usage counts twice."""
    members = {group.path: group for group in groups if group.kind in (GroupKind.POD, GroupKind.HOST_APP)}
    kept = cgroup_path.outermost(members)
    return [group for path, group in members.items() if path in kept]


def shared_ancestors(members: Sequence[Group]) -> list[str]:
    """Cgroups with best-effort and other work below them, outermost first."""
    best_effort = _above(member.path for member in members if member.best_effort)
    online = _above(member.path for member in members if not member.best_effort)
    return sorted(best_effort & online, key=lambda path: (path.count("/"), path))


def _above(paths: Iterable[str]) -> set[str]:
    """All ancestors of these cgroups; those in one directory have the same."""
    one_of_each = {cgroup_path.parent(path): path for path in paths}
    return {above for path in one_of_each.values() for above in cgroup_path.ancestors(path)}
