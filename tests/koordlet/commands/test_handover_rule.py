"""Which planned ends of the agent hand actions over, and for how long."""

from typing import Any, cast

import msgspec
import pytest

from koordlet.commands import run_agent
from koordlet.config import AgentSettings, EnforcerSettings
from koordlet.control.control_loop import ControlLoop
from koordlet.kube import rollout


class Guarded:
    """A control loop as far as its guardian goes."""

    def __init__(self, *, outlives: bool | None) -> None:
        self.guardian = None if outlives is None else type("G", (), {"outlives_agent": outlives})()


def seconds(
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_rolling: bool = True,
    outlives: bool | None = True,
    daemonset: str = "koord-system/koordlet",
    **enforcer: Any,
) -> float:
    monkeypatch.setattr(rollout, "rollout_in_sight", lambda *_: is_rolling)
    flags = run_agent.RunFlags(
        standalone=False, daemonset=daemonset, as_objects=False, record=None, enforce=True, verbose=False
    )
    settings = msgspec.structs.replace(
        AgentSettings(), enforcer=EnforcerSettings(**{"enabled": True, "strategies": ("*",), **enforcer})
    )
    return run_agent._handover_seconds(settings, flags, cast(ControlLoop, Guarded(outlives=outlives)))


def test_a_rollout_hands_over_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds(monkeypatch) == 60.0


@pytest.mark.parametrize(
    "case",
    [
        pytest.param({"is_rolling": False}, id="no-rollout"),
        pytest.param({"daemonset": ""}, id="no-daemonset"),
        pytest.param({"daemonset": "koordlet"}, id="malformed-name"),
        pytest.param({"outlives": False}, id="the-guardian-dies-too"),
        pytest.param({"outlives": None}, id="no-guardian"),
        pytest.param({"outlives": False, "handover_seconds": 60.0}, id="the-guardian-dies-too-whatever-is-set"),
        pytest.param({"handover_seconds": 0.0}, id="switched-off"),
        pytest.param({"dry_run": True, "handover_seconds": 60.0}, id="dry-run"),
        pytest.param({"enabled": False}, id="observing"),
    ],
)
def test_everything_else_restores(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]) -> None:
    assert seconds(monkeypatch, **case) == 0.0


def test_a_service_hands_over_for_as_long_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds(monkeypatch, is_rolling=False, daemonset="", handover_seconds=20.0) == 20.0
