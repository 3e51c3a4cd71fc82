"""Actions and harm as series: bounded, and only of those that are protected."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from pytest import approx

from api.frame import CgroupInfo
from api.intents import Knob, Setting
from detector.baselines.values import Judgement
from detector.judging.signals import Turnarounds
from koordlet.control.control_loop import ControlLoop, HookFigures
from koordlet.control.harm import HarmMeter
from koordlet.control.slowdown import SlowdownMeter
from koordlet.control.strategy_runner import StrategyRunner
from koordlet.enforcer.outcomes import IntentResult
from koordlet.metrics.actions import ActionMetrics
from tests.koordlet.control.test_strategy_runner import VIEW, Broken, Willing

CGROUPS = (
    CgroupInfo(1, "/web", "web", "LS"),
    CgroupInfo(2, "/api", "api", "LSR"),
    CgroupInfo(3, "/batch", "batch", "BE"),
)


def control_loop() -> ControlLoop:
    idle = Setting(strategy="response", target="/batch", reason="", knob=Knob.CPU_IDLE, value="1")
    weight = Setting(strategy="hooks", target="/batch", reason="", knob=Knob.CPU_WEIGHT, value="2", protocol_state=True)
    meter = HarmMeter()
    for _ in range(30):
        meter.add(np.array([1, 2, 3], dtype=np.uint64), np.array([0.02, 0.1, 0.5]), np.full(3, 0.5), 1.0)
    late = np.array([0.01, np.nan, np.nan])
    usual = Judgement(late, late * 0.1, late, late, np.zeros(3), np.full(3, 1000), late, late)
    answered = Turnarounds(np.array([1, 2, 3], dtype=np.uint64), np.array([10.0, 0, 0]), np.array([0.15, 0, 0]), usual)
    slowdown = SlowdownMeter()
    for _ in range(30):
        slowdown.add(answered, 1.0)
    runner = StrategyRunner({"broken": Broken(), "willing": Willing()})
    for second in range(2):
        runner.decide(VIEW, float(second))
    made: dict[str, Any] = {
        "enforcer": SimpleNamespace(
            active_settings=lambda: {("/batch", Knob.CPU_IDLE): idle},
            held_protocol_state=lambda: {("/batch", Knob.CPU_WEIGHT): weight},
            counts={("response", "cpu.idle", "set"): 4},
        ),
        "guardian": SimpleNamespace(starts=1),
        "hook_figures": lambda: HookFigures(
            {("nri", "CreateContainer"): 7}, {("nri", "CreateContainer"): 1}, {"nri": 0.25}, {"nri": True}, 2
        ),
        "response": SimpleNamespace(active_rungs={("/batch", "cpu"): ("idle",)}, skipped={"protected": 2}),
        "steps": {("cpu", "idle", "kept"): 3},
        "trips": {"acted": 1},
        "harm": meter,
        "slowdown": slowdown,
        "intent_counts": {("response", IntentResult.REQUESTED): 3, ("response", IntentResult.CONFLICT): 1},
        "strategies": runner,
    }
    return cast(ControlLoop, SimpleNamespace(**made))


def scraped(max_cgroups: int) -> str:
    exposition = ActionMetrics(max_cgroups, lambda path: path.lstrip("/"), dry_run=True)
    registry = CollectorRegistry()
    registry.register(exposition)
    exposition.update(control_loop(), CGROUPS)
    return generate_latest(registry).decode()


def test_actions_rungs_and_harm_are_told() -> None:
    text = scraped(10)
    assert 'koord_actions_total{dry_run="true",knob="cpu.idle",outcome="set",strategy="response"} 4.0' in text
    assert 'koord_settings_active{knob="cpu.idle",strategy="response"} 1.0' in text
    assert 'koord_protocol_settings{knob="cpu.weight",strategy="hooks"} 1.0' in text
    assert "koord_guardian_starts_total 1.0" in text
    assert 'koord_response_steps_total{resource="cpu",rung="idle",step="kept"} 3.0' in text
    assert 'koord_response_rungs_active{resource="cpu",rung="idle"} 1.0' in text
    assert 'koord_culprits_skipped_total{reason="protected"} 2.0' in text
    assert 'koord_tripwire_trips_total{outcome="acted"} 1.0' in text
    assert 'koord_harm_ratio{cgroup="/web",name="web",qos="LS"} 0.04' in text


def test_harm_is_of_the_protected_and_of_the_worst_of_them() -> None:
    text = scraped(1)
    assert 'koord_harm_ratio{cgroup="/api"' in text
    assert 'koord_harm_ratio{cgroup="/web"' not in text
    assert 'koord_harm_ratio{cgroup="/batch"' not in text


def test_how_late_a_service_answers_is_told_where_requests_are_seen() -> None:
    lines = [line for line in scraped(10).splitlines() if line.startswith("koord_turnaround_slowdown")]
    values = {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}
    assert values["koord_turnaround_slowdown_ratio"] == approx(0.5)
    assert values["koord_turnaround_slowdown_low_ratio"] < 0.5 < values["koord_turnaround_slowdown_high_ratio"]
    assert all('cgroup="/web"' in line for line in lines)


def test_a_strategy_that_fails_is_reported_and_so_are_its_intents() -> None:
    text = scraped(10)
    assert 'koord_strategy_failures_total{strategy="broken"} 2.0' in text
    assert 'koord_strategy_failures_total{strategy="willing"} 0.0' in text
    assert 'koord_strategy_runs_total{strategy="willing"} 2.0' in text
    assert 'koord_strategy_run_seconds_total{strategy="willing"}' in text
    assert 'koord_strategy_problems{strategy="willing"} 0.0' in text
    assert 'koord_strategy_intents{result="requested",strategy="response"} 3.0' in text
    assert 'koord_strategy_intents{result="conflict",strategy="response"} 1.0' in text


def test_the_runtime_hooks_are_counted() -> None:
    metrics = ActionMetrics(2, str, dry_run=False)
    metrics.update(control_loop(), CGROUPS)
    registry = CollectorRegistry()
    registry.register(metrics)
    text = generate_latest(registry).decode()
    assert 'koord_hook_calls_total{method="CreateContainer",mode="nri"} 7.0' in text
    assert 'koord_hook_failures_total{method="CreateContainer",mode="nri"} 1.0' in text
    assert 'koord_hook_slowest_seconds{mode="nri"} 0.25' in text
    assert 'koord_hook_connected{mode="nri"} 1.0' in text
    assert "koord_hook_problems 2.0" in text
