"""What `koordlet doctor` says of who may act, and on which classes."""

from pathlib import Path

import pytest

from api.qos import QoSClass
from api.settings import SettingsError
from koordlet.config import AgentSettings, EnforcerSettings, StrategiesSettings
from koordlet.control.acting import who_may_act
from koordlet.response.settings import ResponseSettings

SLO = {
    "resourceUsedThresholdWithBE": {"enable": True},
    "extensions": {"coldMemory": {"enable": True, "qosClasses": ["BE", "LS"]}},
}


def said(enforcer: EnforcerSettings, **more: object) -> str:
    return who_may_act(AgentSettings(enforcer=enforcer, **more))  # type: ignore[arg-type]


def test_nobody_acts_unless_asked() -> None:
    assert said(EnforcerSettings()) == "nothing is changed: [enforcer] enabled is off"
    assert said(EnforcerSettings(enabled=True)) == "no strategy may"


def test_classes_above_best_effort_are_named(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    enforcer = EnforcerSettings(enabled=True, strategies=("*",), stop_file=str(stop))
    strategies = StrategiesSettings(node_slo=SLO)
    reason = said(enforcer, strategies=strategies)
    assert "response may limit BE;" in reason
    assert "cold_memory may limit BE, LS" in reason
    assert "cpu_suppress may limit BE" in reason
    assert "watermarks" not in reason, "it is not enabled"
    stop.touch()
    assert said(enforcer, strategies=strategies).startswith(f"stopped by {stop}")
    limited = ResponseSettings(limited_classes=(QoSClass.BE, QoSClass.NONE))
    assert "response may limit BE, unclassed" in said(enforcer, response=limited)


def test_the_nodes_slo_goes_before_the_settings() -> None:
    enforcer = EnforcerSettings(enabled=True, strategies=("*",))
    settings = AgentSettings(enforcer=enforcer, strategies=StrategiesSettings(node_slo=SLO))
    spec = {"extensions": {"watermarks": {"enable": True}, "coldMemory": {"enable": True, "qosClasses": ["BE"]}}}
    reason = who_may_act(settings, spec)
    assert "cold_memory may limit BE;" in f"{reason};"
    assert "cpu_suppress" not in reason, "the cluster's object does not enable it"


def test_settings_that_are_refused_are_told() -> None:
    enforcer = EnforcerSettings(enabled=True, strategies=("*",))
    broken = StrategiesSettings(node_slo={"extensions": {"coldMemory": {"enable": 5}}})
    with pytest.raises(SettingsError, match="coldMemory"):
        said(enforcer, strategies=broken)
