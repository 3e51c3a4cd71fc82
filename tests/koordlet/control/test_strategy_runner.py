"""Strategies in the agent: switched by a NodeSLO, refused with file and key, none able to end the tick."""

from pathlib import Path

import pytest

from api.intents import Intent, Knob, Setting
from api.settings import SettingsError
from koordlet.config import StrategiesSettings as Settings
from koordlet.control.strategy_runner import ANSWER_SECONDS, StrategyRunner, open_strategies
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


class Both(Strategy[StrategySettings]):
    """Asks for an action and for protocol state."""

    section = "extensions.both"
    settings_type = StrategySettings

    def intents(self, view: NodeView, now: float) -> list[Intent]:
        state = Setting(
            strategy="both", target="/state", reason="", knob=Knob.CPU_WEIGHT, value="59", protocol_state=True
        )
        return [state, self.reclaim("/batch", 4096, "because")]


def test_protocol_state_alone_waits_for_the_cluster_to_answer() -> None:
    runner = StrategyRunner({"both": Both()})
    runner.await_answer()
    assert [intent.target for intent in runner.decide(VIEW, 10.0)] == ["/batch"]
    assert runner.silent == {"both"}
    runner.follow({}, "what was kept on disk")
    assert [intent.target for intent in runner.decide(VIEW, 11.0)] == ["/batch"]
    runner.answered()
    assert [intent.target for intent in runner.decide(VIEW, 12.0)] == ["/state", "/batch"]
    assert runner.silent == frozenset()


def test_the_wait_for_the_cluster_to_answer_ends() -> None:
    runner = StrategyRunner({"both": Both()})
    runner.await_answer()
    asked = [len(runner.decide(VIEW, now)) for now in (10.0, 9.9 + ANSWER_SECONDS, 10.0 + ANSWER_SECONDS, 10.1)]
    assert asked == [1, 1, 2, 2]


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


def live(**sections: object) -> StrategyRunner:
    runner = open_strategies(Settings(node_slo=dict(sections)), "file", live=True)
    assert runner is not None
    return runner


def test_a_spec_that_changes_makes_the_affected_strategies_anew_and_no_others() -> None:
    runner = live(resourceUsedThresholdWithBE={"enable": True})
    before = dict(runner.strategies)
    assert runner.follow({"resourceUsedThresholdWithBE": {"enable": True}}, "NodeSLO n1") == []
    assert runner.strategies == before
    spec = {"resourceUsedThresholdWithBE": {"enable": True}, "extensions": {"oomScore": {"enable": True}}}
    assert runner.follow(spec, "NodeSLO n1") == []
    assert {name for name in before if runner.strategies[name] is not before[name]} == {"oom_score"}
    assert runner.strategies["oom_score"].settings.enable
    assert runner.strategies["oom_score"].name == "oom_score"


def test_a_field_that_is_refused_leaves_its_strategy_as_it_was_and_the_others_follow() -> None:
    runner = live(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 50})
    spec = {
        "resourceUsedThresholdWithBE": {"enable": True, "cpuSuppressThresholdPercent": 500},
        "extensions": {"oomScore": {"enable": True}},
        "typo": {},
    }
    refused = runner.follow(spec, "NodeSLO n1")
    assert any("typo" in str(error) for error in refused)
    assert any("NodeSLO n1" in str(error) and "hreshold" in str(error) for error in refused)
    assert runner.strategies["cpu_suppress"].settings.threshold_percent == 50
    assert runner.strategies["oom_score"].settings.enable


def test_without_an_object_the_settings_hold_and_without_either_nothing_is_asked() -> None:
    runner = live(resourceUsedThresholdWithBE={"enable": True})
    runner.follow({}, "NodeSLO n1")
    assert not runner.strategies["cpu_suppress"].settings.enable
    assert not runner.is_asked
    runner.follow(None, "NodeSLO n1")
    assert runner.strategies["cpu_suppress"].settings.enable
    assert runner.is_asked
    assert not live().is_asked


@pytest.mark.parametrize(
    ("stated", "bits", "told"),
    [
        pytest.param("10G", 10 * 10**9, "", id="stated"),
        pytest.param(None, 0, "", id="not-stated"),
        pytest.param("fast", 0, "totalNetworkBandwidth", id="no-quantity"),
        pytest.param("-1", 0, "no bandwidth", id="negative"),
        pytest.param("0", 0, "", id="default-of-the-manager"),
        pytest.param("1e99", 0, "totalNetworkBandwidth", id="too-much"),
    ],
)
def test_the_speed_of_the_link_is_the_node_slos(stated: str | None, bits: int, told: str) -> None:
    runner = StrategyRunner({})
    refused = runner.follow({"systemStrategy": {"totalNetworkBandwidth": stated} if stated else {}}, "NodeSLO n1")
    assert runner.network_bits_per_second == bits
    assert told in "".join(map(str, refused))
    assert bool(refused) == bool(told)
