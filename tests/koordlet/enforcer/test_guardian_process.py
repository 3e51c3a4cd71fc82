"""The guardian's process beside an agent that hangs and recovers, on a host of plain files."""

import ctypes
import json
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.intents import Knob
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import Clocks
from koordlet.enforcer.guardian import guardian as room
from koordlet.enforcer.guardian.guardian import Guardian
from tests.koordlet.enforcer.hosts import FakeHost, want
from tests.waiting import wait_for

QUOTA = "20000 100000"
_IN_OPEN, _EVENT_BYTES = 0x20, 16
"""Of inotify(7); events on a file itself carry no name."""


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    monkeypatch.setattr(room, "_HEAD_START_SECONDS", 1.0)
    made = FakeHost(tmp_path)
    made.make("/pod")
    return made


@contextmanager
def hanging(host: FakeHost, *, adopted_until: float | None = None) -> Iterator[tuple[Enforcer, Guardian]]:
    """An agent that set a quota and completes no tick, with its guardian."""
    host.clock = Clocks(time.monotonic(), time.time())
    enforcer = host.enforcer()
    enforcer.step([want(Knob.CPU_MAX, QUOTA)], now=host.clock)
    assert host.text("/pod", "cpu.max") == QUOTA
    guardian = Guardian(host.settings(guardian_seconds=0.5), host.tree, adopted_until=adopted_until)
    try:
        yield enforcer, guardian
    finally:
        guardian.close()
        enforcer.close()


@contextmanager
def opens(path: Path) -> Iterator[Callable[[], None]]:
    """A function that waits until a file is opened once more, by anybody."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    assert libc.inotify_add_watch(fd, os.fsencode(path), _IN_OPEN) >= 0, os.strerror(ctypes.get_errno())
    pending, poll = 0, select.poll()
    poll.register(fd, select.POLLIN)

    def wait() -> None:
        nonlocal pending
        if pending == 0:
            assert poll.poll(60_000), f"{path} was not opened"
            pending = len(os.read(fd, 4096)) // _EVENT_BYTES
        pending -= 1

    try:
        yield wait
    finally:
        os.close(fd)


def outcomes(host: FakeHost) -> list[str]:
    """Outcomes that the audit has, and a half line at its end has not."""
    lines = (host.root / "audit.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line)["outcome"] for line in lines]


def test_an_agent_that_recovers_while_a_file_fails_is_left_alone(host: FakeHost) -> None:
    file = host.file("/pod", "cpu.max")
    file.unlink()
    with hanging_on(host, file) as guardian:
        wait_for(lambda: "failed" in outcomes(host))
        guardian.beat()
        file.rmdir()
        file.write_text(f"{QUOTA}\n")
        until = time.monotonic() + 1.5  # longer than the time to the next attempt
        while time.monotonic() < until:
            guardian.beat()
            time.sleep(0.05)
            assert host.text("/pod", "cpu.max") == QUOTA, "two writers"
        wait_for(lambda: host.text("/pod", "cpu.max") == "max 100000")


def test_adopted_actions_stay_until_their_end_and_the_agents_head_start(host: FakeHost) -> None:
    until = time.monotonic() + 3.0
    with hanging(host, adopted_until=until):
        while time.monotonic() < until:
            assert host.text("/pod", "cpu.max") == QUOTA
            time.sleep(0.05)
        wait_for(lambda: host.text("/pod", "cpu.max") == "max 100000")
        assert time.monotonic() >= until + 1.0


@contextmanager
def hanging_on(host: FakeHost, file: Path) -> Iterator[Guardian]:
    """As `hanging`, with a file that cannot be restored: it is a directory."""
    file.write_text("max 100000\n")
    with hanging(host) as (_, guardian):
        file.unlink()
        file.mkdir()
        yield guardian


def test_a_file_that_failed_is_tried_again_while_nothing_comes(host: FakeHost) -> None:
    file = host.file("/pod", "cpu.max")
    with hanging_on(host, file):
        wait_for(lambda: "failed" in outcomes(host))
        file.rmdir()
        file.write_text(f"{QUOTA}\n")
        wait_for(lambda: host.text("/pod", "cpu.max") == "max 100000")


def test_a_journal_that_cannot_be_read_is_read_again(host: FakeHost) -> None:
    journal = host.root / "state/journal"
    with hanging(host) as (_, guardian):
        aside = journal.rename(journal.with_name("aside"))
        journal.mkdir()
        process = guardian._process
        assert process is not None
        with opens(journal) as wait_for_one:
            for _ in range(2):  # it comes to a second attempt only after the first
                wait_for_one()
        assert host.text("/pod", "cpu.max") == QUOTA
        journal.rmdir()
        aside.rename(journal)
        wait_for(lambda: host.text("/pod", "cpu.max") == "max 100000")
        assert process.poll() is None


def test_a_successor_that_holds_the_journal_restores(host: FakeHost) -> None:
    with hanging_on(host, host.file("/pod", "cpu.max")) as guardian:
        process = guardian._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()  # as at a death; the lock stays with this process
        process.wait(60)
        assert "failed" not in outcomes(host)
