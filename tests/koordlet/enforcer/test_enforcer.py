"""The enforcer on hosts made of files: settings and leases, conflicts, protection, budgets, the audit."""

import errno
from typing import Any

import pytest

from api.frame import CgroupInfo
from api.intents import Evict, Knob, Reclaim, Setting
from api.qos import QoSClass
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.lifecycle import restore
from koordlet.host.attributes import KernelFile
from koordlet.host.files import HostError
from tests.koordlet.enforcer.hosts import (
    NO_QUOTA,
    QUOTA,
    FakeHost,
    audit,
    infos,
    outcomes,
    put_quota,
    quota,
    want,
)


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
            "qos": "",
            "priority": "",
            "file": str(v2.file("/pod", "cpu.max")),
            "from": "max 100000",
            "to": "20000 100000",
            "reason": "/db waits 0.4 s/s for it",
            "dry_run": False,
            "lease_seconds": 30.0,
            "outcome": "set",
        }
    ]


@pytest.mark.parametrize(
    ("target", "stated"),
    [
        pytest.param("/pods", ("pods", "BE,LS", ""), id="a-directory-by-all-that-lives-in-it"),
        pytest.param("/pods/web", ("shop/web", "LS", "koord-prod"), id="a-pod-with-its-priority-class"),
        pytest.param("/pods/web/main", ("main", "LS", ""), id="a-container-without-a-class-by-its-pod"),
        pytest.param("/pods/batch", ("shop/batch", "BE", "100"), id="a-priority-outside-the-classes-by-number"),
        pytest.param("/gone", ("", "", ""), id="a-cgroup-that-is-no-more"),
    ],
)
def test_the_audit_states_the_class_and_priority_of_the_target(
    v2: FakeHost, target: str, stated: tuple[str, str, str]
) -> None:
    cgroups = [
        CgroupInfo(1, "/pods", "pods"),
        CgroupInfo(2, "/pods/web", "shop/web", "LS", priority=9500, priority_band="koord-prod"),
        CgroupInfo(3, "/pods/web/main", "main"),
        CgroupInfo(4, "/pods/batch", "shop/batch", "BE", priority=100),
    ]
    for info in cgroups:
        v2.make(info.path)
    v2.enforcer().step([want(Knob.CPU_MAX, "20000 100000", target)], cgroups=cgroups, now=v2.clock)
    (line,) = audit(v2)
    assert (line["name"], line["qos"], line["priority"]) == stated


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
