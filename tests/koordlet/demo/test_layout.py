"""Layouts of the stage: where the weight acts, and what is removed."""

import pytest

from api.cgroup_path import competing_ancestor, is_within
from koordlet.demo.layout import BEST_EFFORT_POD, LAYOUTS, PODS, SIBLINGS, Layout


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_lever_is_what_competes_with_the_service(layout: Layout) -> None:
    assert layout.batch_lever == competing_ancestor(layout.batch, layout.online)
    assert all(is_within(path, layout.root) for path in (layout.online, layout.batch, *layout.shares))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_every_cgroup_is_removed_before_the_one_above(layout: Layout) -> None:
    left = list(layout.paths)
    while left:
        path = left.pop(0)
        assert not any(other.startswith(f"{path}/") for other in left)
    assert layout.paths[-1] == layout.root


def test_a_pod_has_one_class() -> None:
    assert SIBLINGS.classed == (SIBLINGS.online, SIBLINGS.batch)
    for layout in (PODS, BEST_EFFORT_POD):
        assert layout.classed == (layout.online.rpartition("/")[0], layout.batch.rpartition("/")[0])
