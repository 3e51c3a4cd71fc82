"""Reclaim: in pieces on v2, by lowered limits on v1, which are restored each time."""

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


def kernel(host: FakeHost, monkeypatch: pytest.MonkeyPatch, seen: list[str], stuck: int = 0) -> None:
    """Files that behave as the kernel's: usage follows a lower limit down to `stuck`, which it never reaches."""
    limit, usage = host.file("/pod", "memory.limit_in_bytes"), host.file("/pod", "memory.usage_in_bytes")
    real = Path.write_text

    def write(path: Path, text: str, *rest: Any, **more: Any) -> int:
        if path == limit:
            seen.append(text)
        return real(path, text, *rest, **more)

    def lower(path: Path, lowered: int, seconds: float) -> bool:
        assert path == limit
        assert 0.0 < seconds <= 0.2
        seen.append(str(lowered))
        if lowered < stuck:
            return False
        for file, text in (
            (limit, f"{lowered}\n"),
            (usage, f"{lowered}\n"),
            (host.file("/pod", "memory.stat"), f"total_rss 0\ntotal_inactive_file {lowered}\n"),
        ):
            real(file, text)
        return True

    monkeypatch.setattr(Path, "write_text", write)
    monkeypatch.setattr("koordlet.host.cgroups.reclaim._lower", lower)


def test_on_v1_a_lowered_limit_takes_memory_and_is_put_back_each_time(
    old: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    kernel(old, monkeypatch, seen)
    events = take(old, 20 << 20)
    assert [(event.outcome, event.file) for event in events] == [
        (Outcome.RECLAIMED, str(old.file("/pod", "memory.limit_in_bytes")))
    ]
    assert seen == [str(84 << 20), "-1", str(80 << 20), "-1"]
    assert "no more" not in events[0].reason


def test_on_v1_page_cache_is_left_for_allocations_meanwhile(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    kernel(old, monkeypatch, seen)
    enforcer = old.enforcer()
    (event,) = take(old, 100 << 20, enforcer)
    assert min(int(text) for text in seen if text != "-1") == 32 << 20
    assert f"no more than {68 << 20} bytes" in event.reason
    (event,) = take(old, 100 << 20, enforcer)
    assert "no more than 0 bytes" in event.reason


def test_on_v1_nothing_more_is_asked_of_a_kernel_that_gets_no_further(
    old: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    kernel(old, monkeypatch, seen, stuck=80 << 20)
    (event,) = take(old, 60 << 20)
    assert seen == [str(84 << 20), "-1", str(68 << 20), "-1"]
    assert (event.outcome, f"no more than {16 << 20}" in event.reason) == (Outcome.RECLAIMED, True)


def test_on_v1_a_cap_of_ours_is_what_is_put_back(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    enforcer = old.enforcer()
    cap = want(Knob.MEMORY_MAX, str(96 << 20))
    enforcer.step([cap], now=old.clock)
    kernel(old, monkeypatch, seen)
    intent = Reclaim(strategy="calm", target="/pod", reason="because", amount_bytes=8 << 20)
    events = enforcer.step([cap, intent], now=old.later(1))
    assert outcomes(events) == [("reclaim", "reclaimed", str(8 << 20))]
    assert seen == [str(92 << 20), str(96 << 20)]
    assert outcomes(enforcer.step([cap], now=old.later(1))) == []
    enforcer.close()
    assert old.text("/pod", "memory.limit_in_bytes") == "-1"


def test_on_v1_a_limit_that_was_left_lowered_is_put_back_by_the_next_run(
    old: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(directory: Path, limits: Any, standing: str) -> int:
        (directory / "memory.limit_in_bytes").write_text(f"{limits[0]}\n")
        raise KeyboardInterrupt

    journal = old.journal()
    killed = old.enforcer(journal=journal)
    monkeypatch.setattr("koordlet.enforcer.writer.reclaim_by_limit", die)
    with pytest.raises(KeyboardInterrupt):
        take(old, 20 << 20, killed)
    assert old.text("/pod", "memory.limit_in_bytes") == str(84 << 20)
    journal.close()
    old.enforcer().close()
    assert old.text("/pod", "memory.limit_in_bytes") == "-1"


def test_on_v1_nothing_is_taken_that_cannot_be_written_down(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    enforcer = old.enforcer(journal=old.journal(write=disk.write))
    disk.is_full = True
    seen: list[str] = []
    kernel(old, monkeypatch, seen)
    assert [event.outcome for event in take(old, 5 << 20, enforcer)] == [Outcome.JOURNAL_UNAVAILABLE]
    assert seen == []


def test_on_v1_a_dry_run_says_what_it_would_take(old: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    kernel(old, monkeypatch, seen)
    (event,) = take(old, 5 << 20, dry_run=True)
    assert (event.outcome, event.after, seen) == (Outcome.RECLAIMED, str(5 << 20), [])
    assert "no more" not in event.reason
