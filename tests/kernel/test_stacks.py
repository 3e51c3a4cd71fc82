"""Stacks of cgroups on the running kernel: a function compiled at run time, a wait, and a cgroup that was not asked."""

import os
import platform
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event

import pytest

from api.stacks import StackKind, StackRole, StackSeries
from koordlet.evidence.capture import StackTaker
from koordlet.evidence.plan import StackPlan, Target
from koordlet.host.files import HostTree
from probes.probe import Kernel, ProbeLimits
from probes.stacks import HZ, Role, SampleKind, Samples, Stacks
from tests.cgroups import CgroupTree
from tests.stepper import SPIN_SETUP, Stepper

pytestmark = pytest.mark.kernel

COMPILED = """
import ctypes, mmap, os
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex("554889e5ebfe"))
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
with open(f"/tmp/perf-{os.getpid()}.map", "w") as perf_map:
    print(f"{start:x} 6 hot_loop", file=perf_map)
os.write(1, b"r")
ctypes.CFUNCTYPE(None)(start)()
"""
"""push %rbp; mov %rsp,%rbp; then a jump to itself for ever."""


@pytest.fixture
def stacks(kernel: Kernel) -> Iterator[Stacks]:
    opened = Stacks.open(kernel, ProbeLimits())
    yield opened
    opened.close()


class StoppingAtTheEnd:
    """Stacks of processes that are stopped then: where CPUs are emulated, giving names must not compete with them."""

    def __init__(self, stacks: Stacks, pids: tuple[int, ...]) -> None:
        self._stacks, self._pids = stacks, pids

    def begin(self, roles: Mapping[int, Role]) -> None:
        self._stacks.begin(roles)

    def tgids(self) -> frozenset[int]:
        return self._stacks.tgids()

    def end(self) -> Samples:
        samples = self._stacks.end()
        for pid in self._pids:
            os.kill(pid, signal.SIGSTOP)
        return samples


def functions(series: StackSeries, kind: StackKind) -> set[str]:
    return {frame for stack in series.stacks if stack.kind is kind for frame in stack.frames}


def test_compiled_code_has_its_name_and_other_cgroups_are_not_seen(stacks: Stacks, tree: CgroupTree) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the machine code of this test is x86's")
    with tree.make_cgroup("stacks-hot") as hot, tree.make_cgroup("stacks-other") as other:
        child = hot.spawn([sys.executable, "-S", "-E", "-c", COMPILED], stdout=-1)
        beside = other.spawn([sys.executable, "-S", "-E", "-c", "while True: pass"])
        assert child.stdout is not None
        assert child.stdout.read(1) == b"r"
        plan = StackPlan("/hot", "", (Target("/hot", StackRole.CULPRIT, frozenset({hot.cgroup_id})),))
        source = StoppingAtTheEnd(stacks, (child.pid, beside.pid))
        try:
            taken = StackTaker(source, HostTree(), tree.mount_of("cpu")).take(plan, 1.0, Event())
        finally:
            Path(f"/tmp/perf-{child.pid}.map").unlink()
        (series,) = taken.series
        assert all(stack.kind is StackKind.ON_CPU for stack in series.stacks)
        seen = sum(stack.count for stack in series.stacks)
        assert 0 < seen <= (taken.seconds * HZ + 1) * (os.cpu_count() or 1)
        assert "hot_loop" in functions(series, StackKind.ON_CPU)
        assert all(stack.frames[0].startswith("python") for stack in series.stacks)


def test_waits_are_between_the_times_that_enclose_them(stacks: Stacks, tree: CgroupTree) -> None:
    with tree.make_cgroup("stacks-waits") as victim:
        stepper = Stepper(victim, 0, "spin(0.02); time.sleep(0.1)", SPIN_SETUP)
        began_ns = time.monotonic_ns()
        stacks.begin({victim.cgroup_id: Role.WAITS_TOO})
        for _ in range(3):
            stepper.step()
        samples = stacks.end()
        outer_ns = time.monotonic_ns() - began_ns
        waits = [sample for sample in samples.stacks if sample.kind is not SampleKind.ON_CPU]
        blocked = [sample for sample in samples.stacks if sample.kind is SampleKind.BLOCKED]
        assert stepper.pid in samples.seen_tids
        assert sum(sample.ns for sample in blocked) >= 3 * 100_000_000
        assert sum(sample.ns for sample in waits) <= outer_ns - 3 * 20_000_000  # it spun meanwhile
        assert all(sample.kernel for sample in blocked if sample.taken)


def test_a_thread_that_ended_does_not_wait(stacks: Stacks, tree: CgroupTree) -> None:
    with tree.make_cgroup("stacks-ended") as victim:
        stacks.begin({victim.cgroup_id: Role.WAITS_TOO})
        child = victim.spawn(["/bin/sleep", "0.1"])
        child.wait()
        time.sleep(0.5)
        samples = stacks.end()
        waited_ns = sum(sample.ns for sample in samples.stacks if sample.tgid == child.pid)
        assert 100_000_000 <= waited_ns < 500_000_000


def test_nothing_stays_in_the_kernel(stacks: Stacks) -> None:
    stacks.begin({})
    with pytest.raises(RuntimeError):
        stacks.begin({})
    stacks.end()
    assert stacks.end().stacks == ()
    assert stacks.tgids() == frozenset()
