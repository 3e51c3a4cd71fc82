"""Watches of cgroups that come and go: kernfs does not end them itself."""

from collections.abc import Iterator

import pytest

from koordlet.host.cgroups.tree_events import TreeEvents
from tests.cgroups import CgroupTree, TestCgroup
from tests.waiting import wait_for

pytestmark = [pytest.mark.kernel, pytest.mark.beside(together=True)]


@pytest.fixture
def kubepods() -> Iterator[TestCgroup]:
    with CgroupTree.detect().make_cgroup("kubepods") as made:
        yield made


@pytest.fixture
def events() -> Iterator[TreeEvents]:
    running = TreeEvents(lambda: None)
    yield running
    running.close()


def test_watches_end_with_the_pods_that_they_are_of(kubepods: TestCgroup, events: TreeEvents) -> None:
    assert events.follow(kubepods.cpu_dir)
    burstable = kubepods.make_cgroup("burstable")
    for name in ("a", "b", "c"):
        burstable.make_cgroup(name)
    wait_for(lambda: events.watches == 5)
    burstable.remove()
    wait_for(lambda: events.watches == 1)


def test_a_cgroup_made_anew_is_followed_again(kubepods: TestCgroup, events: TreeEvents) -> None:
    assert events.follow(kubepods.cpu_dir)
    kubepods.remove()
    kubepods.create()
    kubepods.make_cgroup("early")
    assert events.follow(kubepods.cpu_dir)
    assert events.watches == 2
    kubepods.make_cgroup("late")
    wait_for(lambda: events.watches == 3)
    kubepods.remove()
    assert not events.follow(kubepods.cpu_dir)
    assert events.watches == 0
