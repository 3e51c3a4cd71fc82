from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cpuset import parse_cpuset
from api.intents import Knob
from api.qos import QoSClass
from koordlet.strategies.calendar_windows import DayWindow, OpenWindow
from koordlet.strategies.cpuquota import parse_quota
from koordlet.strategies.plugins.colocation_budget import TAINT, ColocationBudget, ColocationBudgetSettings, budget
from koordlet.strategies.view import NodeView
from tests.koordlet.strategies.views import (
    BEST_EFFORT,
    GIB,
    container,
    directory,
    evicted,
    machine,
    node,
    pod,
    settings,
    view,
)

DEFAULTS = {
    "gates": {},
    "settings": {
        "enable": False,
        "cpuSafePercent": 65,
        "memorySafePercent": 80,
        "pairSiblings": True,
        "windows": [],
        "timeZone": "UTC",
        "gracePeriodSeconds": 1800,
        "effect": "PreferNoSchedule",
    },
}

ON = ColocationBudgetSettings(enable=True)
NIGHT = ColocationBudgetSettings(enable=True, windows=(DayWindow(start="22:00", end="07:00"),))


@pytest.mark.parametrize(
    ("online", "percent", "left"),
    [
        pytest.param(20_000, 100, 45_000, id="what-the-level-leaves"),
        pytest.param(20_000, 50, 22_500, id="part-by-the-clock"),
        pytest.param(20_000, 0, 0, id="closed"),
        pytest.param(70_000, 100, -5_000, id="above-the-level"),
    ],
)
def test_budget(online: float, percent: int, left: int) -> None:
    assert budget(100_000, 65, online, OpenWindow(percent, 0)) == left


JOBS = [pod("a", "BE", priority=5000, memory_bytes=6 * GIB), pod("b", "BE", priority=5500, memory_bytes=9 * GIB)]


def seen(be_cores: float = 1, cores: float = 3, be_gib: int = 15, used_gib: int = 50, **more: Any) -> NodeView:
    held = directory(
        BEST_EFFORT,
        cpu_millicores=be_cores * 1000,
        memory_bytes=be_gib * GIB,
        cache_bytes=2 * GIB,
        knobs=more.pop("knobs", {}),
    )
    return view(held, *JOBS, container(JOBS[0]), cores=cores, memory_bytes=used_gib * GIB, **more)


def test_the_frame() -> None:
    wanted = settings(ColocationBudget(ON).decide(seen(), 0.0))
    # CPU: 65 % of 8 cores less 2 of online work are 3.2: a quota of 320 ms, and two whole cores.
    # Memory: 80 % of 100 GiB less 35 of online work.
    assert wanted == {
        (BEST_EFFORT, Knob.CPU_WEIGHT): "1",
        (BEST_EFFORT, Knob.CPU_MAX): "320000 100000",
        (BEST_EFFORT, Knob.MEMORY_MAX): str(45 * GIB),
        **{
            (path, Knob.CPUSET_CPUS): "0-3"
            for path in (BEST_EFFORT, JOBS[0].path, JOBS[1].path, f"{JOBS[0].path}/main")
        },
    }


def test_the_memory_cap_does_not_fall_below_what_is_used_and_pods_go_instead() -> None:
    strategy = ColocationBudget(ON)
    tight = seen(used_gib=92)
    cap = settings(strategy.decide(tight, 0.0))[BEST_EFFORT, Knob.MEMORY_MAX]
    assert cap == str(18 * GIB), "with a hundredth of the node for what came since it was read"
    assert [evicted(strategy.decide(tight, now)) for now in (29.0, 30.0, 31.0)] == [
        [],
        [JOBS[0].path, JOBS[1].path],
        [],
    ], "12 GiB of 15 must go, after the start has cooled"


def test_no_more_pods_go_than_must() -> None:
    strategy = ColocationBudget(ON)
    strategy.decide(seen(), 0.0)
    assert evicted(strategy.decide(seen(used_gib=86), 30.0)) == [JOBS[0].path], "6 of 15 GiB are too many"


@pytest.mark.parametrize(
    ("hour", "tainted", "quota"),
    [
        pytest.param(3, False, "320000 100000", id="open"),
        pytest.param(6.5, True, "320000 100000", id="closing-in-just-the-grace"),
        pytest.param(6.49, False, "320000 100000", id="not-yet"),
        pytest.param(6.75, True, "320000 100000", id="closing"),
        pytest.param(12, True, "2000 100000", id="closed"),
    ],
)
def test_windows(hour: float, tainted: bool, quota: str) -> None:
    strategy = ColocationBudget(NIGHT)
    wanted = settings(strategy.decide(seen(time_seconds=hour * 3600), 0.0))
    assert ((TAINT, Knob.NODE_TAINT) in wanted) is tainted
    assert wanted[BEST_EFFORT, Knob.CPU_MAX] == quota


def test_what_is_not_measured_is_told_and_left_alone() -> None:
    strategy = ColocationBudget(ON)
    wanted = settings(strategy.decide(view(*JOBS), 0.0))
    assert {knob for _, knob in wanted} == {Knob.CPU_WEIGHT}
    assert set(strategy.problems) == {"cpuSafePercent", "memorySafePercent"}
    assert strategy.silent


def test_without_a_whole_core_no_cpus_are_named() -> None:
    strategy = ColocationBudget(ON)
    pinned = pod("pinned", QoSClass.LS, bound_cpus=frozenset({0, 2, 4, 6}))
    held = directory(BEST_EFFORT, cpu_millicores=0.0)
    wanted = settings(strategy.decide(view(held, pinned, cores=1), 0.0))
    assert not any(knob is Knob.CPUSET_CPUS for _, knob in wanted)
    assert "whole core" in strategy.problems[BEST_EFFORT]


@given(
    st.integers(1, 2),
    st.integers(1, 6),
    st.data(),
    st.floats(0, 30),
    st.integers(1, 100),
)
def test_no_core_is_shared_with_online_work(
    sockets: int, cores: int, data: st.DataObject, used: float, percent: int
) -> None:
    cpus = machine(sockets, 1, cores)
    bound = data.draw(st.sets(st.sampled_from([cpu.id for cpu in cpus]), max_size=len(cpus) - 1))
    lsr = pod("lsr", QoSClass.LSR, bound_cpus=frozenset(bound))
    held = directory(BEST_EFFORT, cpu_millicores=used * 500)
    strategy = ColocationBudget(
        ColocationBudgetSettings(enable=True, cpu_safe_percent=percent, memory_safe_percent=None)
    )
    wanted = settings(strategy.decide(view(held, lsr, on=node(cpus), cores=used), 0.0))
    quota = parse_quota(wanted[BEST_EFFORT, Knob.CPU_MAX])
    assert quota is not None
    assert 2_000 <= quota <= len(cpus) * 100_000
    chosen = parse_cpuset(wanted.get((BEST_EFFORT, Knob.CPUSET_CPUS), ""))
    for cpu in cpus:
        siblings = {other.id for other in cpus if other.core == cpu.core}
        assert siblings <= chosen or not siblings & chosen
    assert not chosen & bound
    again = replace(held, knobs={knob: value for (path, knob), value in wanted.items() if path == BEST_EFFORT})
    repeated = settings(strategy.decide(view(again, lsr, on=node(cpus), cores=used), 1.0))
    assert repeated == wanted
