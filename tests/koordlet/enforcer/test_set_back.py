"""Originals that systemd sets back are set again: by the next step, between steps, and while no agent is there."""

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection

import pytest

from api.intents import Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks
from koordlet.enforcer.guardian import process
from koordlet.enforcer.guardian.guardian import Guardian
from koordlet.enforcer.guardian.restoring import Keeping, keep_files, left_by
from koordlet.enforcer.guardian.telling import Teller
from koordlet.enforcer.guardian.watch import Watch
from koordlet.enforcer.journal import JournalHeld
from koordlet.enforcer.originals.set_back import CONTESTED, MOST_TIMES, REASON, WINDOW_SECONDS
from koordlet.enforcer.writer import KernelWriter, Texts
from koordlet.host.attributes import Attribute
from tests.koordlet.enforcer.hosts import NO_QUOTA, FakeHost, audit, outcomes, quota, want
from tests.waiting import wait_for

SLICE = "/kubepods.slice/kubepods-besteffort.slice"
QUOTA = want(Knob.CPU_MAX, "20000 100000", SLICE)
BATCH = want(Knob.CPU_MAX, "50000 100000", SLICE, strategy="hooks", protocol_state=True)


@pytest.fixture(autouse=True)
def unit(host: FakeHost) -> None:
    host.make(SLICE)


def set_back(host: FakeHost, path: str = SLICE) -> None:
    """What systemd does when it is told the weight: it knows of no quota."""
    text, name = ("-1", "cpu.cfs_quota_us") if host.version == 1 else ("max 100000", "cpu.max")
    host.file(path, name).write_text(f"{text}\n")


def acting(host: FakeHost) -> Enforcer:
    """An enforcer on the real clock, with a quota in effect."""
    host.clock = Clocks(time.monotonic(), time.time())
    enforcer = host.enforcer()
    enforcer.step([QUOTA], now=host.clock)
    assert quota(host, SLICE) == "20000"
    return enforcer


def test_the_next_step_sets_it_again_and_tells_each_time(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([QUOTA], now=host.clock)
    for times in range(1, 4):
        set_back(host)
        events = enforcer.step([QUOTA], now=host.later(1))
        assert quota(host, SLICE) == "20000"
        assert [event.outcome for event in events] == [Outcome.SET_AGAIN, Outcome.UNCHANGED]
        assert enforcer.counts["calm", "cpu.max", "set_again"] == times
    told = audit(host)[-1]
    assert (told["outcome"], told["reason"]) == ("set_again", REASON)
    assert told["from"].startswith("max")
    assert told["to"].startswith("20000")
    assert enforcer.counts["calm", "cpu.max", "set"] == 1
    enforcer.close(host.clock)
    assert quota(host, SLICE) == NO_QUOTA[host.version]


def test_another_value_there_is_a_foreign_write(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([QUOTA], now=host.clock)
    name = "cpu.cfs_quota_us" if host.version == 1 else "cpu.max"
    host.file(SLICE, name).write_text("30000\n" if host.version == 1 else "30000 100000\n")
    events = enforcer.step([QUOTA], now=host.later(1))
    assert [event.outcome for event in events] == [Outcome.FOREIGN_WRITE, Outcome.BACKING_OFF]
    assert quota(host, SLICE) == "30000"


@pytest.mark.parametrize(
    ("knob", "name"),
    [
        pytest.param(Knob.CPU_BURST, {1: "cpu.cfs_burst_us", 2: "cpu.max.burst"}, id="burst"),
        pytest.param(Knob.FREEZE, {1: "freezer.state", 2: "cgroup.freeze"}, id="freeze"),
    ],
)
def test_an_original_that_systemd_does_not_write_is_a_foreign_write(
    host: FakeHost, knob: Knob, name: dict[int, str]
) -> None:
    unit, value = "/batch.slice", "1"
    host.make(unit)
    enforcer = host.enforcer()
    original = host.text(unit, name[host.version])
    enforcer.step([want(knob, value, unit)], now=host.clock)
    assert host.text(unit, name[host.version]) != original
    host.file(unit, name[host.version]).write_text(f"{original}\n")
    events = enforcer.step([want(knob, value, unit)], now=host.later(1))
    assert [event.outcome for event in events] == [Outcome.FOREIGN_WRITE, Outcome.BACKING_OFF]
    assert host.text(unit, name[host.version]) == original


def test_an_original_that_comes_back_without_end_is_a_foreign_write(host: FakeHost) -> None:
    enforcer = host.enforcer(foreign_write_backoff_seconds=60.0)
    enforcer.step([QUOTA], now=host.clock)
    for _ in range(MOST_TIMES):
        set_back(host)
        enforcer.step([QUOTA], now=host.later(1))
        assert quota(host, SLICE) == "20000"
    set_back(host)
    events = enforcer.step([QUOTA], now=host.later(1))
    assert [event.outcome for event in events] == [Outcome.FOREIGN_WRITE, Outcome.BACKING_OFF]
    assert events[0].reason == CONTESTED
    assert quota(host, SLICE) == NO_QUOTA[host.version]
    enforcer.step([QUOTA], now=host.later(61))
    assert quota(host, SLICE) == "20000"
    enforcer.close(host.clock)


def test_between_steps_it_ends_as_well(host: FakeHost) -> None:
    enforcer = acting(host)
    for _ in range(MOST_TIMES + 1):
        set_back(host)
        enforcer.look_after_actions()
    assert quota(host, SLICE) == NO_QUOTA[host.version]
    assert enforcer.counts["calm", "cpu.max", "set_again"] == MOST_TIMES
    assert enforcer.counts["calm", "cpu.max", "foreign_write"] == 1
    assert not enforcer.active_state().actions
    enforcer.close()


def test_pods_that_start_all_the_time_do_not_end_it(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([QUOTA], now=host.clock)
    pause_seconds = WINDOW_SECONDS / (MOST_TIMES - 1)
    for _ in range(3 * MOST_TIMES):
        set_back(host)
        enforcer.step([QUOTA], now=host.later(pause_seconds))
        assert quota(host, SLICE) == "20000"
    enforcer.close(host.clock)


def test_protocol_state_is_set_again_and_so_is_an_action_over_it(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([BATCH], now=host.clock)
    set_back(host)
    assert outcomes(enforcer.step([BATCH], now=host.later(1)))[0][1] == "set_again"
    assert quota(host, SLICE) == "50000"
    enforcer.step([BATCH, QUOTA], now=host.later(1))
    set_back(host)
    enforcer.step([BATCH, QUOTA], now=host.later(1))
    assert quota(host, SLICE) == "20000"
    set_back(host)
    enforcer.step([BATCH], now=host.later(1))
    assert quota(host, SLICE) == "50000"


def test_between_steps_an_action_is_set_again(host: FakeHost) -> None:
    enforcer = acting(host)
    set_back(host)
    assert not enforcer.look_after_actions()
    assert quota(host, SLICE) == "20000"
    assert enforcer.counts["calm", "cpu.max", "set_again"] == 1
    enforcer.close()


class Refusing(KernelWriter):
    """A kernel that takes no value below a path while that is asked for; counts reads."""

    below = ""
    reads = 0

    def read(self, attribute: Attribute) -> Texts:
        self.reads += 1
        return super().read(attribute)

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:
        if self.below and self.below in attribute.path:
            raise OSError(errno.EINVAL, "a child's quota above its parent's")
        super().write(attribute, value, expected, identity)


def test_what_the_kernel_refuses_is_counted_once_between_two_steps(host: FakeHost) -> None:
    host.clock, writer = Clocks(time.monotonic(), time.time()), Refusing()
    enforcer = host.enforcer(writer=writer)
    enforcer.step([QUOTA], now=host.clock)
    set_back(host)
    writer.below = SLICE
    for _ in range(2):
        for _ in range(3):
            enforcer.look_after_actions()
        assert enforcer.counts["calm", "cpu.max", "failed"] == 1
        enforcer.step([QUOTA], now=host.later(0.01))
    assert enforcer.counts["calm", "cpu.max", "failed"] == 1
    writer.below = ""
    enforcer.look_after_actions()
    assert quota(host, SLICE) == "20000"
    enforcer.close()


@pytest.mark.parametrize("host", [2], indirect=True)
def test_of_many_actions_a_fifth_is_looked_at_each_time(host: FakeHost) -> None:
    units = [f"/p{number}.slice" for number in range(300)]
    for unit in units:
        host.make(unit)
    host.clock, writer = Clocks(time.monotonic(), time.time()), Refusing()
    enforcer = host.enforcer(writer=writer, changes_per_minute=1000)
    enforcer.step([want(Knob.CPU_MAX, "20000 100000", unit) for unit in units], now=host.clock)
    for unit in units:
        set_back(host, unit)
    for look in range(1, 6):
        writer.reads = 0
        enforcer.look_after_actions()
        assert writer.reads == 60
        assert [quota(host, unit) for unit in units].count("20000") == look * 60
    enforcer.close()


def test_nothing_is_set_again_once_the_guardian_may_have_restored_it(host: FakeHost) -> None:
    enforcer = acting(host)
    enforcer._leases.until_seconds = time.monotonic()
    set_back(host)
    enforcer.look_after_actions()
    assert quota(host, SLICE) == NO_QUOTA[host.version]
    enforcer.close()


def handed_over(host: FakeHost, seconds: float = 60.0) -> None:
    """An agent that ended amid a rollout; meanwhile a pod started."""
    enforcer = acting(host)
    enforcer.close(handover_seconds=seconds)
    set_back(host)


def test_a_successor_sets_again_what_it_adopted_before_it_has_decided(host: FakeHost) -> None:
    handed_over(host)
    successor = host.enforcer()
    successor.look_after_actions()
    assert quota(host, SLICE) == "20000"
    assert successor.counts == {
        ("calm", "cpu.max", "set_again"): 1,
        ("", "journal", "failed"): 0,
        ("", "audit", "lost"): 0,
    }
    successor.close()
    assert quota(host, SLICE) == NO_QUOTA[host.version]


def test_without_an_agent_the_files_are_kept_until_a_successor_comes(host: FakeHost) -> None:
    handed_over(host)
    left, keeping = left_by(host.settings()), Keeping()
    events = keep_files(left, host.tree, keeping)
    assert quota(host, SLICE) == "20000"
    assert [event.outcome for event in events] == [Outcome.SET_AGAIN]
    teller = Teller(left)
    teller.tell(events)
    teller.close(30)
    assert audit(host)[-1]["outcome"] == "set_again"
    successor = host.enforcer()
    set_back(host)
    with pytest.raises(JournalHeld):
        keep_files(left, host.tree, keeping)
    successor.close()
    set_back(host)
    assert keep_files(left, host.tree, keeping) == []
    assert quota(host, SLICE) == NO_QUOTA[host.version]


def test_nothing_is_kept_of_an_agent_that_handed_nothing_over(host: FakeHost) -> None:
    enforcer = acting(host)
    enforcer._journal.close()  # as at a death
    set_back(host)
    keep_files(left_by(host.settings()), host.tree, Keeping())
    assert quota(host, SLICE) == NO_QUOTA[host.version]


def test_a_directory_of_state_that_was_removed_stays_so(host: FakeHost) -> None:
    handed_over(host)
    shutil.rmtree(host.root / "state")
    assert keep_files(left_by(host.settings()), host.tree, Keeping()) == []
    assert not (host.root / "state").exists()


def test_one_file_that_is_refused_keeps_no_other_from_being_set_again(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, rest = SLICE, "/kubepods.slice/rest.slice"
    host.make(rest)
    host.clock = Clocks(time.monotonic(), time.time())
    enforcer = host.enforcer()
    enforcer.step([QUOTA, want(Knob.CPU_MAX, "20000 100000", rest)], now=host.clock)
    enforcer.close(handover_seconds=60.0)
    set_back(host, refused)
    set_back(host, rest)
    monkeypatch.setattr(Refusing, "below", refused)
    monkeypatch.setattr("koordlet.enforcer.guardian.restoring.KernelWriter", Refusing)
    left, teller = left_by(host.settings()), Teller(left_by(host.settings()))
    for _ in range(3):
        events = keep_files(left, host.tree, Keeping())
        assert quota(host, rest) == "20000"
        teller.tell(events)
        set_back(host, rest)
    assert {event.target: event.outcome for event in events} == {refused: Outcome.FAILED, rest: Outcome.SET_AGAIN}
    teller.close(30)
    told = [line["outcome"] for line in audit(host)]
    assert (told.count("failed"), told.count("set_again")) == (1, 3)


def test_without_an_agent_too_it_is_not_set_again_without_end(host: FakeHost) -> None:
    handed_over(host)
    left, keeping = left_by(host.settings()), Keeping()
    told = []
    for _ in range(MOST_TIMES + 3):
        set_back(host)
        told += [event.outcome for event in keep_files(left, host.tree, keeping)]
    assert told == [Outcome.SET_AGAIN] * MOST_TIMES + [Outcome.FOREIGN_WRITE]


def test_whatever_fails_in_keeping_them_they_are_restored_at_the_deadline(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_over(host)
    put_on = host.file(SLICE, "cpu.cfs_quota_us" if host.version == 1 else "cpu.max")
    put_on.write_text("20000\n" if host.version == 1 else "20000 100000\n")
    guardian = Guardian(host.settings(), host.tree)
    given = guardian._given
    guardian.close()

    def fail(*_: object) -> None:
        raise ValueError("of any kind")

    monkeypatch.setattr(process, "keep_files", fail)
    read, write = os.pipe()
    now = time.monotonic()
    os.write(write, f"over {now + 0.7!r}\n".encode())
    os.close(write)
    with os.fdopen(read) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        try:
            process._serve(Watch(30.0, now), [], given)
        finally:
            signal.set_wakeup_fd(-1)
    assert quota(host, SLICE) == NO_QUOTA[host.version]


@pytest.mark.parametrize("host", [2], indirect=True)
def test_a_disk_that_hangs_keeps_the_guardian_from_nothing(host: FakeHost) -> None:
    hanging = host.root / "hanging"
    os.mkfifo(hanging)  # an open for writing waits until there is a reader, as a disk that hangs lets it wait
    enforcer = acting(host)
    guardian = Guardian(host.settings(audit_file=str(hanging)), host.tree)
    guardian.beat()
    started = guardian._process
    assert started is not None
    enforcer.close(handover_seconds=60.0)
    guardian.hand_over(time.monotonic() + 60.0)
    try:
        for _ in range(2):
            set_back(host)
            wait_for(lambda: quota(host, SLICE) == "20000", 15)
        started.send_signal(signal.SIGTERM)
        wait_for(lambda: quota(host, SLICE) == NO_QUOTA[2], 15)
    finally:
        started.send_signal(signal.SIGTERM)
        reader = os.open(hanging, os.O_RDONLY | os.O_NONBLOCK)
        started.wait(30)
        os.close(reader)


def test_the_guardian_keeps_them_while_no_agent_is_there(host: FakeHost) -> None:
    enforcer = acting(host)
    guardian = Guardian(host.settings(), host.tree)
    guardian.beat()
    pid, deadline = guardian.pid, time.monotonic() + 60.0
    assert pid is not None
    enforcer.close(handover_seconds=60.0)
    guardian.hand_over(deadline)
    for _ in range(2):
        set_back(host)
        wait_for(lambda: quota(host, SLICE) == "20000", 30)
    os.kill(pid, signal.SIGTERM)  # no successor is to come
    wait_for(lambda: quota(host, SLICE) == NO_QUOTA[host.version], 30)
