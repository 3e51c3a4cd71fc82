"""Turns of cgroups when there are more of them than monitor ids."""

from collections import Counter

import pytest

from probes.resctrl_turns import Turns, next_turns


@pytest.mark.parametrize(
    ("wanted", "serving", "rested", "room", "expected"),
    [
        pytest.param([1, 2], {}, [], 5, Turns((), (1, 2)), id="room-for-all"),
        pytest.param([1, 2, 3], {}, [], 2, Turns((), (1, 2)), id="room-for-two"),
        pytest.param([1, 2], {1: 0.0, 2: 0.0}, [], 5, Turns((), ()), id="long-turns-without-waiters-go-on"),
        pytest.param([1, 2, 3], {1: 0.0, 2: 95.0}, [], 2, Turns((1,), (3,)), id="the-longest-served-makes-room"),
        pytest.param([1, 2, 3], {1: 95.0, 2: 96.0}, [], 2, Turns((), ()), id="no-turn-ends-early"),
        pytest.param([2, 3], {1: 99.0, 2: 95.0}, [], 2, Turns((1,), (3,)), id="the-gone-are-stopped-at-once"),
        pytest.param([1, 2, 3], {1: 0.0}, [2], 1, Turns((1,), (3,)), id="the-never-served-come-first"),
        pytest.param([1, 2, 3], {1: 0.0}, [3, 2], 1, Turns((1,), (3,)), id="then-who-waits-longest"),
        pytest.param([1, 2], {1: 95.0, 2: 96.0}, [], 1, Turns((1,), ()), id="less-room-stops-the-longest-served"),
        pytest.param([1], {}, [], 0, Turns((), ()), id="no-room"),
    ],
)
def test_turns(wanted: list[int], serving: dict[int, float], rested: list[int], room: int, expected: Turns) -> None:
    assert next_turns(100.0, wanted, serving=serving, rested=rested, room=room, turn_seconds=10.0) == expected


def test_over_time_everybody_gets_the_same() -> None:
    serving: dict[int, float] = {}
    rested: list[int] = []
    served: Counter[int] = Counter()
    for second in range(700):
        turns = next_turns(float(second), range(7), serving=serving, rested=rested, room=3, turn_seconds=10.0)
        for cgroup in turns.stop:
            del serving[cgroup]
            rested.append(cgroup)
        for cgroup in turns.start:
            serving[cgroup] = float(second)
            rested = [other for other in rested if other != cgroup]
        assert len(serving) == 3
        served.update(serving.keys())
    assert max(served.values()) - min(served.values()) <= 10
