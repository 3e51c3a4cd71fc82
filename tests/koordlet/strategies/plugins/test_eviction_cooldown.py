import pytest

from koordlet.strategies.plugins.eviction_cooldown import TAINT, EvictionCooldown, EvictionCooldownSettings
from tests.koordlet.strategies.views import settings, view

DEFAULTS = {"gates": {}, "settings": {"enable": False, "seconds": 300, "effect": "PreferNoSchedule"}}


@pytest.mark.parametrize(
    ("evictions", "now", "taint"),
    [
        pytest.param({}, 1000.0, None, id="none-ever"),
        pytest.param({"/a": 900.0}, 1000.0, "evicted:NoSchedule", id="recent"),
        pytest.param({"/a": 100.0, "/b": 900.0}, 1000.0, "evicted:NoSchedule", id="the-last-counts"),
        pytest.param({"/a": 900.0}, 1199.9, "evicted:NoSchedule", id="nearly-over"),
        pytest.param({"/a": 900.0}, 1200.0, None, id="over"),
    ],
)
def test_cooldown(evictions: dict[str, float], now: float, taint: str | None) -> None:
    strategy = EvictionCooldown(EvictionCooldownSettings(enable=True, effect="NoSchedule"))
    wanted = settings(strategy.decide(view(evictions=evictions), now))
    assert list(wanted.values()) == ([taint] if taint else [])
    assert all(target == TAINT for target, _ in wanted)
