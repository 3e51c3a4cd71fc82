"""What the enforcer does with a journal of an earlier run, damaged, or that cannot be written."""

from api.intents import Knob
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.lifecycle import restore
from tests.koordlet.enforcer.hosts import NO_QUOTA, QUOTA, Disk, FakeHost, put_quota, quota, want


def test_a_run_that_ended_badly_is_put_back_by_the_next(host: FakeHost) -> None:
    journal = host.journal()
    host.enforcer(journal=journal).step([QUOTA], now=host.clock)
    journal.close()  # as if killed: nothing is put back
    assert quota(host) == "20000"
    events = restore(host.settings(), host.tree)
    assert [(event.outcome, event.reason) for event in events] == [(Outcome.RESTORED, "left by an earlier run")]
    assert quota(host) == NO_QUOTA[host.version]
    put_quota(host, "20000")
    assert restore(host.settings(), host.tree) == []
    assert quota(host) == "20000"


def test_a_damaged_journal_restores_what_stood_before_the_damage(v2: FakeHost) -> None:
    v2.make("/other")
    journal = v2.journal()
    crashed = v2.enforcer(journal=journal)
    crashed.step([QUOTA], now=v2.clock)
    crashed.step([QUOTA, want(Knob.CPU_MAX, "30000", "/other")], now=v2.clock)
    journal.close()
    path = v2.root / "state/journal"
    path.write_bytes(path.read_bytes().replace(b"/cg/other", b"/cg/motor"))
    events = restore(v2.settings(), v2.tree)
    damage = events[0]
    assert damage.outcome == Outcome.FAILED
    assert "1 attributes" in damage.reason
    assert "lost" in damage.reason
    assert quota(v2) == "max"
    assert quota(v2, "/other") == "30000"
    assert len(list((v2.root / "state").glob("journal.damaged-*"))) == 1


def test_without_a_journal_nothing_is_written(host: FakeHost) -> None:
    disk = Disk()
    enforcer = host.enforcer(journal=host.journal(write=disk.write))
    disk.is_full = True
    events = enforcer.step([QUOTA], now=host.clock)
    assert quota(host) == NO_QUOTA[host.version]
    assert [event.outcome for event in events] == [Outcome.JOURNAL_UNAVAILABLE]
    disk.is_full = False
    enforcer.step([QUOTA], now=host.later(1))
    assert quota(host) == "20000"
