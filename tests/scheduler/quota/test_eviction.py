"""Preemption stays inside the quota; revoking restores the runtime."""

from dataclasses import replace

import pytest

from scheduler.quota.eviction import OveruseClock, QuotaPod, may_preempt, to_revoke


def pod(key: str, priority: int, cpu: int, *, start: float = 0, **options: bool) -> QuotaPod:
    return QuotaPod(key, "team", priority, start, {"cpu": cpu}, **options)


def test_who_may_be_preempted() -> None:
    me = pod("me", 10, 1)
    assert may_preempt(me, pod("low", 9, 1))
    assert not may_preempt(me, pod("equal", 10, 1))
    assert not may_preempt(me, pod("firm", 9, 1, preemptible=False))
    assert not may_preempt(me, replace(pod("elsewhere", 9, 1), quota="other"))
    default = "koordinator-default-quota"
    assert not may_preempt(replace(me, quota=default), replace(pod("d", 1, 1), quota=default))
    assert may_preempt(replace(me, quota=default), replace(pod("d", 1, 1), quota=default), spare_default=False)


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        pytest.param(10, [], id="within"),
        pytest.param(9, ["low"], id="the least important"),
        pytest.param(5, ["mid"], id="a small one returns when a bigger one has to leave anyway"),
        pytest.param(1, ["low", "mid"], id="as far as possible; the firm one stays"),
    ],
)
def test_to_revoke(runtime: int, expected: list[str]) -> None:
    pods = [pod("firm", 0, 3, preemptible=False), pod("low", 1, 2), pod("mid", 2, 5)]
    leaving = to_revoke({"cpu": 10}, {"cpu": runtime}, pods)
    assert [each.key for each in leaving] == expected


def test_the_overuse_clock_restarts() -> None:
    clock, over, fine = OveruseClock(delay_seconds=120), {"cpu": 2}, {"cpu": 1}
    limit = {"cpu": 1}
    assert [clock.due(over, limit, now) for now in (0, 60, 120, 121, 122, 241, 242)] == [
        False, False, False, True, False, False, True,
    ]  # fmt: skip
    assert not clock.due(fine, limit, 300)
    assert not clock.due(over, limit, 400)
    assert clock.due(over, limit, 521)
