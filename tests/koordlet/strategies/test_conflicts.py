"""Conflicts between two strategies, resolved as docs/strategies.md promises by the enforcer's own rule."""

import pytest

from api.intents import Knob, Setting, Strength
from api.qos import QoSClass
from koordlet.enforcer.conflicts import resolve
from tests.koordlet.strategies.views import BEST_EFFORT

BE_POD, LS_POD = f"{BEST_EFFORT}/podbe", "/kubepods.slice/podls"
CLASSES = {BEST_EFFORT: QoSClass.BE, BE_POD: QoSClass.BE, LS_POD: QoSClass.LS}


def want(strategy: str, target: str, knob: Knob, value: str, strength: Strength = Strength.HARD) -> Setting:
    return Setting(strategy=strategy, target=target, knob=knob, value=value, reason="test", strength=strength)


@pytest.mark.parametrize(
    ("target", "knob", "values", "winner"),
    [
        pytest.param(
            BEST_EFFORT,
            Knob.CPU_MAX,
            {"cpu_suppress": "300000 100000", "colocation_budget": "200000 100000"},
            "colocation_budget",
            id="the-lower-quota-of-the-directory",
        ),
        pytest.param(
            BE_POD,
            Knob.CPUSET_CPUS,
            {"cpu_suppress": "0-3", "colocation_budget": "0-7", "resource_pools": "4-9"},
            "cpu_suppress",
            id="the-fewest-cpus",
        ),
        pytest.param(
            BE_POD,
            Knob.CPU_MAX,
            {"cpu_suppress": "max 100000", "watermarks": "50000 100000", "resource_pools": "60000 100000"},
            "watermarks",
            id="the-lower-quota-of-a-best-effort-pod",
        ),
        pytest.param(
            LS_POD,
            Knob.CPU_MAX,
            {"cpu_burst": "240000 100000", "watermarks": "180000 100000"},
            "cpu_burst",
            id="the-higher-quota-of-a-latency-sensitive-pod",
        ),
        pytest.param(
            "kernel/sched_group_identity_enabled",
            Knob.SYSCTL,
            {"group_identity": "1", "system_tunables": "0"},
            "group_identity",
            id="a-value-without-order-by-name",
        ),
    ],
)
def test_the_winner_of_a_conflict(target: str, knob: Knob, values: dict[str, str], winner: str) -> None:
    settings = [want(strategy, target, knob, value) for strategy, value in values.items()]
    winners, losses = resolve(settings, lambda path: CLASSES.get(path, QoSClass.NONE))
    assert winners[target, knob].strategy == winner
    assert {loss.loser.strategy for loss in losses} == set(values) - {winner}
