"""Cgroups above others: places of subtrees, what is not known, and cgroups that come and go."""

from collections.abc import Iterable

import numpy as np

from api.frame import KERNEL_ID, OTHER_ID, CgroupInfo
from probes.parents import Parents


def _infos(*paths: str, first: int = 1) -> tuple[CgroupInfo, ...]:
    return tuple(CgroupInfo(identity, path, path) for identity, path in enumerate(paths, start=first))


def _above(parents: Parents, *ids: int) -> list[int]:
    return parents.above(np.array(ids, dtype=np.uint64)).ids.tolist()


def _holds(parents: Parents, culprit: int, victim: int) -> bool:
    """Whether the cgroup above the culprit holds the victim."""
    above = parents.above(np.array([culprit], dtype=np.uint64))
    return bool(above.hold(np.array([0]), parents.places(np.array([victim], dtype=np.uint64)))[0])


def test_only_a_cgroup_below_the_root_is_above_another() -> None:
    infos = _infos("/", "/a", "/a/b", "/a/b/c", "/a-b")
    parents = Parents(lambda: infos)
    assert _above(parents, 1, 2, 3, 4, 5) == [OTHER_ID, OTHER_ID, 2, 3, OTHER_ID]
    assert _above(parents, KERNEL_ID, OTHER_ID, 0, 99) == [OTHER_ID] * 4


def test_a_subtree_is_not_what_begins_with_its_name() -> None:
    infos = _infos("/a", "/a/x", "/a-b", "/a/x/y", "/a/x!", "/a b/x", "/a/x/y/z")
    parents = Parents(lambda: infos)
    inside = {victim for victim in range(1, 8) if _holds(parents, 4, victim)}  # above 4 is 2, /a/x
    assert inside == {2, 4, 7}
    assert {victim for victim in range(1, 8) if _holds(parents, 2, victim)} == {1, 2, 4, 5, 7}


def test_a_victim_that_is_not_known_may_be_anywhere() -> None:
    infos = _infos("/a", "/a/x")
    assert _holds(Parents(lambda: infos), 2, 99)


def test_cgroups_that_come_are_followed_and_those_that_went_keep_their_parent() -> None:
    alive: list[tuple[CgroupInfo, ...]] = [_infos("/a", "/a/x")]
    gone: list[Iterable[CgroupInfo]] = [()]
    parents = Parents(lambda: alive[0], lambda: gone[0])
    assert _above(parents, 2, 3) == [1, OTHER_ID]
    gone[0], alive[0] = alive[0], _infos("/a", "/a/y", first=3)
    assert _above(parents, 2, 4) == [3, 3], "of two at one path the one that lives"
