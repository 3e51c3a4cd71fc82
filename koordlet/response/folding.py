"""Folding: several culprits that lie in one directory, of which nothing else is busy, are acted upon as that directory.

A node with twenty best-effort pods has no culprit with a tenth of the loss, and one rung for all of them is cheaper
than twenty.
"""

from collections.abc import Callable, Sequence

from api.cgroup_path import competing_ancestor, is_within
from api.verdicts import Culprit, How
from koordlet.response.observation import Observation

_BUSY_CORES = 0.02
"""CPU time of a cgroup above which a limit on what it lives in would reach it."""


def folded(
    observation: Observation,
    victim: str,
    eligible: Sequence[Culprit],
    small: Sequence[Culprit],
    *,
    least_share: float,
    is_alone: Callable[[str], bool],
    may_be_folded: Callable[[str], bool],
) -> tuple[list[Culprit], list[Culprit]]:
    """Put in place of culprits the directory just below where they and the victim compete; return these and the rest of
    the `small` ones, whose shares are too small to be acted upon by themselves.

    Nothing is folded where a member is acted upon alone already, where another cgroup of the directory is busy, or
    where the whole has less than `least_share` of the loss.
    """
    eligible, small = list(eligible), list(small)
    groups: dict[str, list[Culprit]] = {}
    for culprit in [*eligible, *small]:
        groups.setdefault(competing_ancestor(culprit.path, victim), []).append(culprit)
    for whole, members in groups.items():
        paths = {member.path for member in members}
        share = sum(member.share for member in members)
        if len(members) < 2 or share < least_share or any(is_alone(path) for path in paths):
            continue
        if not may_be_folded(whole) or not _is_all_that_is_busy(observation, whole, paths):
            continue
        how = How.DIRECT if all(member.how is How.DIRECT for member in members) else How.CORRELATED
        eligible = [*(one for one in eligible if one.path not in paths), Culprit(whole, min(share, 1.0), how)]
        small = [one for one in small if one.path not in paths]
    return eligible, small


def _is_all_that_is_busy(observation: Observation, whole: str, paths: set[str]) -> bool:
    """Return whether something in a directory is busy and all of it lies in these cgroups; False where the CPU time of
    a directory's own threads is not measured."""
    if observation.cpu_waits is None:
        return False
    rows = observation.subtrees.rows(whole)
    busy = [observation.cgroups[row].path for row in rows[observation.cpu_cores[rows] > _BUSY_CORES].tolist()]
    return bool(busy) and all(any(is_within(path, member) for member in paths) for path in busy)
