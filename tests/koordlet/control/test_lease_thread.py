"""Leases end although no tick comes; a step that hangs is left to the guardian."""

import errno
import threading
import time
from collections.abc import Collection
from pathlib import Path
from threading import Event

import pytest

from api.intents import Knob
from koordlet.control.lease_thread import LeaseThread
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks
from koordlet.enforcer.writer import KernelWriter, Writer
from koordlet.host.attributes import Attribute
from tests.koordlet.enforcer.hosts import FakeHost, want
from tests.waiting import wait_for

STATE = want(Knob.CPU_WEIGHT, "7", strategy="hooks", protocol_state=True)


class RefusingWriter(KernelWriter):
    """A kernel that refuses every text while that is asked for."""

    refuses = False

    def write(self, attribute: Attribute, value: str, expected: Collection[str], identity: str) -> None:
        if self.refuses:
            raise OSError(errno.EBUSY, "busy")
        super().write(attribute, value, expected, identity)


def acting(host: FakeHost, *, lease_seconds: float, guardian_seconds: float, writer: Writer | None = None) -> Enforcer:
    """An enforcer whose clock is the real one, with an action and protocol state in effect."""
    host.make("/pod")
    host.clock = Clocks(time.monotonic(), time.time())
    enforcer = host.enforcer(writer=writer)
    enforcer.step([want(Knob.CPU_MAX, "20000 100000", lease_seconds=lease_seconds), STATE], now=host.later(0.0))
    assert host.text("/pod", "cpu.max") == "20000 100000"
    # From now on: the step above may take longer than that on a busy machine.
    enforcer._upkeep.longest_seconds = guardian_seconds
    return enforcer


@pytest.mark.parametrize(
    ("lease_seconds", "guardian_seconds", "is_stopped"),
    [pytest.param(0.1, 60.0, False, id="lease"), pytest.param(60.0, 0.1, True, id="pause")],
)
def test_actions_end_and_protocol_state_stays(
    tmp_path: Path, lease_seconds: float, guardian_seconds: float, is_stopped: bool
) -> None:
    host, told = FakeHost(tmp_path), Event()
    enforcer = acting(host, lease_seconds=lease_seconds, guardian_seconds=guardian_seconds)
    thread = LeaseThread(threading.Lock(), enforcer.look_after_actions, 0.1, told.set)
    wait_for(lambda: host.text("/pod", "cpu.max") == "max 100000")
    if is_stopped:
        assert told.wait(30)
    assert host.text("/pod", "cpu.weight") == "7"
    thread.close()
    assert enforcer.counts["calm", "cpu.max", "restored"] == 1
    assert told.is_set() == is_stopped
    enforcer.close()


@pytest.mark.parametrize("is_stopped", [False, True], ids=["lease", "pause"])
def test_what_could_not_be_restored_is_tried_again_without_a_step(tmp_path: Path, is_stopped: bool) -> None:
    host, writer = FakeHost(tmp_path), RefusingWriter()
    seconds = (60.0, 0.1) if is_stopped else (0.1, 60.0)
    enforcer = acting(host, lease_seconds=seconds[0], guardian_seconds=seconds[1], writer=writer)
    writer.refuses = True
    wait_for(lambda: not enforcer.look_after_actions() and not enforcer.active_state().actions)
    assert host.text("/pod", "cpu.max") == "20000 100000"
    assert not enforcer.look_after_actions(), "the guardian is not eased while something is left"
    writer.refuses = False
    enforcer._leases._retry_at = time.monotonic()
    assert enforcer.look_after_actions() == is_stopped
    assert host.text("/pod", "cpu.max") == "max 100000"
    assert host.text("/pod", "cpu.weight") == "7"
    enforcer.close()


def test_an_action_that_is_renewed_stays(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    enforcer = acting(host, lease_seconds=60.0, guardian_seconds=60.0)
    assert not enforcer.look_after_actions()
    assert host.text("/pod", "cpu.max") == "20000 100000"
    enforcer.close()
    assert enforcer.look_after_actions()


def test_while_a_step_hangs_it_only_looks_again(tmp_path: Path) -> None:
    lock, calls, told = threading.Lock(), Event(), Event()

    def end() -> bool:
        calls.set()
        return True

    with lock:
        thread = LeaseThread(lock, end, 0.08, told.set)
        assert not calls.wait(0.1)
    assert told.wait(30)
    thread.close()


def test_a_failure_is_counted_and_it_looks_again(caplog: pytest.LogCaptureFixture) -> None:
    def end() -> bool:
        raise OSError("the disk is gone")

    thread = LeaseThread(threading.Lock(), end, 0.008, lambda: None)
    wait_for(lambda: thread.failures > 2)
    thread.close()
    assert caplog.text.count("cannot be looked after") == 1


def test_a_step_that_outlasts_the_lease_sets_nothing_more(tmp_path: Path) -> None:
    host = FakeHost(tmp_path)
    enforcer = acting(host, lease_seconds=60.0, guardian_seconds=0.2)
    enforcer._upkeep.last_tick_seconds = time.monotonic()
    enforcer.look_after_actions()
    hold = enforcer._journal.hold

    def slow(entries: object) -> bool:
        time.sleep(0.3)  # as if the process was stopped between the journal and the kernel
        return hold(entries)  # type: ignore[arg-type]

    enforcer._journal.hold = slow  # type: ignore[method-assign]
    events = enforcer.step([want(Knob.CPU_MAX, "30000 100000"), STATE], now=host.later(0.1))
    assert host.text("/pod", "cpu.max") == "20000 100000", "what was there is the guardian's to restore by now"
    assert any("outlasted" in event.reason for event in events)
    enforcer._journal.hold = hold  # type: ignore[method-assign]
    enforcer.close()
