from typing import Any

import pytest

from api.intents import Reclaim
from api.qos import QoSClass
from koordlet.strategies.cold_memory import ColdMemory, ColdMemorySettings, step_bytes
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import GIB, pod, view

ON = ColdMemorySettings(enable=True)


def calm(name: str = "be", qos: str = "BE", **more: Any) -> Group:
    return pod(
        name, QoSClass(qos), **{"memory_bytes": 3 * GIB, "cache_bytes": GIB, "memory_pressure_ratio": 0.0, **more}
    )


@pytest.mark.parametrize(
    ("group", "step"),
    [
        pytest.param(calm(), 4 * GIB // 100, id="a-percent-of-all"),
        pytest.param(calm(memory_pressure_ratio=0.05), 2 * GIB // 100, id="half-as-much-under-half-the-pressure"),
        pytest.param(calm(memory_pressure_ratio=0.1), 0, id="nothing-under-pressure"),
        pytest.param(calm(cold_bytes=5), 5, id="no-more-than-is-cold"),
        pytest.param(calm(memory_pressure_ratio=None), 0, id="pressure-unknown"),
        pytest.param(calm(memory_bytes=None), 0, id="usage-unknown"),
    ],
)
def test_step(group: Group, step: int) -> None:
    assert step_bytes(group, ON) == step


def test_in_intervals_and_never_from_the_protected() -> None:
    strategy = ColdMemory(ON)
    seen = view(calm(), calm("ls", "LS"), calm("lsr", "LSR"))
    reclaims = [(second, strategy.decide(seen, float(second))) for second in range(0, 65, 5)]
    assert [second for second, intents in reclaims if intents] == [30, 60]
    for intent in reclaims[6][1]:
        assert isinstance(intent, Reclaim)
        assert intent.target.endswith("/podbe")
        assert intent.amount_bytes == 4 * GIB // 100 // 4096 * 4096
