"""Ancestry of cgroups by their paths: parents, subtrees, the outermost of several. Pure strings, no I/O.

Paths start with `/` under the mount of the cpu hierarchy. The root cgroup is the parent of the top-level ones but
counts as no cgroup's ancestor: its own tasks are a neighbour like any other, and a setting there is the node's.
"""

from collections.abc import Iterable

ROOT = "/"


def parent(path: str) -> str:
    """Return the path above, `/` for a top-level cgroup, empty for the root."""
    return "" if path == ROOT else path.rpartition("/")[0] or ROOT


def ancestors(path: str) -> list[str]:
    """Return the paths above a cgroup, nearest first, without the root and itself."""
    found = []
    above = path.rpartition("/")[0]
    while above:
        found.append(above)
        above = above.rpartition("/")[0]
    return found


def lineage(path: str) -> list[str]:
    """Return a cgroup and its ancestors, nearest first; slashes at the ends of the path do not count."""
    path = "/" + path.strip("/")
    return [path, *ancestors(path)]


def is_below(path: str, other: str) -> bool:
    """Return whether a cgroup is in the subtree of another one, which is not the root."""
    return other != ROOT and path.startswith(f"{other}/")


def is_within(path: str, other: str) -> bool:
    """Return whether a cgroup is another one, or below it."""
    return path == other or is_below(path, other)


def outermost(paths: Iterable[str]) -> frozenset[str]:
    """Return the paths that are not below another one of them."""
    members = frozenset(paths)
    return frozenset(path for path in members if members.isdisjoint(ancestors(path)))


def competing_ancestor(path: str, other: str) -> str:
    """Return the first cgroup's ancestor, or itself, just below the ancestor that both have in common.

    Weights and cpu.idle act between the children of one cgroup only. Empty where one lies within the other; the root
    competes with every other cgroup, by its own tasks.
    """
    mine, theirs = path.strip("/").split("/"), other.strip("/").split("/")
    shared = 0
    while shared < min(len(mine), len(theirs)) and mine[shared] == theirs[shared]:
        shared += 1
    if shared in (len(mine), len(theirs)):
        return ""
    return "/" + "/".join(mine[: shared + 1])
