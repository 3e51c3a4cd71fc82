"""Death before and after every journal write and kernel write of a story: the next start always restores."""

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from api.intents import Intent, Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.journal import peek
from koordlet.enforcer.journal_format import Kind
from koordlet.enforcer.lifecycle import own_cgroup, restore
from koordlet.enforcer.writer import KernelWriter
from koordlet.host.attributes import Attribute
from tests.koordlet.enforcer.hosts import FakeHost, Intents, want
from tests.trees import make_tree

KILLED = 9
STORY: list[Intents] = [
    [want(Knob.CPU_MAX, "50000 100000"), want(Knob.CPUSET_CPUS, "0-1"), want(Knob.MEMORY_MAX, "8192000")],
    [want(Knob.CPU_MAX, "20000 50000"), want(Knob.CPUSET_CPUS, "2-3"), want(Knob.CPU_WEIGHT, "7")],
    [want(Knob.CPU_MAX, "20000 100000"), want(Knob.CPUSET_CPUS, "1-2"), want(Knob.CPU_WEIGHT, "7")],
    [want(Knob.CPUSET_CPUS, "4"), want(Knob.MEMORY_MAX, "4096000")],
    [want(Knob.CPUSET_CPUS, "4")],
]


def state(knob: Knob, value: str) -> Intent:
    return want(knob, value, strategy="hooks", protocol_state=True)


OVERLAYS: list[Intents] = [
    [state(Knob.CPU_MAX, "50000 100000"), state(Knob.CPUSET_CPUS, "0-3"), state(Knob.CPU_WEIGHT, "9")],
    [
        state(Knob.CPU_MAX, "50000 100000"),
        want(Knob.CPU_MAX, "20000 100000"),
        state(Knob.CPUSET_CPUS, "0-3"),
        want(Knob.CPUSET_CPUS, "4-5"),
        state(Knob.CPU_WEIGHT, "9"),
    ],
    [
        state(Knob.CPU_MAX, "60000 100000"),
        want(Knob.CPU_MAX, "20000 50000"),
        state(Knob.CPUSET_CPUS, "1-4"),
        want(Knob.CPUSET_CPUS, "4-5"),
        want(Knob.CPU_WEIGHT, "5"),
    ],
    [state(Knob.CPU_MAX, "60000 100000"), want(Knob.CPUSET_CPUS, "2"), state(Knob.CPU_WEIGHT, "8")],
    [state(Knob.CPUSET_CPUS, "1-4"), state(Knob.CPU_WEIGHT, "8")],
    [],
]


class Death:
    """Ends the process before or after the n-th write to the journal or to a kernel file; nothing is tidied up."""

    def __init__(self, moment: int) -> None:
        self.moments_left = moment

    def journal_write(self, fd: int, content: bytes) -> None:
        self.pass_one()
        os.write(fd, content)
        self.pass_one()

    def pass_one(self) -> None:
        self.moments_left -= 1
        if not self.moments_left:
            os._exit(KILLED)


class MortalWriter(KernelWriter):
    def __init__(self, death: Death) -> None:
        self.death = death

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:
        self.death.pass_one()
        super().write(attribute, value, expected, identity)
        self.death.pass_one()


def play(host: FakeHost, moment: int, story: list[Intents] = STORY) -> bool:
    """Whether the story was told to its end before that moment came."""
    pid = os.fork()
    if pid == 0:
        try:
            death = Death(moment)
            journal = host.journal(write=death.journal_write)
            enforcer = host.enforcer(journal=journal, writer=MortalWriter(death))
            for intents in story:
                enforcer.step(intents, now=host.later(1))
            enforcer.close(host.clock)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, KILLED)
    return status == 0


def files(host: FakeHost) -> dict[str, str]:
    return {str(path): path.read_text().strip() for path in (host.root / "cg").rglob("*") if path.is_file()}


@pytest.mark.parametrize("version", [1, 2])
def test_there_is_a_way_back_from_every_moment(tmp_path: Path, version: int) -> None:
    moment, changed = 0, 0
    while True:
        moment += 1
        host = FakeHost(tmp_path / str(moment), version)
        host.make("/pod")
        host.file("/pod", "cpuset.cpus").write_text("5-6\n")  # no list of the story lies within it, nor it in one
        before = files(host)
        if play(host, moment):
            break
        changed += files(host) != before
        events = restore(host.settings(), host.tree)
        assert {event.outcome for event in events} <= {Outcome.RESTORED, Outcome.UNCHANGED}, moment
        assert normal(files(host)) == normal(before), moment
        assert restore(host.settings(), host.tree) == [], moment
    assert normal(files(host)) == normal(before)
    assert moment > 50
    assert changed > 20


@pytest.mark.parametrize("version", [1, 2])
def test_from_every_moment_actions_end_to_protocol_state_and_all_of_it_to_the_originals(
    tmp_path: Path, version: int
) -> None:
    moment, states = 0, set()
    while True:
        moment += 1
        host = FakeHost(tmp_path / str(moment), version)
        host.make("/pod")
        host.file("/pod", "cpuset.cpus").write_text("6-7\n")
        before = files(host)
        if play(host, moment, OVERLAYS):
            break
        restore(host.settings(), host.tree)
        live = peek(host.root / "state", "boot-1").values()
        assert {entry.kind for entry in live} <= {Kind.PROTOCOL}, moment
        for entry in live:
            assert (entry.attribute.read() or set()) <= {entry.original, *entry.ours}, moment
        states.add(host.text("/pod", "cpuset.cpus"))
        restore(host.settings(), host.tree, everything=True)
        assert normal(files(host)) == normal(before), moment
        assert restore(host.settings(), host.tree, everything=True) == [], moment
    assert normal(files(host)) == normal(before)
    assert states >= {"6-7", "0-3", "1-4"}
    assert not states & {"4-5", "2"}, "an action outlived its agent"
    assert moment > 50


@pytest.mark.parametrize("version", [1, 2])
def test_from_every_moment_the_next_run_gives_the_pod_what_the_protocol_does(tmp_path: Path, version: int) -> None:
    moment = 0
    while True:
        moment += 1
        host = FakeHost(tmp_path / str(moment), version)
        host.make("/pod")
        host.file("/pod", "cpuset.cpus").write_text("6-7\n")
        before = files(host)
        if play(host, moment, OVERLAYS[:2]):
            break
        successor = host.enforcer()
        events = successor.step(OVERLAYS[0], now=host.later(1))
        assert not {event.outcome for event in events} & {Outcome.FOREIGN_WRITE, Outcome.BACKING_OFF}, moment
        assert host.text("/pod", "cpuset.cpus") == "0-3", moment
        successor.step([], now=host.later(1))
        assert normal(files(host)) == normal(before), moment
        successor.close(host.clock)
    assert moment > 20


def normal(found: dict[str, str]) -> dict[str, str]:
    """Unlimited is written as -1 and read back as a huge number by a real kernel."""
    return {path: "-1" if text == "9223372036854771712" else text for path, text in found.items()}


def test_its_own_cgroup_is_found_from_inside_a_cgroup_namespace(tmp_path: Path) -> None:
    """There a container is told that it is at the root."""
    host = FakeHost(tmp_path)
    make_tree(tmp_path, {"proc/self/cgroup": "0::/\n"})
    host.make("/kubepods/agent")
    assert own_cgroup(host.tree) == "/"
    host.file("/kubepods/agent", "cgroup.procs").write_text(f"1\n{os.getpid()}\n")
    assert own_cgroup(host.tree) == "/kubepods/agent"
