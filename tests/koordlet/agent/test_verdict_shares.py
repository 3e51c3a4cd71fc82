"""Shares of owners in the list of verdicts."""

from dataclasses import replace

import msgspec

from api.frame import CgroupInfo
from api.verdicts import Verdict, VerdictState
from koordlet.agent.verdict_shares import VerdictShares
from tests.frames import cgroup_info
from tests.verdicts import make_verdict

USER = "/user.slice/user-1000.slice"


def cgroups(count: int = 10) -> tuple[CgroupInfo, ...]:
    names = ["/shop/web", "/user.slice", USER, *(f"{USER}/unit-{number}" for number in range(count))]
    found = [cgroup_info(number, path) for number, path in enumerate(names, 1)]
    return tuple(replace(info, owner_uid=1000 if USER in info.path else 0) for info in found)


def verdict(victim: str, state: VerdictState = VerdictState.OPEN) -> Verdict:
    return msgspec.structs.replace(make_verdict(victim, time=0.0, resource="cpu", lost=0.5, rule="cpu"), state=state)


def victims(verdicts: list[Verdict]) -> list[str]:
    return [f"{one.state.value} {one.victim.rpartition('/')[2]}" for one in verdicts]


def test_a_user_has_so_many_verdicts_and_others_have_all_of_theirs() -> None:
    shares = VerdictShares(most=2)
    opened = [verdict(f"{USER}/unit-{number}") for number in range(4)] + [verdict("/shop/web")]
    assert victims(shares.admit(cgroups(), opened)) == ["open unit-0", "open unit-1", "open web"]
    assert shares.withheld == 2
    assert [one.victim for one in shares.without_withheld(tuple(opened))] == [
        f"{USER}/unit-0",
        f"{USER}/unit-1",
        "/shop/web",
    ]


def test_one_that_was_withheld_opens_when_another_closes_and_is_never_told_to_close_unopened() -> None:
    shares, present = VerdictShares(most=1), cgroups()
    first, second, third = (f"{USER}/unit-{number}" for number in range(3))
    shares.admit(present, [verdict(first), verdict(second), verdict(third)])
    told = shares.admit(present, [verdict(second, VerdictState.UPDATE), verdict(first, VerdictState.CLOSE)])
    assert victims(told) == ["open unit-1", "close unit-0"], "in the order of the judge, as a replay tells them"
    told = shares.admit(present, [verdict(third, VerdictState.CLOSE), verdict(second, VerdictState.UPDATE)])
    assert victims(told) == ["update unit-1"]
    assert victims(shares.admit(present, [verdict(second, VerdictState.CLOSE)])) == ["close unit-1"]
    assert not shares._told
    assert not shares._withheld


def test_the_users_first_directory_counts_for_his_share() -> None:
    shares = VerdictShares(most=1)
    assert victims(shares.admit(cgroups(), [verdict(USER), verdict(f"{USER}/unit-1")])) == ["open user-1000.slice"]


def test_a_victim_that_is_gone_when_it_closes_frees_its_place() -> None:
    shares = VerdictShares(most=1)
    shares.admit(cgroups(), [verdict(f"{USER}/unit-9")])
    told = shares.admit(cgroups(3), [verdict(f"{USER}/unit-9", VerdictState.CLOSE), verdict(f"{USER}/unit-1")])
    assert victims(told) == ["close unit-9", "open unit-1"]
