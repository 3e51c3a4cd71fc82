from typing import Any

import pytest

from api.intents import Reclaim
from api.qos import QoSClass
from koordlet.strategies.plugins.cold_memory import ColdMemory, ColdMemorySettings, step_bytes
from koordlet.strategies.view import Group
from tests.koordlet.strategies.views import GIB, pod, view

DEFAULTS = {
    "gates": {},
    "settings": {"enable": False, "qosClasses": ["BE"], "intervalSeconds": 30, "stepPercent": 1, "pressurePercent": 10},
}

ON = ColdMemorySettings(enable=True)


def calm(name: str = "be", qos: str = "BE", **more: Any) -> Group:
    return pod(
        name, QoSClass(qos), **{"memory_bytes": 3 * GIB, "cache_bytes": GIB, "memory_pressure_ratio": 0.0, **more}
    )


@pytest.mark.parametrize(
    ("group", "pressure", "step"),
    [
        pytest.param(calm(), 0.0, 4 * GIB // 100, id="a-percent-of-all"),
        pytest.param(calm(), 0.05, 2 * GIB // 100, id="half-as-much-under-half-the-pressure"),
        pytest.param(calm(), 0.1, 0, id="nothing-under-pressure"),
        pytest.param(calm(), None, 0, id="pressure-unknown"),
        pytest.param(calm(memory_bytes=None), 0.0, 0, id="usage-unknown"),
    ],
)
def test_step(group: Group, pressure: float | None, step: int) -> None:
    assert step_bytes(group, pressure, ON) == step


def test_one_calm_tick_is_averaged() -> None:
    strategy = ColdMemory(ON)
    for second in range(30):
        assert strategy.decide(view(calm(memory_pressure_ratio=0.2)), float(second)) == []
    assert strategy.decide(view(calm(memory_pressure_ratio=0.0)), 30.0) == []
    assert strategy.decide(view(calm(memory_pressure_ratio=None)), 60.0) == [], "nothing known of the last interval"


def test_in_intervals_and_never_from_the_protected() -> None:
    strategy = ColdMemory(ON)
    seen = view(calm(), calm("ls", "LS"), calm("lsr", "LSR"))
    reclaims = [(second, strategy.decide(seen, float(second))) for second in range(0, 65, 5)]
    assert [second for second, intents in reclaims if intents] == [30, 60]
    for intent in reclaims[6][1]:
        assert isinstance(intent, Reclaim)
        assert intent.target.endswith("/podbe")
        assert intent.amount_bytes == 4 * GIB // 100 // 4096 * 4096
