"""SIGHUP: what changes in a running agent, what needs a restart, and settings that are refused."""

import logging
import os
import signal
from pathlib import Path
from typing import cast

import pytest

from api.intents import Knob
from detector.judging.judge import Judge, JudgeSettings
from koordlet.agent.detection import Detection
from koordlet.agent.signals import Stop, until_signalled
from koordlet.commands.reload import LIVE, Reload, changes, needing_restart
from koordlet.config import AgentSettings, load_settings
from koordlet.control.capabilities import CapabilityReader
from koordlet.control.control_loop import ControlLoop
from koordlet.control.strategy_runner import open_strategies
from koordlet.host.knobs.knobs import Knobs
from koordlet.response.policy import ResponsePolicy
from koordlet.tick import Tick
from tests.koordlet.enforcer.hosts import FakeHost, outcomes, want
from tests.waiting import wait_for

FIRST = """interval_seconds = 2.0
[enforcer]
enabled = true
strategies = ["calm"]
[strategies.node_slo.resourceUsedThresholdWithBE]
enable = true
"""


def reloading(tmp_path: Path, text: str = FIRST) -> tuple[FakeHost, Reload]:
    host = FakeHost(tmp_path)
    host.make("/pod")
    file = tmp_path / "koordlet.toml"
    file.write_text(text)
    settings = load_settings(file)
    enforcer = host.enforcer(strategies=settings.enforcer.strategies)
    knobs = Knobs(host.tree)
    control = ControlLoop(ResponsePolicy(settings.response), enforcer, CapabilityReader(host.tree, knobs, ""))
    strategies = open_strategies(settings.strategies, str(file))
    detection = Detection(Judge(JudgeSettings()), None, None)
    return host, Reload(file, settings, False, Stop(), control, detection, strategies)


def told(reload: Reload, text: str, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    caplog.set_level(logging.INFO)
    assert reload.config is not None
    reload.config.write_text(text)
    reload.stop.ask_reload()
    reload.step(cast(Tick, None))
    return caplog.text


def test_every_live_key_is_a_setting() -> None:
    for table, keys in LIVE.items():
        assert keys <= set(getattr(AgentSettings(), table).__struct_fields__)


def test_limits_of_the_enforcer_change_with_the_next_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host, reload = reloading(tmp_path)
    wanted = [want(Knob.CPU_MAX, "20000 100000", strategy="other")]
    enforcer = reload.control.enforcer
    assert outcomes(enforcer.step(wanted, now=host.later(1)))[0][1] == "refused"
    told(reload, FIRST.replace('"calm"', '"calm", "other"'), caplog)
    enforcer.step(wanted, now=host.later(1))
    assert host.text("/pod", "cpu.max") == "20000 100000"
    told(reload, FIRST.replace('"calm"', '"calm", "other"').replace("enabled", 'only = ["/none"]\nenabled'), caplog)
    enforcer.step(wanted, now=host.later(1))
    assert host.text("/pod", "cpu.max") == "max 100000"


def test_strategies_rules_and_response_follow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, reload = reloading(tmp_path)
    assert reload.strategies is not None
    assert reload.strategies.strategies["cpu_suppress"].settings.enable
    assert reload.detection is not None
    rules = len(reload.detection.judge.settings.rules)
    name = reload.detection.judge.settings.rules[0].name
    text = FIRST.replace("enable = true\n", "enable = false\n").replace("enabled = false", "enabled = true")
    said = told(reload, f'{text}[response]\nlease_seconds = 7.0\n[detection]\ndisabled_rules = ["{name}"]\n', caplog)
    assert "restart" not in said
    assert not reload.strategies.strategies["cpu_suppress"].settings.enable
    assert len(reload.detection.judge.settings.rules) == rules - 1
    assert reload.control.response.settings.lease_seconds == 7.0


def test_what_needs_a_restart_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, reload = reloading(tmp_path)
    said = told(reload, FIRST.replace("2.0", "3.0") + "[metrics]\nport = 1234\n", caplog)
    assert "a restart is needed for interval_seconds, [metrics] port" in said


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[enforcer]\nno_such_key = 1\n", id="unknown-key"),
        pytest.param("[", id="torn"),
        pytest.param('[detection]\ndisabled_rules = ["none"]\n', id="unknown-rule"),
    ],
)
def test_settings_that_are_refused_change_nothing(text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, reload = reloading(tmp_path)
    before = reload.settings
    assert "stay as they were" in told(reload, text, caplog)
    assert reload.settings is before


def test_without_a_file_there_is_nothing_to_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, reload = reloading(tmp_path)
    reload.config = None
    reload.reload()
    assert "without --config" in caplog.text


def test_equal_settings_are_no_change() -> None:
    assert changes(AgentSettings(), AgentSettings()) == {}
    assert needing_restart({}) == []


def test_a_hangup_asks_for_a_reload_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koordlet.agent.signals._has_terminal", lambda: False)
    with until_signalled(reloads=True) as stop:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
            wait_for(stop.take_reload)  # another thread may have taken the signal
            assert not stop.take_reload()
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)


def test_a_lost_terminal_still_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("koordlet.agent.signals._has_terminal", lambda: True)
    with until_signalled(reloads=True) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert stop.wait(10)
        assert not stop.take_reload()
