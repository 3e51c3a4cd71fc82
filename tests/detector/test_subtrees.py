"""Subtrees as runs of rows: the same as asking each path."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cgroup_path import is_within, parent
from api.frame import CgroupInfo
from detector.subtrees import Subtrees

NAMES = st.sampled_from(["a", "a b", "a-b", "b", "a.slice", "é", "~", "\\x01"])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts)), max_size=25)


def infos(paths: list[str]) -> tuple[CgroupInfo, ...]:
    return tuple(CgroupInfo(number + 7, path, path) for number, path in enumerate(dict.fromkeys(["/", *paths])))


@given(PATHS, st.randoms())
def test_subtrees_are_those_of_the_paths(paths: list[str], draw: object) -> None:
    cgroups = infos(paths)
    tree, own = Subtrees(cgroups), np.arange(1.0, len(cgroups) + 1)
    sums = tree.sums(own, np.arange(len(cgroups)))
    for row, info in enumerate(cgroups):
        expected = [each for each, other in enumerate(cgroups) if is_within(other.path, info.path)]
        assert sorted(tree.rows(info.path).tolist()) == expected
        assert sorted(tree.ids(info.path).tolist()) == [cgroups[each].id for each in expected]
        assert sums[row] == pytest.approx(own[expected].sum())
        children = [each for each, other in enumerate(cgroups) if parent(other.path) == info.path]
        assert sorted(tree.children(info.path).tolist()) == children


def test_what_is_not_there_has_only_what_is_below_it() -> None:
    tree = Subtrees(infos(["/a/b", "/a.slice/c"]))
    assert tree.rows("/a").tolist() == [1]
    assert tree.rows("/nowhere").tolist() == []
    assert tree.children("/nowhere").tolist() == []
