from typing import Any

import pytest

from api.intents import Knob
from api.settings import SettingsError
from koordlet.strategies.plugins.system_tunables import SystemTunables, SystemTunablesSettings, min_free_kbytes
from koordlet.strategies.settings import settings_of
from tests.koordlet.strategies.views import GIB, node, settings, view

DEFAULTS = {
    "gates": {"SystemConfig": False},
    "settings": {
        "minFreeKbytesFactor": None,
        "watermarkScaleFactor": None,
        "memcgReapBackGround": None,
        "schedGroupIdentityEnabled": None,
        "schedIdleSaverWmark": None,
        "pageCacheLimitEnabled": None,
        "schedFeatures": {},
    },
}


def parsed(**table: Any) -> SystemTunablesSettings:
    return settings_of(SystemTunablesSettings, "systemStrategy", {"systemStrategy": table}, "file")


def test_min_free_kbytes() -> None:
    assert min_free_kbytes(512 * GIB, 100) == 5368709


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        pytest.param({"minFreeKbytesFactor": 100}, {("vm/min_free_kbytes", Knob.SYSCTL): "10485"}, id="free"),
        pytest.param({"watermarkScaleFactor": 150}, {("vm/watermark_scale_factor", Knob.SYSCTL): "150"}, id="scale"),
        pytest.param(
            {"memcgReapBackGround": 0}, {("memcg_reaper/reap_background", Knob.SYSCTL): "0"}, id="zero-is-a-value"
        ),
        pytest.param(
            {"schedFeatures": {"ID_EXPELLER_SHARE_CORE": False}},
            {("ID_EXPELLER_SHARE_CORE", Knob.SCHED_FEATURE): "0"},
            id="feature",
        ),
        pytest.param({"totalNetworkBandwidth": "10G"}, {}, id="not-ours"),
    ],
)
def test_tunables(table: dict[str, Any], wanted: dict[tuple[str, Knob], str]) -> None:
    strategy = SystemTunables(parsed(**table), {"SystemConfig": True})
    assert settings(strategy.decide(view(on=node(memory_bytes=GIB)), 0.0)) == wanted
    assert SystemTunables(parsed(**table)).decide(view(), 0.0) == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        pytest.param({"minFreeKbytesFactor": 0}, "minFreeKbytesFactor", id="zero"),
        pytest.param({"minFreeKbytesFactor": 5000}, "minFreeKbytesFactor", id="half-the-memory"),
        pytest.param({"watermarkScaleFactor": 401}, "watermarkScaleFactor", id="scale"),
        pytest.param({"schedFeatures": {"NO_X; rm": True}}, "schedFeatures", id="no-feature"),
    ],
)
def test_refused_settings(table: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parsed(**table)
