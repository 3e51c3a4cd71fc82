"""Originals that systemd sets back are set again: by the next step, between steps, and while no agent is there."""

import errno
import os
import signal
import time
from collections.abc import Collection

import pytest

from api.intents import Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks
from koordlet.enforcer.guardian.guardian import Guardian
from koordlet.enforcer.guardian.restoring import keep_files, left_by
from koordlet.enforcer.journal import JournalHeld
from koordlet.enforcer.originals.set_back import REASON
from koordlet.enforcer.writer import KernelWriter
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
    assert quota(host, path) == NO_QUOTA[host.version]


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
    """A kernel that takes no value below a path while that is asked for."""

    below = ""

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
    left = left_by(host.settings())
    keep_files(left, host.tree)
    assert quota(host, SLICE) == "20000"
    assert audit(host)[-1]["outcome"] == "set_again"
    successor = host.enforcer()
    set_back(host)
    with pytest.raises(JournalHeld):
        keep_files(left, host.tree)
    successor.close()
    set_back(host)
    keep_files(left, host.tree)
    assert quota(host, SLICE) == NO_QUOTA[host.version]


def test_nothing_is_kept_of_an_agent_that_handed_nothing_over(host: FakeHost) -> None:
    enforcer = acting(host)
    enforcer._journal.close()  # as at a death
    set_back(host)
    keep_files(left_by(host.settings()), host.tree)
    assert quota(host, SLICE) == NO_QUOTA[host.version]


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
