from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.strategies.cpupick import pick_cores, pick_cpus
from koordlet.strategies.view import CpuThread
from tests.koordlet.strategies.views import machine


def of(*cores: tuple[int, int, int, int]) -> list[CpuThread]:
    """Cores as (first thread, second thread, socket, core)."""
    return [
        CpuThread(thread, core, socket, socket) for first, second, socket, core in cores for thread in (first, second)
    ]


CROSSED = of((0, 4, 0, 0), (1, 5, 0, 1), (2, 6, 1, 2), (3, 7, 1, 3))
ADJACENT = of((0, 1, 0, 0), (2, 3, 0, 1), (4, 5, 1, 2), (6, 7, 1, 3))


@pytest.mark.parametrize(
    ("cpus", "count", "chosen"),
    [
        pytest.param(CROSSED, 3, [0, 4, 2], id="a-pair-then-a-single-of-the-next-socket"),
        pytest.param(ADJACENT, 3, [0, 1, 4], id="siblings-with-adjacent-numbers"),
        pytest.param(ADJACENT, 4, [0, 1, 4, 5], id="a-pair-of-each-socket"),
        pytest.param(ADJACENT, 1, [0], id="one"),
        pytest.param(ADJACENT, 9, [], id="more-than-there-are"),
        pytest.param(ADJACENT[1:4] + ADJACENT[5:], 2, [2, 3], id="whole-cores-first"),
        pytest.param([ADJACENT[0], ADJACENT[2], ADJACENT[4]], 2, [0, 4], id="no-pair-left"),
    ],
)
def test_pick_cpus(cpus: list[CpuThread], count: int, chosen: list[int]) -> None:
    assert pick_cpus(cpus, count) == chosen


@pytest.mark.parametrize(
    ("count", "chosen"),
    [
        pytest.param(4, [0, 1, 4, 5], id="just-as-many"),
        pytest.param(5, [0, 1, 4, 5], id="no-half-core"),
        pytest.param(1, [0, 1], id="at-least-one-core"),
    ],
)
def test_pick_cores(count: int, chosen: list[int]) -> None:
    assert pick_cores(ADJACENT, ADJACENT, count) == chosen
    assert pick_cores(ADJACENT, ADJACENT[::2], count) == [], "every core is somebody's in part"


@st.composite
def choices(draw: st.DrawFn) -> tuple[list[CpuThread], list[CpuThread], int]:
    cpus = machine(draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(st.integers(1, 2)))
    free = [cpu for cpu in cpus if draw(st.booleans())]
    return list(cpus), free, draw(st.integers(0, len(cpus) + 2))


@given(choices())
def test_as_many_as_asked_and_only_candidates(given: tuple[list[CpuThread], list[CpuThread], int]) -> None:
    _, free, count = given
    chosen = pick_cpus(free, count)
    assert len(chosen) == (count if count <= len(free) else 0)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= {cpu.id for cpu in free}


@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 4), st.data())
def test_of_whole_cores_at_most_one_is_broken_and_places_share_evenly(
    sockets: int, nodes: int, cores: int, data: st.DataObject
) -> None:
    cpus = machine(sockets, nodes, cores)
    chosen = pick_cpus(cpus, data.draw(st.integers(1, len(cpus))))
    by_core = Counter(cpu.core for cpu in cpus if cpu.id in chosen)
    assert sum(1 for held in by_core.values() if held == 1) == len(chosen) % 2
    by_node = [sum(1 for cpu in cpus if cpu.node == place and cpu.id in chosen) for place in range(sockets * nodes)]
    assert max(by_node) - min(by_node) <= 2


@given(choices())
def test_whole_cores_leave_no_sibling_to_others(given: tuple[list[CpuThread], list[CpuThread], int]) -> None:
    cpus, free, count = given
    chosen = pick_cores(cpus, free, count)
    for core in {cpu.core for cpu in cpus if cpu.id in chosen}:
        assert {cpu.id for cpu in cpus if cpu.core == core} <= set(chosen)
    threads = max(Counter(cpu.core for cpu in cpus).values())
    assert len(chosen) <= max(count, threads)
    assert set(chosen) <= {cpu.id for cpu in free}
