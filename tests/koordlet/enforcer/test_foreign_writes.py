"""Foreign writes, and cgroups that end or are made again: neither is ours to restore."""

import shutil

import pytest

from api.intents import Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.journal import Journal
from koordlet.enforcer.journal_format import JournalEntry
from tests.koordlet.enforcer.hosts import (
    NO_QUOTA,
    QUOTA,
    FakeHost,
    outcomes,
    put_quota,
    quota,
    want,
)


@pytest.mark.parametrize("foreign", ["30000", "original"])
def test_a_foreign_write_stays_and_the_knob_backs_off(host: FakeHost, foreign: str) -> None:
    enforcer = host.enforcer(foreign_write_backoff_seconds=60.0)
    enforcer.step([QUOTA], now=host.clock)
    text = NO_QUOTA[host.version] if foreign == "original" else foreign
    put_quota(host, text)
    events = enforcer.step([QUOTA], now=host.later(1))
    assert quota(host) == text
    assert [event.outcome for event in events] == [Outcome.FOREIGN_WRITE, Outcome.BACKING_OFF]
    enforcer.step([QUOTA], now=host.later(58))
    assert quota(host) == text
    assert enforcer.counts["calm", "cpu.max", "foreign_write"] == 1
    enforcer.step([QUOTA], now=host.later(2))
    assert quota(host) == "20000"
    enforcer.close(host.clock)
    assert quota(host) == text


def test_among_many_places_a_foreign_write_is_noticed_before_the_next_of_ours(v2: FakeHost) -> None:
    paths = [f"/p{number}" for number in range(300)]
    for path in paths:
        v2.make(path)
    enforcer = v2.enforcer()
    enforcer.step([want(Knob.CPU_WEIGHT, "5", path) for path in paths], now=v2.clock)
    for path in paths:
        v2.file(path, "cpu.weight").write_text("77\n")
    events = enforcer.step([want(Knob.CPU_WEIGHT, "6", path) for path in paths], now=v2.later(1))
    assert [event.outcome for event in events].count(Outcome.FOREIGN_WRITE) == 300
    assert {v2.text(path, "cpu.weight") for path in paths} == {"77"}


def test_a_foreign_write_is_not_restored(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([QUOTA], now=host.clock)
    put_quota(host, "30000")
    events = enforcer.close(host.clock)
    assert quota(host) == "30000"
    assert [event.outcome for event in events] == [Outcome.FOREIGN_WRITE]


def test_a_cgroup_that_died_is_given_up(host: FakeHost) -> None:
    enforcer = host.enforcer()
    assert outcomes(enforcer.step([want(Knob.CPU_MAX, "20000", "/never")], now=host.clock)) == [
        ("cpu.max", "gone", "20000")
    ]
    enforcer.step([QUOTA], now=host.clock)
    for folder in (host.root / "cg").glob("**/pod"):
        shutil.rmtree(folder)
    events = enforcer.step([QUOTA], now=host.later(1))
    assert {event.outcome for event in events} == {Outcome.GONE}
    assert enforcer.active_settings() == {}
    assert enforcer.close(host.clock) == []


def test_a_cgroup_made_again_under_the_same_path_is_another(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([QUOTA], now=host.clock)
    for folder in list((host.root / "cg").glob("**/pod")):
        folder.rename(folder.with_name("old"))  # keeps the inode number in use
    host.make("/pod")
    put_quota(host, "20000")
    events = enforcer.step([], now=host.later(1))
    assert [event.outcome for event in events] == [Outcome.GONE]
    assert quota(host) == "20000"


def test_a_cgroup_that_is_made_again_just_before_the_write_stays_as_it_is(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = host.enforcer()
    real = Journal.hold

    def hold(journal: Journal, entries: list[JournalEntry]) -> bool:
        for folder in list((host.root / "cg").glob("**/pod")):
            folder.rename(folder.with_name("old"))
        host.make("/pod")
        return real(journal, entries)

    monkeypatch.setattr(Journal, "hold", hold)
    events = enforcer.step([QUOTA], now=host.clock)
    assert {event.outcome for event in events} == {Outcome.GONE}
    assert quota(host) == NO_QUOTA[host.version]
