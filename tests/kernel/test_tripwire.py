"""The tripwire: a watched cgroup's loss is told within moments, with the culprit's name, and nobody else's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from probes.cpu import Cpu
from probes.probe import Kernel, ProbeLimits
from probes.tripwire import Tripwire
from tests.cgroups import CgroupTree

pytestmark = pytest.mark.kernel

BUSY = ["sh", "-c", "while :; do :; done"]
CPU = 0
WINDOW = (10_000_000, 50_000_000)


@pytest.fixture
def wire(kernel: Kernel) -> Iterator[Tripwire]:
    opened = Cpu.open(kernel, ProbeLimits(options={"cpu": {"tripwire": True}}))
    assert opened.tripwire is not None
    yield opened.tripwire
    opened.close()


def test_a_loss_to_a_neighbour_is_told_within_moments_and_names_it(tree: CgroupTree, wire: Tripwire) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        loser, culprit = victim.cgroup_id, hog.cgroup_id
        victim.spawn(BUSY, str(CPU))
        wire.watch({loser: WINDOW})
        hog.spawn(BUSY, str(CPU))
        began = time.monotonic_ns()
        deadline = time.monotonic() + 10
        found = []
        while time.monotonic() < deadline and not found:
            found = [trip for trip in wire.wait(1.0) if trip.culprit == culprit]
    assert found, "no trip named the hog"
    assert found[0].victim == loser
    assert found[0].lost_ns >= WINDOW[0]
    assert found[0].lost_seconds_per_second > 0.1
    assert found[0].at_ns - began < 2_000_000_000


def test_who_is_not_watched_or_loses_nothing_is_not_told_of(tree: CgroupTree, wire: Tripwire) -> None:
    with tree.make_cgroup("one") as one, tree.make_cgroup("two") as two, tree.make_cgroup("quiet") as quiet:
        one.spawn(BUSY, str(CPU))
        two.spawn(BUSY, str(CPU))
        wire.watch({quiet.cgroup_id: WINDOW})
        assert wire.wait(1.5) == []
        wire.watch({one.cgroup_id: WINDOW})
        assert any(trip.victim == one.cgroup_id for trip in wire.wait(5.0))
        wire.watch({})
        wire.wait(0.1)
        assert wire.wait(1.5) == []
