"""The enforcer on hosts made of files: settings, restoring, foreign writes, reclaim and evictions."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from api.intents import Evict, Knob, Reclaim, Setting
from api.qos import QoSClass
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.events import EnforcerEvent
from koordlet.enforcer.journal import Journal
from koordlet.enforcer.journal_format import JournalEntry
from koordlet.enforcer.lifecycle import open_enforcer, restore
from koordlet.host.attributes import KernelFile
from koordlet.host.files import HostError
from tests.koordlet.enforcer.hosts import Disk, FakeHost, infos, outcomes, want

QUOTA = want(Knob.CPU_MAX, "20000 100000")


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, request.param)
    made.make("/pod")
    return made


@pytest.fixture
def v2(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, 2)
    made.make("/pod")
    return made


def quota(host: FakeHost, path: str = "/pod") -> str:
    return host.text(path, "cpu.cfs_quota_us" if host.version == 1 else "cpu.max").partition(" ")[0]


def put_quota(host: FakeHost, text: str) -> None:
    name = "cpu.cfs_quota_us" if host.version == 1 else "cpu.max"
    host.file("/pod", name).write_text(text if host.version == 1 else f"{text} 100000")


def audit(host: FakeHost) -> list[dict[str, Any]]:
    path = host.root / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


NO_QUOTA = {1: "-1", 2: "max"}


def test_a_setting_is_applied_and_restored_when_it_is_no_longer_asked_for(host: FakeHost) -> None:
    enforcer = host.enforcer()
    events = enforcer.step([QUOTA], now=host.clock)
    assert quota(host) == "20000"
    assert [event.outcome for event in events] == [Outcome.SET]
    assert [event.outcome for event in enforcer.step([QUOTA], now=host.later(1))] == [Outcome.UNCHANGED]
    events = enforcer.step([], now=host.later(1))
    assert quota(host) == NO_QUOTA[host.version]
    assert [event.outcome for event in events] == [Outcome.RESTORED]
    assert enforcer.active_settings() == {}


def test_a_value_that_is_there_already_is_not_written(host: FakeHost) -> None:
    put_quota(host, "20000")
    before = host.file("/pod", "cpu.cfs_quota_us" if host.version == 1 else "cpu.max").stat().st_mtime_ns
    enforcer = host.enforcer()
    assert outcomes(enforcer.step([QUOTA], now=host.clock)) == []
    assert host.file("/pod", "cpu.cfs_quota_us" if host.version == 1 else "cpu.max").stat().st_mtime_ns == before
    enforcer.close(host.clock)
    assert quota(host) == "20000"


def test_leaving_puts_everything_back(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.step([QUOTA, want(Knob.CPU_WEIGHT, "5"), want(Knob.MEMORY_MAX, "8192000")], now=host.clock)
    events = enforcer.close(host.clock)
    assert quota(host) == NO_QUOTA[host.version]
    assert {event.outcome for event in events} == {Outcome.RESTORED}
    assert enforcer.close(host.clock) == []
    assert enforcer.step([QUOTA], now=host.later(1)) == []
    assert quota(host) == NO_QUOTA[host.version]
    assert restore(host.settings(), host.tree) == []


def test_idle_and_back_keeps_the_weight(v2: FakeHost) -> None:
    v2.file("/pod", "cpu.weight").write_text("250\n")
    enforcer = v2.enforcer()
    enforcer.step([want(Knob.CPU_IDLE, "1")], now=v2.clock)
    v2.file("/pod", "cpu.weight").write_text("1\n")  # the kernel does that by itself
    enforcer.step([want(Knob.CPU_IDLE, "1")], now=v2.later(1))
    enforcer.step([], now=v2.later(1))
    assert (v2.text("/pod", "cpu.idle"), v2.text("/pod", "cpu.weight")) == ("0", "250")


@pytest.mark.parametrize("wall", [0.0, 4_000_000_000.0], ids=["back", "forth"])
def test_a_lease_ends_by_the_monotonic_clock_alone(host: FakeHost, wall: float) -> None:
    enforcer = host.enforcer()
    enforcer.step([want(Knob.CPU_MAX, "20000", lease_seconds=10.0)], now=host.clock)
    enforcer.step([], now=host.later(9, wall=wall), silent=("calm",))
    assert quota(host) == "20000"
    events = enforcer.step([], now=host.later(1.5), silent=("calm",))
    assert quota(host) == NO_QUOTA[host.version]
    assert [event.reason for event in events] == ["the lease ended"]


def test_being_wanted_again_renews_the_lease(host: FakeHost) -> None:
    enforcer = host.enforcer()
    intent = want(Knob.CPU_MAX, "20000", lease_seconds=10.0)
    enforcer.step([intent], now=host.clock)
    enforcer.step([intent], now=host.later(9))
    enforcer.step([], now=host.later(9), silent=("calm",))
    assert quota(host) == "20000"


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


def test_one_owner_and_the_loser_is_told(v2: FakeHost) -> None:
    enforcer = v2.enforcer()
    intents = [want(Knob.CPU_MAX, "50000", strategy="mild"), want(Knob.CPU_MAX, "20000", strategy="strict")]
    events = enforcer.step(intents, infos(pod=QoSClass.BE), v2.clock)
    assert quota(v2) == "20000"
    lost = next(event for event in events if event.outcome == Outcome.CONFLICT)
    assert (lost.strategy, lost.after) == ("mild", "50000")
    assert "strict wants cpu.max 20000" in lost.reason
    enforcer.step(intents[:1], now=v2.later(1))
    assert quota(v2) == "50000"
    enforcer.close(v2.clock)
    assert quota(v2) == "max"


def test_a_protected_culprit_is_only_widened(v2: FakeHost) -> None:
    v2.make("/lsr")
    v2.make("/lsr/container")
    enforcer = v2.enforcer(evict=True)
    intents = [
        want(Knob.CPU_MAX, "20000", "/lsr"),
        want(Knob.CPU_MAX, "20000", "/lsr/container"),
        want(Knob.MEMORY_MIN, "4096000", "/lsr"),
        want(Knob.CPU_WEIGHT, "500", "/lsr"),
        want(Knob.FREEZE, "1", "/lsr"),
        Evict(strategy="calm", target="/lsr", reason="because"),
        Reclaim(strategy="calm", target="/lsr", reason="because", amount_bytes=4096),
    ]
    events = enforcer.step(intents, infos(lsr=QoSClass.LSR), v2.clock)
    by_outcome = {(event.knob, event.target): event.outcome for event in events}
    assert by_outcome == {
        ("cpu.max", "/lsr"): Outcome.PROTECTED,
        ("cpu.max", "/lsr/container"): Outcome.PROTECTED,
        ("memory.min", "/lsr"): Outcome.SET,
        ("cpu.weight", "/lsr"): Outcome.SET,
        ("cgroup.freeze", "/lsr"): Outcome.PROTECTED,
        ("evict", "/lsr"): Outcome.PROTECTED,
        ("reclaim", "/lsr"): Outcome.PROTECTED,
    }
    events = enforcer.step([want(Knob.CPU_WEIGHT, "50", "/lsr")], now=v2.later(1))
    assert ("cpu.weight", "protected", "50") in outcomes(events)
    assert v2.text("/lsr", "cpu.weight") == "100"


def test_who_becomes_protected_gets_everything_back(v2: FakeHost) -> None:
    enforcer = v2.enforcer()
    enforcer.step([QUOTA], infos(pod=QoSClass.BE), v2.clock)
    enforcer.step([QUOTA], infos(pod=QoSClass.LSE), v2.later(1))
    assert quota(v2) == "max"


def test_a_strategy_that_the_settings_do_not_name_does_nothing(v2: FakeHost) -> None:
    enforcer = v2.enforcer(strategies=("cpu_*",))
    intents = [want(Knob.CPU_MAX, "20000", strategy="memory_qos"), want(Knob.CPU_WEIGHT, "7", strategy="cpu_burst")]
    assert outcomes(enforcer.step(intents, now=v2.clock)) == [
        ("cpu.max", "refused", "20000"),
        ("cpu.weight", "set", "7"),
    ]


def test_budgets_hold_up_changes_but_never_putting_back(v2: FakeHost) -> None:
    for number in range(4):
        v2.make(f"/p{number}")
    enforcer = v2.enforcer(changes_per_minute=2)
    intents = [want(Knob.CPU_WEIGHT, "5", f"/p{number}") for number in range(4)]
    events = enforcer.step(intents, now=v2.clock)
    assert [event.outcome for event in events].count(Outcome.SET) == 2
    assert [event.outcome for event in events].count(Outcome.OVER_BUDGET) == 2
    assert len(enforcer.step([], now=v2.later(1))) == 2
    assert {v2.text(f"/p{number}", "cpu.weight") for number in range(4)} == {"100"}
    enforcer.step(intents, now=v2.later(61))
    assert len(enforcer.active_settings()) == 2


def test_what_the_kernel_refuses_changes_nothing_and_is_not_tried_at_once_again(
    v2: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    enforcer = v2.enforcer()
    blocked = v2.file("/pod", "cpu.max.burst")
    blocked.unlink()
    blocked.mkdir()
    events = enforcer.step([want(Knob.CPU_BURST, "5"), QUOTA], now=v2.clock)
    assert {(event.knob, event.outcome) for event in events} == {
        ("cpu.max.burst", Outcome.FAILED),
        ("cpu.max", Outcome.SET),
    }
    assert set(enforcer.active_settings()) == {("/pod", Knob.CPU_MAX)}


def test_refusals_are_audited_once_until_they_change(v2: FakeHost) -> None:
    enforcer = v2.enforcer()
    for _ in range(5):
        enforcer.step([want(Knob.CPU_MAX, "0")], now=v2.later(1))
    assert [line["outcome"] for line in audit(v2)] == ["refused"]
    enforcer.step([], now=v2.later(1))
    enforcer.step([want(Knob.CPU_MAX, "0")], now=v2.later(1))
    assert [line["outcome"] for line in audit(v2)] == ["refused", "refused"]
    assert enforcer.counts["calm", "cpu.max", "refused"] == 2


def test_the_audits_lines(v2: FakeHost) -> None:
    intent = Setting(
        strategy="response",
        verdict="/db|cpu_contention",
        target="/pod",
        knob=Knob.CPU_MAX,
        value="20000 100000",
        reason="/db waits 0.4 s/s for it",
        lease_seconds=30.0,
    )
    enforcer = v2.enforcer()
    enforcer.step([intent], now=v2.clock)
    assert audit(v2) == [
        {
            "schema": "koord.audit/v1",
            "time": "2027-01-15T08:00:00.000+00:00",
            "strategy": "response",
            "verdict": "/db|cpu_contention",
            "target": "/pod",
            "name": "",
            "file": str(v2.file("/pod", "cpu.max")),
            "from": "max 100000",
            "to": "20000 100000",
            "reason": "/db waits 0.4 s/s for it",
            "dry_run": False,
            "lease_seconds": 30.0,
            "outcome": "set",
        }
    ]


def everything(host: FakeHost) -> dict[str, str]:
    return {str(path): path.read_text() for path in (host.root / "cg").rglob("*") if path.is_file()}


def test_a_dry_run_differs_in_the_write_alone(host: FakeHost) -> None:
    host.make("/lsr")
    cgroups = infos(pod=QoSClass.BE, lsr=QoSClass.LSR)
    story: list[list[Any]] = [
        [QUOTA, want(Knob.CPU_WEIGHT, "9"), want(Knob.CPUSET_CPUS, "2-3")],
        [want(Knob.CPU_MAX, "9000"), want(Knob.CPU_MAX, "20000", "/lsr"), want(Knob.MEMORY_LOW, "4096")],
        [want(Knob.CPU_MAX, "0"), want(Knob.FREEZE, "1"), want(Knob.IO_MAX, "8:0 rbps=5", "/nowhere")],
        [],
    ]

    def told(dry_run: bool) -> list[list[tuple[Any, ...]]]:
        enforcer = host.enforcer(dry_run=dry_run, audit_file=str(host.root / f"audit-{dry_run}.jsonl"))
        steps: list[list[EnforcerEvent]] = [enforcer.step(intents, cgroups, host.later(1)) for intents in story]
        steps.append(enforcer.close(host.clock))
        return [
            [(event.knob, event.target, event.file, event.before, event.after, event.outcome) for event in events]
            for events in steps
        ]

    before = everything(host)
    state_before = sorted(os.listdir(host.root / "state")) if (host.root / "state").exists() else None
    dry = told(dry_run=True)
    assert everything(host) == before
    assert (sorted(os.listdir(host.root / "state")) if (host.root / "state").exists() else None) == state_before
    assert dry == told(dry_run=False)
    lines = [json.loads(line) for line in (host.root / "audit-True.jsonl").read_text().splitlines()]
    wet = [json.loads(line) for line in (host.root / "audit-False.jsonl").read_text().splitlines()]
    assert {line.pop("dry_run") for line in lines} == {True}
    assert {line.pop("dry_run") for line in wet} == {False}
    for line in (*lines, *wet):
        del line["time"]
    assert lines == wet


def test_a_dry_run_sees_foreign_writes_too(v2: FakeHost) -> None:
    enforcer = v2.enforcer(dry_run=True)
    enforcer.step([QUOTA], now=v2.clock)
    put_quota(v2, "30000")
    assert [event.outcome for event in enforcer.step([QUOTA], now=v2.later(1))] == [
        Outcome.FOREIGN_WRITE,
        Outcome.BACKING_OFF,
    ]


def audit_of(host: FakeHost) -> list[tuple[str, str, bool]]:
    lines = map(json.loads, (host.root / "audit.jsonl").read_text().splitlines())
    return [(line["outcome"], line["to"], line["dry_run"]) for line in lines]


@pytest.mark.parametrize("is_handed_over", [False, True], ids=["killed", "handed-over"])
def test_a_dry_run_restores_the_actions_that_it_finds_and_adopts_nothing(v2: FakeHost, is_handed_over: bool) -> None:
    state = want(Knob.CPU_WEIGHT, "7", strategy="hooks", protocol_state=True)
    first = v2.enforcer()
    first.step([QUOTA, state], now=v2.clock)
    if is_handed_over:
        first.close(v2.clock, handover_seconds=60.0)
        assert first.handed_over_until is not None
    else:
        first._journal.close()
    dry = open_enforcer(v2.settings(dry_run=True), v2.tree, now=v2.later(1))
    assert quota(v2) == "max"
    assert audit_of(v2)[-1] == ("restored", "max 100000", False)
    assert v2.text("/pod", "cpu.weight") == "7"
    assert dry.active_settings() == {}
    dry.step([], now=v2.later(700))
    dry.close(v2.later(1))
    assert v2.text("/pod", "cpu.weight") == "7"
    assert {kind for kind, _, is_dry in audit_of(v2) if is_dry} == set()
    restore(v2.settings(), v2.tree, everything=True)
    assert v2.text("/pod", "cpu.weight") == "100"


def test_a_dry_run_leaves_the_actions_of_an_agent_that_runs(
    v2: FakeHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("koordlet.enforcer.lifecycle.WAIT_SECONDS", 0.0)
    running = v2.enforcer()
    running.step([QUOTA], now=v2.clock)
    open_enforcer(v2.settings(dry_run=True), v2.tree, now=v2.later(1)).close(v2.later(1))
    assert quota(v2) == "20000"
    assert "held by an agent that runs" in caplog.text
    running.close(v2.later(1))
    assert quota(v2) == "max"


def test_a_dry_run_goes_on_where_a_tree_cannot_be_written(
    v2: FakeHost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = v2.enforcer()
    first.step([QUOTA], now=v2.clock)
    first._journal.close()

    def refuse(attribute: KernelFile, *_: object) -> None:
        raise HostError(attribute.path, "write", errno.EROFS)

    with monkeypatch.context() as patched:
        patched.setattr(KernelFile, "write", refuse)
        open_enforcer(v2.settings(dry_run=True), v2.tree, now=v2.later(1)).close(v2.later(1))
    assert "koordlet restore" in caplog.text
    restore(v2.settings(), v2.tree)
    assert quota(v2) == "max"


def test_a_list_that_the_kernel_does_not_empty_names_all_that_the_parent_has(
    v2: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    (v2.root / "cg/cpuset.cpus.effective").write_text("0-7\n")
    enforcer = v2.enforcer()
    enforcer.step([want(Knob.CPUSET_CPUS, "2")], now=v2.clock)
    real = KernelFile.write

    def write(attribute: KernelFile, value: str, holding: Any, identity: str) -> None:
        if not value:
            raise HostError(attribute.path, "write", errno.ENOSPC)
        real(attribute, value, holding, identity)

    monkeypatch.setattr(KernelFile, "write", write)
    events = enforcer.step([], now=v2.later(1))
    assert [event.outcome for event in events] == [Outcome.RESTORED]
    assert "all that the parent has" in events[0].reason
    assert v2.text("/pod", "cpuset.cpus") == "0-7"


def test_evictions_are_off_by_default(v2: FakeHost) -> None:
    events = v2.enforcer().step([Evict(strategy="calm", target="/pod", reason="because")], now=v2.clock)
    assert [(event.outcome, event.reason) for event in events] == [(Outcome.REFUSED, "[enforcer] evict is off")]


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
    """Files that behave as the kernel's: usage follows a lower limit down to `stuck`, below which there is EBUSY."""
    limit, usage = host.file("/pod", "memory.limit_in_bytes"), host.file("/pod", "memory.usage_in_bytes")
    real = Path.write_text

    def write(path: Path, text: str, *rest: Any, **more: Any) -> int:
        if path == limit:
            seen.append(text)
            if 0 <= int(text) < stuck:
                raise OSError(errno.EBUSY, "busy")
            if 0 <= int(text) < int(usage.read_text()):
                real(usage, f"{text}\n")
                real(host.file("/pod", "memory.stat"), f"total_rss 0\ntotal_inactive_file {text}\n")
        return real(path, text, *rest, **more)

    monkeypatch.setattr(Path, "write_text", write)


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
