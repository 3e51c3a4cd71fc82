"""The tripwire: a watched cgroup's loss is reported within milliseconds, with its culprit; no other cgroup's is."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.cpu import Cpu
from probes.libbpf import BpfError
from probes.probe import Kernel, ProbeLimits
from probes.tripwire import Tripwire
from tests.cgroups import CgroupTree
from tests.waiting import wait_for

pytestmark = pytest.mark.kernel

BUSY = ["sh", "-c", "while :; do :; done"]
HELD = ["sh", "-c", "echo ready; read line; while :; do :; done"]
CPU = 0
PATIENCE_SECONDS = 30.0
WINDOW = (10_000_000, 50_000_000)


@pytest.fixture(scope="module")
def opened(module_kernel: Kernel) -> Iterator[Tripwire]:
    probe = Cpu.open(module_kernel, ProbeLimits(options={"cpu": {"tripwire": True}}))
    assert probe.tripwire is not None
    yield probe.tripwire
    probe.close()


@pytest.fixture
def wire(opened: Tripwire) -> Tripwire:
    """Watches nothing, and has told all there was to tell."""
    opened.watch({}, set())
    while opened.wait(0.1):
        pass
    return opened


def await_run(pid: int) -> None:
    """Wait until a process has run for some 50 ms: it has executed its program by then."""
    wait_for(lambda: sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) >= 5)


def test_a_loss_to_a_neighbour_is_told_within_moments_and_names_it(tree: CgroupTree, wire: Tripwire) -> None:
    with tree.make_cgroup("victim") as victim, tree.make_cgroup("hog") as hog:
        loser, culprit = victim.cgroup_id, hog.cgroup_id
        running = victim.spawn(BUSY, str(CPU))
        held = hog.spawn(HELD, str(CPU), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert held.stdin and held.stdout
        assert held.stdout.readline() == b"ready\n"
        await_run(running.pid)
        wire.watch({loser: WINDOW}, {culprit})
        held.stdin.write(b"go\n")
        began = time.monotonic_ns()
        held.stdin.flush()
        found = wait_for(lambda: [trip for trip in wire.wait(1.0) if trip.culprit == culprit])
    assert found[0].victim == loser
    assert found[0].lost_ns >= WINDOW[0]
    assert found[0].lost_seconds_per_second > 0.1
    assert found[0].at_ns - began < 2_000_000_000


def test_who_is_not_watched_or_loses_to_nobody_that_may_be_quieted_is_not_told_of(
    tree: CgroupTree, wire: Tripwire
) -> None:
    with tree.make_cgroup("one") as one, tree.make_cgroup("two") as two, tree.make_cgroup("quiet") as quiet:
        one.spawn(BUSY, str(CPU))
        two.spawn(BUSY, str(CPU))
        wire.watch({quiet.cgroup_id: WINDOW}, {one.cgroup_id, two.cgroup_id})
        assert wire.wait(1.5) == []
        wire.watch({one.cgroup_id: WINDOW}, {quiet.cgroup_id})
        assert wire.wait(1.5) == []
        wire.watch({one.cgroup_id: WINDOW}, {two.cgroup_id})
        assert {(trip.victim, trip.culprit) for trip in wire.wait(PATIENCE_SECONDS)} == {(one.cgroup_id, two.cgroup_id)}
        wire.watch({}, {two.cgroup_id})
        wire.wait(0.1)
        assert wire.wait(1.5) == []


def test_a_map_that_was_full_takes_what_is_watched_next(wire: Tripwire) -> None:
    """What came into it before the refusal must not stay: nothing would take it out again."""
    crowd = dict.fromkeys(range(1 << 40, (1 << 40) + 1100), WINDOW)
    with pytest.raises(BpfError):
        wire.watch(crowd, set())
    assert len(wire._watched.read()[0]) == len(wire._budgets) > 1000
    few = dict.fromkeys(range(1 << 41, (1 << 41) + 1000), WINDOW)
    wire.watch(few, set())
    assert set(wire._watched.read()[0].tolist()) == few.keys()
    with pytest.raises(BpfError):
        wire.watch(few, set(range(1, 5000)))
    wire.watch(few, set(range(5000, 9000)))
    assert set(wire._quietable.read()[0].tolist()) == set(range(5000, 9000))
