"""Actions and harm as series: bounded, and only of those that are protected."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from api.frame import CgroupInfo
from api.intents import Knob, Setting
from koordlet.exposition_actions import ActionExposition
from koordlet.harm import HarmMeter
from koordlet.protecting import Protection

CGROUPS = (
    CgroupInfo(1, "/web", "web", "LS"),
    CgroupInfo(2, "/api", "api", "LSR"),
    CgroupInfo(3, "/batch", "batch", "BE"),
)


def protection() -> Protection:
    idle = Setting(strategy="response", target="/batch", reason="", knob=Knob.CPU_IDLE, value="1")
    meter = HarmMeter()
    for _ in range(30):
        meter.add(np.array([1, 2, 3], dtype=np.uint64), np.array([0.02, 0.1, 0.5]), np.full(3, 0.5), 1.0)
    made: dict[str, Any] = {
        "enforcer": SimpleNamespace(
            held=lambda: {("/batch", Knob.CPU_IDLE): idle}, counts={("response", "cpu.idle", "set"): 4}
        ),
        "response": SimpleNamespace(standing={("/batch", "cpu"): ("idle",)}, refused={"protected": 2}),
        "steps": {("cpu", "idle", "kept"): 3},
        "trips": {"acted": 1},
        "harm": meter,
    }
    return cast(Protection, SimpleNamespace(**made))


def scraped(max_cgroups: int) -> str:
    exposition = ActionExposition(max_cgroups, lambda path: path.lstrip("/"), dry_run=True)
    registry = CollectorRegistry()
    registry.register(exposition)
    exposition.update(protection(), CGROUPS)
    return generate_latest(registry).decode()


def test_actions_rungs_and_harm_are_told() -> None:
    text = scraped(10)
    assert 'koord_actions_total{dry_run="true",knob="cpu.idle",outcome="set",strategy="response"} 4.0' in text
    assert 'koord_settings_standing{knob="cpu.idle",strategy="response"} 1.0' in text
    assert 'koord_rungs_total{moment="kept",resource="cpu",rung="idle"} 3.0' in text
    assert 'koord_rungs_standing{resource="cpu",rung="idle"} 1.0' in text
    assert 'koord_accusations_refused_total{reason="protected"} 2.0' in text
    assert 'koord_trips_total{outcome="acted"} 1.0' in text
    assert 'koord_harm_ratio{cgroup="/web",name="web",qos="LS"} 0.04' in text


def test_harm_is_of_the_protected_and_of_the_worst_of_them() -> None:
    text = scraped(1)
    assert 'koord_harm_ratio{cgroup="/api"' in text
    assert "/web" not in text
    assert 'koord_harm_ratio{cgroup="/batch"' not in text
