"""Reclaim: in pieces on v2, on v1 by a limit that usage cannot fit."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.intents import Knob, Reclaim
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import EnforcerEvent
from tests.koordlet.enforcer.hosts import (
    Disk,
    FakeHost,
    outcomes,
    want,
)


def test_memory_is_taken_in_pieces(v2: FakeHost) -> None:
    intent = Reclaim(strategy="calm", target="/pod", reason="because", amount_bytes=(16 << 20) + 5)
    events = v2.enforcer().step([intent], now=v2.clock)
    assert [(event.outcome, event.after) for event in events] == [(Outcome.RECLAIMED, str((16 << 20) + 5))]
    assert v2.text("/pod", "memory.reclaim").startswith("5")


@pytest.fixture
def old(tmp_path: Path) -> FakeHost:
    host = FakeHost(tmp_path, 1)
    host.make("/pod")
    return host


def take(host: FakeHost, amount: int, enforcer: Enforcer | None = None, **also: Any) -> list[EnforcerEvent]:
    intent = Reclaim(strategy="calm", target="/pod", reason="because", amount_bytes=amount)
    return (enforcer or host.enforcer(**also)).step([intent], now=host.clock)


def kernel(host: FakeHost, monkeypatch: pytest.MonkeyPatch, stuck: int = 0) -> list[bytes]:
    """Files as the kernel's, of which a write reclaims 4 MiB a turn down to `stuck`; returns what is written."""
    written: list[bytes] = []
    usage, stat = host.file("/pod", "memory.usage_in_bytes"), host.file("/pod", "memory.stat")

    def write(next_seconds: Callable[[], float], seconds: float, _fd: int, content: bytes, _undo: bytes) -> None:
        assert 0.0 < seconds <= 0.2
        written.append(content)
        while next_seconds() > 0.0:
            held = max(int(usage.read_text()) - (4 << 20), stuck)
            usage.write_text(f"{held}\n")
            stat.write_text(f"total_rss 0\ntotal_inactive_file {held}\n")
            if held == stuck:
                raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr("koordlet.host.cgroups.reclaim.write_in_turns", write)
    return written


def usage_bytes(host: FakeHost) -> int:
    return int(host.text("/pod", "memory.usage_in_bytes"))


def test_on_v1_memory_is_taken_by_a_limit_that_usage_cannot_fit(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    written = kernel(old, monkeypatch)
    events = take(old, 20 << 20)
    assert [(event.outcome, event.file) for event in events] == [
        (Outcome.RECLAIMED, str(old.file("/pod", "memory.limit_in_bytes")))
    ]
    assert (written, usage_bytes(old)) == ([b"0"], 80 << 20)
    assert "no more" not in events[0].reason


def test_on_v1_page_cache_is_left(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(old, monkeypatch)
    enforcer = old.enforcer()
    (event,) = take(old, 100 << 20, enforcer)
    assert usage_bytes(old) == 32 << 20
    assert f"no more than {68 << 20} bytes" in event.reason
    (event,) = take(old, 100 << 20, enforcer)
    assert "no more than 0 bytes" in event.reason


def test_on_v1_nothing_more_is_asked_of_a_kernel_that_gets_no_further(
    old: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = kernel(old, monkeypatch, stuck=84 << 20)
    (event,) = take(old, 60 << 20)
    assert written == [b"0"]
    assert (event.outcome, f"no more than {16 << 20}" in event.reason) == (Outcome.RECLAIMED, True)


def test_on_v1_a_cap_of_ours_stays(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    enforcer = old.enforcer()
    cap = want(Knob.MEMORY_MAX, str(96 << 20))
    enforcer.step([cap], now=old.clock)
    kernel(old, monkeypatch)
    intent = Reclaim(strategy="calm", target="/pod", reason="because", amount_bytes=8 << 20)
    events = enforcer.step([cap, intent], now=old.later(1))
    assert outcomes(events) == [("reclaim", "reclaimed", str(8 << 20))]
    assert outcomes(enforcer.step([cap], now=old.later(1))) == []
    enforcer.close()
    assert old.text("/pod", "memory.limit_in_bytes") == "-1"


def test_on_v1_a_limit_that_was_left_lowered_is_put_back_by_the_next_run(
    old: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(directory: Path, _amount_bytes: int, _present_limit: str) -> int:
        (directory / "memory.limit_in_bytes").write_text("0\n")
        raise KeyboardInterrupt

    journal = old.journal()
    killed = old.enforcer(journal=journal)
    monkeypatch.setattr("koordlet.enforcer.writer.reclaim_by_limit", die)
    with pytest.raises(KeyboardInterrupt):
        take(old, 20 << 20, killed)
    assert old.text("/pod", "memory.limit_in_bytes") == "0"
    journal.close()
    old.enforcer().close()
    assert old.text("/pod", "memory.limit_in_bytes") == "-1"


def test_on_v1_nothing_is_left_in_the_journal_where_the_file_cannot_be_read_afterwards(
    old: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        old.file("/pod", "memory.usage_in_bytes").write_text("what\n")

    monkeypatch.setattr("koordlet.host.cgroups.reclaim.write_in_turns", fail)
    journal = old.journal()
    (event,) = take(old, 20 << 20, old.enforcer(journal=journal))
    assert event.outcome == Outcome.FAILED
    assert "memory.usage_in_bytes" in event.reason
    assert not journal.live


def test_on_v1_nothing_is_taken_that_cannot_be_written_down(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    enforcer = old.enforcer(journal=old.journal(write=disk.write))
    disk.is_full = True
    written = kernel(old, monkeypatch)
    assert [event.outcome for event in take(old, 5 << 20, enforcer)] == [Outcome.JOURNAL_UNAVAILABLE]
    assert written == []


def test_on_v1_a_dry_run_says_what_it_would_take(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    written = kernel(old, monkeypatch)
    (event,) = take(old, 5 << 20, dry_run=True)
    assert (event.outcome, event.after, written) == (Outcome.RECLAIMED, str(5 << 20), [])
    assert "no more" not in event.reason
