"""Strategies in the agent: switched by a NodeSLO, refused with file and key, none able to end the tick."""

from pathlib import Path

import pytest

from api.intents import Intent
from api.settings import SettingsError
from koordlet.config import StrategiesSettings as Settings
from koordlet.control.strategy_runner import StrategyRunner, open_strategies
from koordlet.strategies.strategy import Strategy, StrategySettings
from koordlet.strategies.view import NodeInfo, NodeView

VIEW = NodeView(node=NodeInfo(cpus=(), memory_bytes=0))


class Broken(Strategy[StrategySettings]):
    section = "extensions.broken"
    settings_type = StrategySettings

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        raise RuntimeError("boom")


class Willing(Strategy[StrategySettings]):
    section = "extensions.willing"
    settings_type = StrategySettings

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        return [self.reclaim("/batch", 4096, "because")]


def test_a_strategy_that_fails_is_silent_and_counted_and_the_others_go_on() -> None:
    runner = StrategyRunner({"broken": Broken(), "willing": Willing()})
    assert [intent.target for intent in runner.decide(VIEW, 1.0)] == ["/batch"]
    runner.decide(VIEW, 2.0)
    assert (runner.failures["broken"], runner.failures["willing"], runner.silent) == (2, 0, {"broken"})


def test_without_a_node_slo_no_strategy_runs() -> None:
    assert open_strategies(Settings(), "koordlet.toml") is None


def test_a_node_slo_switches_strategies(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text("spec:\n  resourceUsedThresholdWithBE:\n    enable: true\n    cpuSuppressPolicy: cfsQuota\n")
    runner = open_strategies(Settings(node_slo_file=str(path)), "koordlet.toml")
    assert runner is not None
    assert runner.strategies["cpu_suppress"].settings.enable
    inline = open_strategies(Settings(node_slo={"resourceUsedThresholdWithBE": {"enable": True}}), "koordlet.toml")
    assert inline is not None
    assert inline.strategies["cpu_suppress"].settings.policy == "cpuset"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        pytest.param(
            Settings(node_slo_file="/nowhere/slo.yaml"), "/nowhere/slo.yaml: cannot be read", id="file-absent"
        ),
        pytest.param(Settings(node_slo_file="x", node_slo={"a": 1}), "keep one of them", id="file-and-table"),
        pytest.param(Settings(node_slo={"resourceUsedThreshold": {}}), "unknown key", id="unknown-key"),
        pytest.param(
            Settings(node_slo={"systemStrategy": {}}, features={"Nothing": True}),
            "no feature gate 'Nothing'",
            id="unknown-feature-gate",
        ),
        pytest.param(
            Settings(node_slo={"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": 165}}),
            "165|<= 100",
            id="percent-over-100",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_with_a_reason(settings: Settings, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        open_strategies(settings, "koordlet.toml")


def test_evictions_are_forgotten_in_time() -> None:
    runner = StrategyRunner({})
    runner.note_eviction("/a", 0.0)
    runner.note_eviction("/b", 4000.0)
    assert runner.evictions == {"/b": 4000.0}


def test_memory_is_looked_at_only_for_a_strategy_that_needs_it() -> None:
    plain = Settings(node_slo={"extensions": {"oomScore": {"enable": True}}})
    asking = Settings(node_slo={"extensions": {"memoryHeadroom": {"enable": True}}})
    found = [open_strategies(settings, "file") for settings in (plain, asking)]
    assert [each is not None and each.needs_memory_domains for each in found] == [False, True]
