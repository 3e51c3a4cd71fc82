"""Quotas below a quota on cgroup v1: both are granted or neither is."""

from dataclasses import replace
from pathlib import Path

import pytest

from api.frame import CgroupInfo
from api.intents import Knob, Setting, Strength
from api.qos import QoSClass
from koordlet.enforcer.audit import Outcome
from koordlet.enforcer.enforcer import Enforcer
from koordlet.enforcer.limits.rights import Rights
from tests.frames import cgroup_info
from tests.koordlet.enforcer.hosts import FakeHost, want

BATCH, JOB, OTHER = "/batch", "/batch/job", "/batch/other"
NARROW = "100000 100000"


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path, version=1)
    for path in (BATCH, JOB, OTHER):
        made.make(path)
    made.file(JOB, "cpu.cfs_quota_us").write_text("400000\n")
    return made


def cgroups(**owners: int) -> tuple[CgroupInfo, ...]:
    found = [cgroup_info(number, path, qos=QoSClass.BE) for number, path in enumerate((BATCH, JOB, OTHER), 1)]
    return tuple(replace(info, owner_uid=owners.get(info.path.rpartition("/")[2], 0)) for info in found)


def asked(strategy: str = "calm") -> list[Setting]:
    return [want(Knob.CPU_MAX, NARROW, BATCH, strategy=strategy)]


def quota(host: FakeHost, path: str) -> str:
    return host.text(path, "cpu.cfs_quota_us")


def by_target(enforcer: Enforcer, settings: list[Setting], infos: tuple[CgroupInfo, ...]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for event in enforcer.step(settings, infos):
        found.setdefault(event.target, []).append(event.outcome)
    return found


def test_a_larger_quota_below_is_brought_within_and_both_end_together(host: FakeHost) -> None:
    enforcer = host.enforcer()
    by_target(enforcer, asked(), cgroups())
    assert [quota(host, path) for path in (BATCH, JOB, OTHER)] == ["100000", "100000", "-1"]
    by_target(enforcer, [], cgroups())
    assert [quota(host, path) for path in (BATCH, JOB, OTHER)] == ["-1", "400000", "-1"]
    enforcer.close()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"strategies": ("other",)}, id="strategy"),
        pytest.param({"protected": (BATCH,)}, id="protected"),
        pytest.param({"changes_per_minute": 1}, id="budget"),
    ],
)
def test_a_quota_that_is_refused_bounds_nothing_below_it(host: FakeHost, settings: dict[str, object]) -> None:
    enforcer = host.enforcer(**settings)
    if "changes_per_minute" in settings:
        enforcer.step([want(Knob.CPU_WEIGHT, "50", OTHER)], cgroups())
    by_target(enforcer, asked(), cgroups())
    assert [quota(host, path) for path in (BATCH, JOB)] == ["-1", "400000"]
    enforcer.close()


def test_a_quota_is_refused_where_the_one_below_may_not_be_had(host: FakeHost) -> None:
    """Below another user's directory nothing is written."""
    enforcer = host.enforcer()
    enforcer.rights = Rights()
    host.make(f"{JOB}/own")
    host.file(f"{JOB}/own", "cpu.cfs_quota_us").write_text("300000\n")
    infos = (*cgroups(job=1000), replace(cgroup_info(9, f"{JOB}/own", qos=QoSClass.BE), owner_uid=1000))
    outcomes = by_target(enforcer, asked(), infos)
    assert Outcome.REFUSED in outcomes[BATCH], "the kernel would answer EINVAL"
    assert [quota(host, path) for path in (BATCH, JOB, f"{JOB}/own")] == ["-1", "400000", "300000"]
    host.file(f"{JOB}/own", "cpu.cfs_quota_us").write_text("-1\n")
    enforcer.close()


def test_an_urgent_answer_amid_a_step_grants_nothing_that_the_step_refuses(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.rights = Rights()
    host.make(f"{JOB}/own")
    host.file(f"{JOB}/own", "cpu.cfs_quota_us").write_text("300000\n")
    infos = (*cgroups(job=1000), replace(cgroup_info(9, f"{JOB}/own", qos=QoSClass.BE), owner_uid=1000))
    enforcer.step([], infos)
    urgent = want(Knob.CPU_WEIGHT, "50", OTHER, strategy="response", strength=Strength.INVISIBLE)
    trips = [urgent]
    enforcer.call_between(lambda: trips and enforcer.apply_now([trips.pop()], [urgent]))
    outcomes = by_target(enforcer, asked(), infos)
    assert host.text(OTHER, "cpu.shares") != "1024", "it was answered"
    assert Outcome.REFUSED in outcomes[BATCH]
    assert [quota(host, path) for path in (BATCH, JOB, f"{JOB}/own")] == ["-1", "400000", "300000"]
    enforcer.close()


def test_quotas_that_are_refused_cost_nothing_and_are_told_once(host: FakeHost) -> None:
    enforcer = host.enforcer(changes_per_minute=3)
    enforcer.rights = Rights()
    host.make(f"{JOB}/own")
    host.file(f"{JOB}/own", "cpu.cfs_quota_us").write_text("300000\n")
    infos = (*cgroups(job=1000), replace(cgroup_info(9, f"{JOB}/own", qos=QoSClass.BE), owner_uid=1000))
    seen = []
    for _ in range(13):
        events = enforcer.step([*asked(), want(Knob.CPU_MAX, "max 100000", OTHER)], infos, host.later(1.0))
        assert [event.outcome for event in events if event.target == OTHER] == [Outcome.UNCHANGED]
        seen += [event.outcome for event in events if event.target == BATCH]
    backing_off = [Outcome.BACKING_OFF] * 9
    assert seen == [Outcome.REFUSED, *backing_off, Outcome.REFUSED, *backing_off[:2]]
    others = [want(Knob.CPU_MAX, text, OTHER) for text in ("90000 100000", "80000 100000", "70000 100000")]
    for one in others:
        assert Outcome.SET in [event.outcome for event in enforcer.step([*asked(), one], infos, host.later(1.0))]
    enforcer.close()


def test_quotas_in_effect_end_when_one_below_may_be_had_no_more(host: FakeHost) -> None:
    enforcer = host.enforcer()
    enforcer.rights = Rights()
    by_target(enforcer, asked(), cgroups())
    assert quota(host, JOB) == "100000"
    host.make(f"{OTHER}/late")
    host.file(f"{OTHER}/late", "cpu.cfs_quota_us").write_text("300000\n")
    infos = (*cgroups(other=1000), replace(cgroup_info(9, f"{OTHER}/late", qos=QoSClass.BE), owner_uid=1000))
    by_target(enforcer, asked(), infos)
    assert [quota(host, path) for path in (BATCH, JOB, f"{OTHER}/late")] == ["-1", "400000", "300000"]
    enforcer.close()


def test_one_that_is_gone_stands_in_nobodys_way(host: FakeHost) -> None:
    enforcer = host.enforcer()
    infos = (*cgroups(), cgroup_info(9, "/batch/gone", qos=QoSClass.BE))
    by_target(enforcer, asked(), infos)
    assert [quota(host, path) for path in (BATCH, JOB)] == ["100000", "100000"]
    enforcer.close()
